//! The command line as it was typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use lockhouse::Watch;

use super::child::OnLost;
use super::{duration, exit};

/// Writer leases and an exclusive fsck lease for a store that many processes write.
///
/// A writer runs under `lockhouse run -- CMD`, any number of them at once. A job that needs the store alone
/// (a check, a migration, a repair, a backup) runs under `lockhouse fsck -- CMD`: it waits until the writers
/// have left, and keeps new ones out.
#[derive(Debug, Parser)]
#[command(name = "lockhouse", version, after_long_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  run and fsck end with the code of their command, or 128 + the signal that ended it. Otherwise:
   64  the command line is wrong
   69  the store cannot be reached, or its owner is not ready
   70  something unexpected
   75  an fsck, a stale lease or an owner is in the way, or what was to be cleared is not dead
   76  writers did not leave within the drain budget
   77  authentication failed, or a privilege is missing
   78  the store, an option or a row cannot be used; or it would wait for itself
   79  rows are handed over, and what becomes of them is not known yet: `records await` tells
   80  the lease was lost
   81  status: something is stale or failed and needs a person
  126  the command cannot be executed
  127  the command was not found";

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// The store: mongodb://HOST/DATABASE, mongodb+srv://HOST/DATABASE, or a path on this machine.
    ///
    /// Other users of the machine see command lines: a URL with a password belongs into the variable.
    #[arg(long, global = true, value_name = "URL", env = "LOCKHOUSE_STORE", hide_env_values = true)]
    pub(crate) store: Option<OsString>,

    /// The collection of the leases [default: lockhouse]. Two names are two locks.
    #[arg(long, global = true, value_name = "NAME", env = "LOCKHOUSE_COLLECTION")]
    pub(crate) collection: Option<String>,

    /// A type of file system that a local store may live on although it is not known here. Your word that its
    /// flock(2) holds between all processes that use the store.
    #[arg(long, global = true, value_name = "TYPE", env = "LOCKHOUSE_ALLOW_FILESYSTEM", value_delimiter = ',')]
    pub(crate) allow_filesystem: Vec<String>,

    /// How often a lease is refreshed [default: 5s on a replica set, else 2s].
    ///
    /// Given without --stale-multiplier, that one is 4.
    #[arg(long, global = true, value_name = "DURATION", env = "LOCKHOUSE_REFRESH_INTERVAL", value_parser = duration::parse)]
    pub(crate) refresh_interval: Option<Duration>,

    /// After how many refresh intervals without a refresh a lease is stale [default: 5 on a replica set, else
    /// 4].
    ///
    /// At least 3. Given without --refresh-interval, that one is 2s.
    #[arg(long, global = true, value_name = "N", env = "LOCKHOUSE_STALE_MULTIPLIER")]
    pub(crate) stale_multiplier: Option<u32>,

    /// Prints JSON: data on stdout, messages and errors as one object per line on stderr.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Tells more on stderr; twice for even more. LOCKHOUSE_LOG takes precise filters.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Makes the store's layout. A second run changes nothing.
    Init,
    /// Runs a command under a writer lease.
    Run(RunArgs),
    /// Runs a command with the store alone.
    Fsck(FsckArgs),
    /// Shows who holds what. Takes no lease and writes nothing.
    ///
    /// Exit code 0: open. 75: an fsck holds the store or waits for it. 81: something needs a person.
    Status(StatusArgs),
    /// Clears a dead fsck lease. A living one is spared.
    ///
    /// The lease is watched for its whole stale age before it is taken for dead.
    Clear(ClearArgs),
    /// Removes the leases of dead writers. Living ones are spared.
    ///
    /// Each lease is watched for its whole stale age before it is taken for dead.
    Prune(ClearArgs),
    /// Shows the audit trail, oldest first.
    History,
    /// Answers over HTTP what it sees of the store: health, readiness, metrics, status, events, and a page.
    ///
    /// Takes no lease and writes nothing. It goes on while the store is away, and says so.
    #[cfg(feature = "service")]
    Serve(super::listen::ServeArgs),
    /// Makes a file with a random token, for --token-file. One that is there stays as it is.
    #[cfg(feature = "service")]
    Token(TokenArgs),
    /// The one process that writes a local store.
    #[cfg(feature = "local")]
    #[command(subcommand)]
    Owner(super::owner::OwnerCommand),
    /// Append-only streams of rows in a local store: any process may add rows, one of them writes.
    #[cfg(feature = "local")]
    #[command(subcommand)]
    Records(super::records::RecordsCommand),
    /// Shows the whole story in half a minute: writers, an fsck that drains them, and a check that nothing
    /// overlapped.
    ///
    /// On a local store of its own unless one is given. On MongoDB it uses the collection `lockhouse_demo` unless
    /// another is given, so it disturbs nobody.
    Demo,
    /// Prints a completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Prints the manual page, or writes one page for each command into a directory.
    Man {
        /// Where to write the pages.
        directory: Option<PathBuf>,
    },
    /// What the processes of the demo do.
    #[command(hide = true)]
    DemoWork(DemoWork),
    /// Makes the example's MongoDB server a replica set of one member.
    #[cfg(feature = "mongo")]
    #[command(hide = true)]
    DemoReplicaSet(DemoReplicaSet),
}

/// What `run` and `fsck` have in common.
#[derive(Debug, Clone, Args)]
pub(crate) struct Job {
    /// How long to wait in all for an fsck in the way. 0 tries once.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration::parse)]
    pub(crate) wait: Duration,

    /// What `status` calls this lease [default: the command's name].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// What the lease is for; `status`, refusals and the history show it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// What the command gets when its lease is lost, or about to be.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Lost::Term)]
    pub(crate) on_lost: Lost,

    /// Whether to be told of leases that come and go, instead of only asking.
    ///
    /// It only makes waiting shorter. A MongoDB replica set tells by change streams, which cost its server a little for
    /// each write of the collection; a local store by directory events.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Watched::Auto)]
    pub(crate) watch: Watched,

    /// How long the lease is kept after a signal ended the command [default: one stale age on MongoDB, nothing on
    /// a local store].
    ///
    /// What the command had asked the server to do may still be running there.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) settle: Option<Duration>,

    #[cfg(feature = "service")]
    #[command(flatten)]
    pub(crate) listen: super::listen::ListenArgs,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) job: Job,
}

/// `fsck`.
#[derive(Debug, Args)]
pub(crate) struct FsckArgs {
    /// Your word that the owners of leases that look dead are dead: replaces a dead fsck lease, removes dead
    /// writers. One that lives after all is spared.
    #[arg(long)]
    pub(crate) force: bool,

    /// With --force: the word goes for leases of another program on the same collection too, which may live
    /// without refreshing.
    #[arg(long, requires = "force")]
    pub(crate) peer_is_dead: bool,

    /// How long the writers may take to leave.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pub(crate) drain_budget: Duration,

    /// The job changes nothing: does not raise the generation.
    #[arg(long)]
    pub(crate) no_bump: bool,

    #[command(flatten)]
    pub(crate) job: Job,
}

/// `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Looks again every second, until Ctrl-C.
    #[arg(long)]
    pub(crate) watch: bool,
}

/// `clear` and `prune`.
#[derive(Debug, Args)]
pub(crate) struct ClearArgs {
    /// Only says what looks dead. Needs no right to write.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Your word that leases of another program on the same collection, which may live without refreshing,
    /// are dead.
    #[arg(long)]
    pub(crate) peer_is_dead: bool,

    /// Only the leases with these ids.
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

/// The hidden command of the demo's processes.
#[derive(Debug, Args)]
pub(crate) struct DemoWork {
    /// Where the intervals go.
    pub(crate) file: PathBuf,
    /// The process's name in the timeline.
    pub(crate) name: String,
    /// How long to work.
    #[arg(value_parser = duration::parse)]
    pub(crate) length: Duration,
}

/// `--watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Watched {
    /// While it waits or drains.
    Auto,
    /// Also for what is shared by the writes of a process, however many there are in the store.
    Always,
    /// Only ask.
    Never,
}

impl From<Watched> for Watch {
    fn from(watched: Watched) -> Watch {
        match watched {
            Watched::Auto => Watch::Auto,
            Watched::Always => Watch::Always,
            Watched::Never => Watch::Never,
        }
    }
}

/// The hidden command of the example's replica set.
#[cfg(feature = "mongo")]
#[derive(Debug, Args)]
pub(crate) struct DemoReplicaSet {
    /// HOST:PORT of the server, as its clients name it.
    pub(crate) member: String,
    /// The name of the set.
    pub(crate) name: String,
}

/// `token`.
#[cfg(feature = "service")]
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Where the token goes. Nobody but this user may read the file.
    pub(crate) file: PathBuf,

    /// Prints the token too.
    #[arg(long)]
    pub(crate) show: bool,
}

/// `--on-lost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lost {
    /// TERM early enough to end by itself, then KILL in time for the deadline.
    Term,
    /// KILL in time for the deadline.
    Kill,
    /// Nothing: the loss is said, and the command goes on without a lease.
    Warn,
}

impl From<Lost> for OnLost {
    fn from(lost: Lost) -> OnLost {
        match lost {
            Lost::Term => OnLost::Term,
            Lost::Kill => OnLost::Kill,
            Lost::Warn => OnLost::Warn,
        }
    }
}

/// The command line of this process, or the exit code after what was printed instead.
pub(crate) fn parse() -> Result<Cli, i32> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    if !error.use_stderr() {
        // Help or version. A reader that has gone away is no failure.
        let _ = error.print();
        return Err(0);
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let shown = without_secrets(&error.render().to_string(), &words);
    Err(exit::report_plainly(&exit::Failure::Usage(shown), json))
}

/// The program's description, for completions and manual pages.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// What the parser says about a word may repeat it: a store URL in the wrong place would show its password.
fn without_secrets(text: &str, words: &[OsString]) -> String {
    let mut text = text.to_owned();
    for word in words.iter().filter_map(|word| word.to_str()) {
        let value = match word.split_once('=') {
            Some((option, value)) if option.starts_with('-') => value,
            _ => word,
        };
        if let Some((scheme, rest)) = value.split_once("://")
            && rest.contains('@')
        {
            text = text.replace(value, &format!("{scheme}://…"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_word_in_the_wrong_place_shows_no_password() {
        let words: Vec<OsString> =
            ["x", "mongodb://u:s3cret@h/db", "--stroe=mongodb://u:s3cret@h/db"].map(OsString::from).into();
        let text = "unexpected 'mongodb://u:s3cret@h/db' and '--stroe=mongodb://u:s3cret@h/db'";
        assert_eq!(without_secrets(text, &words), "unexpected 'mongodb://…' and '--stroe=mongodb://…'");
    }
}
