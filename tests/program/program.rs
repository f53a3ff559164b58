//! Starting the binary, and watching it.

use std::ffi::OsStr;
use std::future::Future;
use std::io::Read;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::support::database::{TestDatabase, database};
use super::support::failpoint::FailPoint;
use super::support::poll::eventually_blocking;
use super::support::proxy::Proxy;

/// How long anything may take that ought to happen soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The stale age of every lease here: 500 ms × 4.
pub(crate) const STALE: Duration = Duration::from_secs(2);

/// A command that says when it runs, and ends when its stdin does.
pub(crate) const UNTIL_EOF: [&str; 3] = ["sh", "-c", "echo started; cat >/dev/null"];
/// A command that says when it runs, and goes on until it is killed.
pub(crate) const FOR_LONG: [&str; 3] = ["sh", "-c", "echo started; exec sleep 300"];

/// A store of a test's own.
pub(crate) struct Store {
    database: TestDatabase,
    pub(crate) url: String,
}

impl Store {
    /// With a layout, through a proxy.
    pub(crate) fn through_proxy() -> (Store, Proxy) {
        let mut store = Store::new();
        let proxy = store.database.proxy();
        store.url = store.database.uri_through(&proxy);
        (store, proxy)
    }

    /// With a layout.
    pub(crate) fn new() -> Store {
        let store = Store::bare();
        store.run(["init"]).assert(0);
        store
    }

    /// Without one.
    pub(crate) fn bare() -> Store {
        let database = database();
        let url = database.uri();
        Store { database, url }
    }

    /// The binary with these arguments, this store and short timing.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = program(args);
        self.set(&mut command);
        command
    }

    /// This store and short timing for a command.
    pub(crate) fn set(&self, command: &mut Command) {
        command
            .env("LOCKHOUSE_STORE", &self.url)
            .env("LOCKHOUSE_REFRESH_INTERVAL", "500ms")
            .env("LOCKHOUSE_STALE_MULTIPLIER", "4");
    }

    /// Runs the binary to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Finished {
        Running::start(self.command(args)).finish()
    }

    /// Starts the binary.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running::start(self.command(args))
    }

    /// Starts a wrapper, and waits until its command runs. `command` is one of those above.
    pub(crate) fn wrapped(&self, args: &[&str], command: [&str; 3]) -> Running {
        let words = args.iter().chain(&["--"]).chain(&command);
        let mut running = self.start(words);
        running.until_out("started");
        running
    }

    /// `status --json`.
    pub(crate) fn status(&self) -> Value {
        self.run(["status", "--json"]).json()
    }

    /// Waits until a status shows what is looked for.
    pub(crate) fn until(&self, what: &str, shows: impl Fn(&Value) -> bool) -> Value {
        eventually_blocking(PATIENCE, what, || {
            let status = self.status();
            if shows(&status) { Ok(status) } else { Err(status) }
        })
    }

    /// Looks and writes behind the product's back.
    pub(crate) fn behind<T, F: Future<Output = T>>(&self, work: impl FnOnce(Collection<Document>) -> F) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { work(self.database.raw().await.collection("lockhouse")).await })
    }

    /// From now on no document can be deleted, until the guard is dropped.
    pub(crate) fn fail_deletes(&self) -> FailPoint {
        let fault = self.database.fail_command().commands(&["delete", "findAndModify"]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // No primary: worth another try, for ever.
        runtime.block_on(fault.error_code(10107).on())
    }

    /// Everything that is stored, in a fixed order.
    pub(crate) fn content(&self) -> Vec<Document> {
        self.behind(|leases| async move {
            use futures::TryStreamExt;
            let cursor = leases.find(doc! {}).sort(doc! { "_id": 1 }).await;
            cursor.unwrap().try_collect().await.unwrap()
        })
    }

    /// A writer that died: its lease stands and is not refreshed. Returns its id.
    pub(crate) fn dead_writer(&self, label: &str) -> String {
        let mut writer = self.wrapped(&["run", "--label", label], FOR_LONG);
        let id = self.writer_of(label);
        writer.kill();
        id
    }

    /// The id of the writer with a label.
    pub(crate) fn writer_of(&self, label: &str) -> String {
        let status = self.status();
        let writers = status["writers"].as_array().unwrap();
        let own = writers.iter().find(|writer| writer["holder"]["label"] == label);
        own.unwrap()["id"].as_str().unwrap().to_owned()
    }
}

/// The binary with nothing of lockhouse in its environment.
pub(crate) fn program<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockhouse"));
    command.args(args);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LOCKHOUSE_") {
            command.env_remove(name);
        }
    }
    command
}

/// A process whose output is collected while it runs. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    out: Collected,
    err: Collected,
    readers: [JoinHandle<()>; 2],
}

#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<u8>>>);

impl Collected {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    fn collect(from: impl Read + Send + 'static) -> (Collected, JoinHandle<()>) {
        let (mut from, collected) = (from, Collected::default());
        let to = collected.clone();
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                to.0.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        (collected, reader)
    }
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let (out, reads_out) = Collected::collect(child.stdout.take().unwrap());
        let (err, reads_err) = Collected::collect(child.stderr.take().unwrap());
        Running { child, stdin, out, err, readers: [reads_out, reads_err] }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// The pid of the wrapped command.
    pub(crate) fn command_pid(&self) -> Pid {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(children).unwrap();
        Pid::from_raw(children.split_whitespace().next().unwrap().parse().unwrap())
    }

    /// Waits until stdout has a text.
    pub(crate) fn until_out(&mut self, text: &str) {
        self.until(text, |running| running.out.text());
    }

    /// Waits until stderr has a text.
    pub(crate) fn until_err(&mut self, text: &str) {
        self.until(text, |running| running.err.text());
    }

    fn until(&mut self, text: &str, stream: impl Fn(&Running) -> String) {
        eventually_blocking(PATIENCE, text, || {
            if stream(self).contains(text) {
                return Ok(());
            }
            let ended = self.child.try_wait().unwrap();
            Err((ended, self.out.text(), self.err.text()))
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// SIGKILL, and reaped.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends its stdin.
    pub(crate) fn end(&mut self) {
        drop(self.stdin.take());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends its stdin and waits for its end.
    pub(crate) fn finish(mut self) -> Finished {
        self.end();
        let begin = Instant::now();
        let status = eventually_blocking(2 * PATIENCE, "the program to end", || {
            self.child.try_wait().unwrap().ok_or_else(|| (self.out.text(), self.err.text()))
        });
        let took = begin.elapsed();
        eventually_blocking(PATIENCE, "the end of its output", || {
            if self.readers.iter().all(JoinHandle::is_finished) { Ok(()) } else { Err("somebody holds it open") }
        });
        Finished {
            code: status.code().expect("the program is not ended by a signal"),
            out: self.out.text(),
            err: self.err.text(),
            took,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Finished {
    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn assert(self, code: i32) -> Finished {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Checks that stderr says something.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Finished {
        assert!(self.err.contains(text), "{text:?} is not in {self:#?}");
        self
    }

    /// Stdout as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// The last line of stderr as JSON.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let line = self.err.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// All lines of stderr as JSON.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        self.err
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }
}

/// Whether a process lives. A dead one that nobody has reaped does not.
pub(crate) fn lives(pid: Pid) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    !state.starts_with(['Z', 'X'])
}
