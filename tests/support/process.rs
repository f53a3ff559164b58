//! Child processes that never outlive the test process, however that ends.
//!
//! The kernel's parent-death signal does it, with one trap: it fires when the *thread* that made the
//! child ends, and a test's thread ends with the test. So every child that is shared is made by one
//! thread that lives as long as the process.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

type Order = (Command, mpsc::Sender<io::Result<Child>>);

fn keeper() -> mpsc::Sender<Order> {
    static KEEPER: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    KEEPER
        .get_or_init(|| {
            let (orders, inbox) = mpsc::channel::<Order>();
            std::thread::Builder::new()
                .name("child-keeper".into())
                .spawn(move || {
                    for (mut command, reply) in inbox {
                        let _ = reply.send(command.spawn());
                    }
                })
                .expect("start the thread that keeps the children");
            Mutex::new(orders)
        })
        .lock()
        .expect("no panic while the keeper's lock is held")
        .clone()
}

/// Starts `command` so that the kernel kills it when this process ends.
pub(crate) fn spawn_kept(mut command: Command) -> io::Result<Child> {
    die_with_parent(&mut command);
    let (reply, answer) = mpsc::channel();
    keeper().send((command, reply)).expect("the keeper lives as long as the process");
    answer.recv().expect("the keeper answers every order")
}

#[expect(unsafe_code, reason = "pre_exec is the only moment at which a child can ask for the signal")]
fn die_with_parent(command: &mut Command) {
    let parent = Pid::from_raw(std::process::id().cast_signed());
    // SAFETY: between fork and exec only two system calls are made; neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the request: then nobody would send the signal.
            if rustix::process::getppid() != parent {
                return Err(io::Error::from(io::ErrorKind::NotFound));
            }
            Ok(())
        });
    }
}

/// A server as a process: signalled by name, killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess(Child);

impl ServerProcess {
    pub(crate) fn start(command: Command) -> io::Result<Self> {
        spawn_kept(command).map(Self)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("wait for an own child")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().cast_signed()).expect("a child's pid is not 0");
        kill_process(pid, signal).expect("signal an own child that was not reaped");
    }

    /// SIGKILL, and the process is gone when this returns.
    pub(crate) fn kill(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::KILL);
            self.0.wait().expect("reap an own child");
        }
    }

    /// SIGTERM, and the process is gone when this returns.
    pub(crate) fn terminate(&mut self, bound: Duration) {
        if self.ended().is_some() {
            return;
        }
        self.signal(Signal::TERM);
        super::poll::eventually_blocking(bound, "the server to end after SIGTERM", || {
            self.ended().ok_or("still running")
        });
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Says how a process ended, for a message.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
