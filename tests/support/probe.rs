//! A process that a test tells what to do: the test's own binary once more, running the one test `probe::probe`, which
//! takes its role from its environment. It is told line by line, and answers line by line.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::poll::eventually_blocking;
use super::process::spawn_kept;

/// For what should happen soon, on a machine that is busy with other tests.
const BOUND: Duration = Duration::from_secs(60);
/// What an answer begins with: the test harness writes to the same stream.
const MARK: &str = "> ";

/// A running probe, killed when dropped.
pub(crate) struct Probe {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

/// The test's own binary. A test of another kind may start it by another command.
pub(crate) fn own_binary() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

impl Probe {
    /// Starts one by a command that the probe's own arguments are added to.
    pub(crate) fn by(mut command: Command) -> Probe {
        command.args(["--exact", "probe::probe", "--nocapture"]).stdin(Stdio::piped()).stdout(Stdio::piped());
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
        let orders = child.stdin.take().unwrap();
        Probe { child, orders, answers }
    }

    pub(crate) fn answer(&self) -> String {
        self.answer_within(BOUND)
    }

    pub(crate) fn answer_within(&self, bound: Duration) -> String {
        self.answers.recv_timeout(bound).expect("the probe answers in time")
    }

    /// Tells it to do something, and returns its answer.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    pub(crate) fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stopped, all its threads, when this returns.
    pub(crate) fn stop(&self) {
        self.send(Signal::STOP);
        eventually_blocking(BOUND, "the probe to stop", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
            let states = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
            let running: Vec<_> = states.filter(|stat| !stat.contains(") T ")).collect();
            if running.is_empty() { Ok(()) } else { Err(running) }
        });
    }

    /// After [`Probe::stop`].
    pub(crate) fn go_on(&self) {
        self.send(Signal::CONT);
    }

    fn send(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a child's pid is not 0");
        kill_process(pid, signal).unwrap();
    }

    /// Killed, and gone when this returns.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The probe's answer.
pub(crate) fn say(answer: impl Display) {
    // Not by a macro, whose output the harness keeps for itself; on a line of its own, and in one write.
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{MARK}{answer}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}
