//! A pseudo-terminal with a session on it: keys go in, the screen is read, and nothing is waited for without a bound.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, tcgetpgrp};

/// How long a screen may take to show what is expected: far more than it needs on an idle machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that is the leader of a session on a terminal of its own.
pub(crate) struct Pty {
    keys: File,
    screen: Arc<Screen>,
    child: Child,
    /// What lies before has been expected already.
    seen: usize,
}

/// All that was printed so far.
#[derive(Default)]
struct Screen {
    text: Mutex<Vec<u8>>,
    grew: Condvar,
}

impl Pty {
    /// Starts `command` on a new terminal.
    #[expect(unsafe_code, reason = "making a session and its terminal happens between fork and exec")]
    pub(crate) fn spawn(mut command: Command) -> Pty {
        let pair = openpty(None, None).expect("a pty");
        let slave = |fd: &OwnedFd| fd.try_clone().expect("a duplicate");
        command.stdin(slave(&pair.slave)).stdout(slave(&pair.slave)).stderr(slave(&pair.slave));
        // SAFETY: two system calls, no allocation.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        // Not to be inherited by what other tests start, or the terminal would never hang up.
        let keys = File::from(pair.master);
        cloexec(&keys);
        let child = command.spawn().expect("a session");
        drop(command);
        let screen = Arc::new(Screen::default());
        let (mut from, to) = (keys.try_clone().expect("a duplicate"), Arc::clone(&screen));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The end shows as an error once the last process has closed the terminal.
            while let Ok(count) = from.read(&mut buffer) {
                if count == 0 {
                    break;
                }
                to.text.lock().unwrap().extend_from_slice(&buffer[..count]);
                to.grew.notify_all();
            }
        });
        Pty { keys, screen, child, seen: 0 }
    }

    /// Starts an interactive shell with job control, and waits for its prompt. `prepare` may set its variables.
    pub(crate) fn shell(prepare: impl FnOnce(&mut Command)) -> Pty {
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile", "--noediting", "-i"]);
        command.env("PS1", "ready$ ").env("TERM", "dumb").env_remove("HISTFILE").env_remove("PROMPT_COMMAND");
        prepare(&mut command);
        let mut pty = Pty::spawn(command);
        pty.expect("ready$ ");
        pty
    }

    /// Types.
    pub(crate) fn send(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Types a line.
    pub(crate) fn line(&mut self, line: &str) {
        self.send(line);
        self.send("\n");
    }

    /// Waits until the screen shows `text` after what was expected before. What is typed is echoed, so
    /// a line that was typed must not contain it.
    pub(crate) fn expect(&mut self, text: &str) {
        let end = Instant::now() + PATIENCE;
        let mut shown = self.screen.text.lock().unwrap();
        loop {
            let found = shown[self.seen..].windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found {
                self.seen += at + text.len();
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let all = String::from_utf8_lossy(&shown).into_owned();
                let new = String::from_utf8_lossy(&shown[self.seen..]).into_owned();
                panic!("the screen never showed {text:?}; it shows since then:\n{new}\nand altogether:\n{all}");
            }
            shown = self.screen.grew.wait_timeout(shown, left).unwrap().0;
        }
    }

    /// The group in the foreground.
    pub(crate) fn foreground(&self) -> Pid {
        tcgetpgrp(&self.keys).expect("a foreground group")
    }

    /// The leader of the session.
    pub(crate) fn leader(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Waits for the leader of the session to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child to wait for") {
                return status;
            }
            assert!(Instant::now() < end, "the session never ended");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Pty {
    /// Kills the whole session: what a failed test leaves behind would run on.
    fn drop(&mut self) {
        let session = self.leader().to_string();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
                continue;
            };
            // After the name: state, parent, group, session.
            let Some(fields) = stat.rsplit_once(") ").map(|(_, rest)| rest.splitn(5, ' ').collect::<Vec<_>>()) else {
                continue;
            };
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(pid), true) = (pid, fields.get(3) == Some(&session.as_str())) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(unsafe_code, reason = "a plain flag of a descriptor that we own")]
fn cloexec(file: &File) {
    // SAFETY: the descriptor is open and ours.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
}
