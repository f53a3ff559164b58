//! The other processes: this test binary once more, running the one test below. Each opens the store and is told what to
//! do line by line.

use std::future::IntoFuture;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use futures::FutureExt;
use lockhouse::ErrorKind;
use lockhouse::owner::{BatchResult, Role, Store};
use lockhouse::records::{BatchOutcome, Entry, Operation, Outcome};
use lockhouse::spool::NewBatch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::poll::eventually_blocking;
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
        self.answer_within(PATIENCE)
    }

    pub(crate) fn answer_within(&self, patience: Duration) -> String {
        self.answers.recv_timeout(patience).expect("the probe answers in time")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said and nobody has heard.
    pub(crate) fn unheard(&self) -> Vec<String> {
        self.answers.try_iter().collect()
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
        eventually_blocking(PATIENCE, "the probe to die", || match self.child.try_wait().unwrap() {
            Some(status) => Ok(status),
            None => Err(self.answers.try_iter().collect::<Vec<_>>()),
        })
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
    let (sender, orders) = channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    for order in orders.iter() {
        let words: Vec<&str> = order.split(' ').collect();
        match words[..] {
            ["append", by, from, to] => say(&append(&store, by, from, to).await),
            ["hand", by, from, to] => say(&hand(&store, by, from, to).await),
            ["seal", name] => {
                let sealed = store.apply(&stream(name), Operation::Seal).await;
                say(&sealed.map_or_else(|error| error.to_string(), |_| "done".to_owned()));
            }
            ["role"] => say(role(&store)),
            ["count"] => say(&count(&store).await),
            ["write", by] => say(&write(&store, by, &orders).await),
            ["three", by, from] => say(&three(&store, by, from).await),
            ["fill"] => say(fill(Path::new(&path))),
            ["empty"] => {
                std::fs::remove_file(filler(Path::new(&path))).unwrap();
                say("empty");
            }
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
        if let Err(error) = store.hand_over(NewBatch::new(vec![schema()], vec![entry(by, n)])).await {
            return format!("{:?} at {n}: {error}", error.kind());
        }
    }
    "done".to_owned()
}

async fn count(store: &Store) -> String {
    match store.read(|source| source.meta(&stream("s"))).await {
        Ok(meta) => meta.map_or(0, |meta| meta.rows).to_string(),
        Err(error) => error.to_string(),
    }
}

/// Writes rows one by one, some of them without waiting, and says the number of each that it need not write again; until
/// a line comes.
async fn write(store: &Store, by: &str, orders: &Receiver<String>) -> String {
    let mut n = 0;
    while orders.try_recv().is_err() {
        n += 1;
        let batch = NewBatch::new(vec![schema()], vec![entry(by, n)]);
        let id = batch.id.clone();
        let written = if n % 5 == 0 {
            store.hand_over(batch).await.map(drop)
        } else {
            store.write(batch).await.map(|outcomes| assert_eq!(stored(&outcomes), 1))
        };
        match written {
            Ok(()) => {}
            // It is, or it never was: as this says.
            Err(error) if error.kind() == ErrorKind::Pending => match store.await_batch(&id).await {
                Ok(BatchResult::Known(BatchOutcome::Applied { .. })) => {}
                other => return format!("{by} {n}: {error}; then {other:?}"),
            },
            Err(error) => return format!("{by} {n}: {:?}: {error}", error.kind()),
        }
        say(&n.to_string());
    }
    format!("wrote {n}")
}

fn entry(by: &str, n: u64) -> Entry {
    let operation = Operation::Append { kind: schema().kind, rows: vec![row(by, n)], ttl: None, seal: false };
    Entry { stream: stream("s"), generation: None, operation }
}

fn stored(outcomes: &[Outcome]) -> u64 {
    outcomes.iter().map(|outcome| if let Outcome::Applied(applied) = outcome { applied.stored } else { 0 }).sum()
}

/// One batch of three entries, each of them large.
async fn three(store: &Store, by: &str, from: &str) -> String {
    let from: u64 = from.parse().unwrap();
    let large = |n: u64| {
        let more = "x".repeat(10_000);
        let rows = vec![schema().row(format!(r#"{{"by": "{by}", "n": {n}, "more": "{more}"}}"#).as_bytes()).unwrap()];
        let operation = Operation::Append { kind: schema().kind, rows, ttl: None, seal: false };
        Entry { stream: stream("s"), generation: None, operation }
    };
    let batch = NewBatch::new(vec![schema()], (from..from + 3).map(large).collect());
    match store.write(batch).await {
        Ok(outcomes) => format!("stored {}", stored(&outcomes)),
        Err(error) => format!("{:?}: {error}", error.kind()),
    }
}

fn filler(store: &Path) -> PathBuf {
    store.with_file_name("filler")
}

/// Leaves no room beside the store.
fn fill(store: &Path) -> &'static str {
    let mut filler = std::fs::File::create(filler(store)).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    "full"
}

/// What a probe said.
pub(crate) fn said(output: &std::process::Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::to_owned).collect()
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
