//! Starting the binary, and watching it.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::poll::eventually_blocking;

/// How long anything may take that ought to happen soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A command that says when it runs, and ends when its stdin does.
pub(crate) const UNTIL_EOF: [&str; 3] = ["sh", "-c", "echo started; cat >/dev/null"];
/// A command that says when it runs, and goes on until it is killed.
pub(crate) const FOR_LONG: [&str; 3] = ["sh", "-c", "echo started; exec sleep 300"];

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

    /// What it has printed so far.
    pub(crate) fn out(&self) -> String {
        self.out.text()
    }

    /// What it has said so far.
    pub(crate) fn err(&self) -> String {
        self.err.text()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// SIGKILL, and reaped.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Writes to its stdin. One that has ended reads nothing.
    pub(crate) fn feed(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("its stdin has not ended");
        let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush());
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

    /// Checks that stdout says something.
    #[track_caller]
    pub(crate) fn out_says(self, text: &str) -> Finished {
        assert!(self.out.contains(text), "{text:?} is not in {self:#?}");
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
