//! The program: one file a command.
//!
//! | file | what it does |
//! | --- | --- |
//! | `args`, `duration` | the command line as typed |
//! | `store` | from the command line to a connected store |
//! | `console`, `log` | everything on stderr: messages for people, JSON lines, traces |
//! | `output`, `table` | everything on stdout: data |
//! | `exit` | failures and exit codes |
//! | `run`, `fsck` | a command under a lease: `acquire` gets it, `wait` tells who is in the way, `wrap` does the rest |
//! | `owner` | the one process that writes a local store |
//! | `listen`, `serve`, `check`, `token` | answering over HTTP, beside a command or alone; asking whether one answers; its token |
//! | `records` | streams of rows in a local store |
//! | `child`, `signals`, `terminal` | the command as a process |
//! | `status`, `clear`, `history`, `init`, `demo`, `completions`, `man` | the other commands |
//!
//! The main thread runs one single-threaded runtime without its own signal and process drivers: signals are
//! blocked before any thread exists and read by `signals` alone, children are reaped by `child` alone.

mod acquire;
mod args;
#[cfg(feature = "service")]
mod check;
mod child;
mod clear;
mod completions;
mod console;
mod demo;
mod duration;
mod exit;
mod fsck;
mod history;
mod init;
#[cfg(feature = "service")]
mod listen;
mod log;
mod man;
mod output;
#[cfg(feature = "local")]
mod owner;
#[cfg(feature = "local")]
mod records;
mod run;
#[cfg(feature = "service")]
mod serve;
mod signals;
mod status;
mod store;
mod table;
mod terminal;
#[cfg(feature = "service")]
mod token;
mod wait;
mod wrap;

use std::future::Future;

use args::Command;
use console::Console;
use exit::Failure;
use signals::Signals;

/// What a command has at hand.
struct Context {
    global: args::Global,
    console: Console,
    signals: Signals,
    /// The service beside a command under a lease.
    #[cfg(feature = "service")]
    beside: Option<listen::Beside>,
}

/// Runs the program and returns its exit code.
pub(crate) fn main() -> i32 {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    // What needs neither a store nor a thread.
    match &cli.command {
        Command::Completions { shell } => return output::finish(completions::print(*shell)),
        Command::Man { directory } => return output::finish(man::write(directory.as_deref())),
        Command::DemoWork(work) => return demo::work(work),
        #[cfg(feature = "service")]
        Command::Token(token) => return output::finish(token::token(token)),
        _ => {}
    }
    // Before any thread exists: each of them inherits the mask.
    let signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => {
            let failure = Failure::system("the signals cannot be taken over", error);
            return exit::report_plainly(&failure, cli.global.json);
        }
    };
    let console = Console::start(cli.global.json);
    log::start(&console, cli.global.verbose);
    let mut context = Context {
        global: cli.global,
        console: console.clone(),
        signals,
        #[cfg(feature = "service")]
        beside: None,
    };
    let result = match runtime() {
        Ok(runtime) => runtime.block_on(dispatch(&mut context, cli.command)),
        Err(error) => Err(Failure::system("the runtime cannot be started", error)),
    };
    #[cfg(feature = "service")]
    if let Some(beside) = context.beside.take() {
        beside.finish(&result);
    }
    let code = match result {
        Ok(code) => code,
        Err(failure) => {
            console.failure(&failure);
            failure.code()
        }
    };
    console.finish();
    code
}

/// No signal and no process driver: a second reaper would steal the ends of children.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()
}

async fn dispatch(context: &mut Context, command: Command) -> Result<i32, Failure> {
    match command {
        Command::Init => interruptible(context, init::init).await,
        Command::Run(args) => run::run(context, args).await,
        Command::Fsck(args) => fsck::fsck(context, args).await,
        Command::Status(args) => status::status(context, &args).await,
        Command::Clear(args) => clear::clear(context, &args, clear::Verb::Clear).await,
        Command::Prune(args) => clear::clear(context, &args, clear::Verb::Prune).await,
        Command::History => interruptible(context, history::history).await,
        #[cfg(feature = "service")]
        Command::Serve(args) => serve::serve(context, args).await,
        #[cfg(feature = "local")]
        Command::Owner(command) => owner::owner(context, command).await,
        #[cfg(feature = "local")]
        Command::Records(command) => records::records(context, command).await,
        Command::Demo => demo::demo(context).await,
        #[cfg(feature = "mongo")]
        Command::DemoReplicaSet(args) => interruptible(context, |_, console| demo::initiate(args, console)).await,
        #[cfg(feature = "service")]
        Command::Token(_) => unreachable!("done before the signals were taken over"),
        Command::Completions { .. } | Command::Man { .. } | Command::DemoWork(_) => {
            unreachable!("done before the signals were taken over")
        }
    }
}

/// A command that holds nothing: a signal ends it at once.
async fn interruptible<F: Future<Output = Result<i32, Failure>>>(
    context: &mut Context,
    command: impl FnOnce(args::Global, Console) -> F,
) -> Result<i32, Failure> {
    tokio::select! {
        biased;
        signal = context.signals.interrupted() => Err(Failure::interrupted(signal)),
        result = command(context.global.clone(), context.console.clone()) => result,
    }
}
