//! The other processes: this test binary once more, running the one test below. Each opens the store and is told what to
//! do line by line.

use std::future::IntoFuture;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

use futures::FutureExt;
use lockhouse::owner::{Role, Store};
use lockhouse::records::Operation;
use lockhouse::spool::NewBatch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::process::spawn_kept;
use crate::{PATIENCE, row, schema, stream};

const STORE: &str = "LOCKHOUSE_STORE_PROBE";
const CRASH: &str = "LOCKHOUSE_CRASH_AT";
/// What an answer begins with: the test harness writes to the same stream.
const MARK: &str = "> ";

/// A process that has the store open. Killed when dropped.
pub(crate) struct Probe {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Probe {
    /// Starts one that has the store open, and says in which role.
    pub(crate) fn start(store: &Path) -> (Probe, String) {
        let probe = Probe::launch(store, None);
        let role = probe.answer();
        (probe, role)
    }

    /// Starts one that dies at a named point.
    pub(crate) fn launch(store: &Path, crash_at: Option<&str>) -> Probe {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "probe::probe", "--nocapture"]).env(STORE, store);
        command.env_remove(CRASH);
        if let Some(point) = crash_at {
            command.env(CRASH, point);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn_kept(command).unwrap();
        let (sender, answers) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(answer) = line.strip_prefix(MARK) {
                    let _ = sender.send(answer.to_owned());
                }
            }
        });
        let orders = child.stdin.take();
        Probe { child, orders, answers }
    }

    pub(crate) fn answer(&self) -> String {
        self.answers.recv_timeout(PATIENCE).expect("the probe answers in time")
    }

    pub(crate) fn tell(&mut self, order: &str) {
        // One that has died takes no orders.
        let _ = writeln!(self.orders.as_mut().unwrap(), "{order}");
    }

    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    pub(crate) fn kill(&mut self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGKILL).unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it is dead.
    pub(crate) fn died(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(answer: &str) {
    // One write: the harness has the same stream.
    std::io::stdout().write_all(format!("\n{MARK}{answer}\n").as_bytes()).unwrap();
    std::io::stdout().flush().unwrap();
}

fn role(store: &Store) -> &'static str {
    match store.role() {
        Role::Owner => "owner",
        Role::Reader => "reader",
    }
}

/// Not a test of its own: what a [`Probe`] runs. `append BY FROM TO` writes rows one by one and answers `done`;
/// `hand BY FROM TO` hands them over without waiting; `role`; `close`; `leave`, which ends at once.
#[tokio::test]
async fn probe() {
    let Some(path) = std::env::var_os(STORE) else { return };
    let store = match Store::open(Path::new(&path)).build("probe").await {
        Ok(store) => store,
        Err(error) => return say(&format!("{:?}: {error}", error.kind())),
    };
    say(role(&store));
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = order.split(' ').collect();
        match words[..] {
            ["append", by, from, to] => say(&append(&store, by, from, to).await),
            ["hand", by, from, to] => say(&hand(&store, by, from, to).await),
            ["seal", name] => {
                let sealed = store.apply(&stream(name), Operation::Seal).await;
                say(&sealed.map_or_else(|error| error.to_string(), |_| "done".to_owned()));
            }
            ["role"] => say(role(&store)),
            ["fork"] => say(fork(&store, Path::new(&path))),
            ["close"] => {
                store.close().await.unwrap();
                return say("closed");
            }
            ["leave"] => std::process::exit(0),
            _ => say("what?"),
        }
    }
}

fn range(from: &str, to: &str) -> std::ops::RangeInclusive<u64> {
    from.parse().unwrap()..=to.parse().unwrap()
}

async fn append(store: &Store, by: &str, from: &str, to: &str) -> String {
    for n in range(from, to) {
        match store.append(&stream("s"), &schema(), vec![row(by, n)]).await {
            Ok(applied) => assert_eq!(applied.stored, 1),
            Err(error) => return format!("{:?} at {n}: {error}", error.kind()),
        }
    }
    "done".to_owned()
}

async fn hand(store: &Store, by: &str, from: &str, to: &str) -> String {
    for n in range(from, to) {
        let rows = vec![row(by, n)];
        let operation = Operation::Append { kind: schema().kind, rows, ttl: None, seal: false };
        let entry = lockhouse::records::Entry { stream: stream("s"), generation: None, operation };
        if let Err(error) = store.hand_over(NewBatch::new(vec![schema()], vec![entry])).await {
            return format!("{:?} at {n}: {error}", error.kind());
        }
    }
    "done".to_owned()
}

/// Whether a forked child is told that it has not opened the store.
#[expect(unsafe_code, reason = "what is tested is a fork")]
fn fork(store: &Store, path: &Path) -> &'static str {
    // SAFETY: the child polls a few futures, which must not wait, and ends without running anything else.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let refused = |error: Option<lockhouse::ErrorKind>| error == Some(lockhouse::ErrorKind::LeaseLost);
            let kind = |error: lockhouse::Error| error.kind();
            let read = store.kinds().now_or_never().and_then(|read| read.err().map(kind));
            let batch = NewBatch::new(Vec::new(), Vec::new());
            let written = store.write(batch).now_or_never().and_then(|written| written.err().map(kind));
            let opened = Store::open(path).into_future().now_or_never();
            let opened = opened.and_then(|opened| opened.err().map(kind));
            let closed = store.clone().close().now_or_never().is_some();
            let good = refused(read) && refused(written) && refused(opened) && closed;
            // SAFETY: ends the process without running the harness's exit handlers.
            unsafe { nix::libc::_exit(i32::from(!good)) }
        }
        nix::unistd::ForkResult::Parent { child } => match nix::sys::wait::waitpid(child, None).unwrap() {
            nix::sys::wait::WaitStatus::Exited(_, 0) => "child good",
            _ => "child bad",
        },
    }
}
