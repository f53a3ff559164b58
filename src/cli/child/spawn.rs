//! Starting the command: without a shell, in a group of its own, with nothing of our signal handling left.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};

use super::super::terminal::Terminal;
use super::Spec;

/// What came of the attempt.
#[derive(Debug)]
pub(super) enum Spawned {
    Running(Pid),
    NotFound(io::Error),
    NotExecutable(io::Error),
}

/// Starts the command. To be called from the main thread: the death signal is tied to the thread that forks, and
/// any other may end before the program does.
///
/// Returns once the command has been executed (or could not be): the group exists by then, so there is no moment
/// when a signal to the group could miss it, and setting it a second time from here would only be refused.
///
/// The death signal does not survive the execution of a set-uid program; such a command outlives a killed
/// wrapper.
pub(super) fn spawn(spec: &Spec, ignored: &[Signal], terminal: &mut Terminal) -> io::Result<Spawned> {
    let mut command = Command::new(&spec.command);
    command.args(&spec.args).envs(spec.env.iter().map(|(name, value)| (name, value))).process_group(0);
    let tty = terminal.for_start().map(|tty| tty.as_raw_fd());
    prepare(&mut command, ignored, tty, spec.inherit_fds.clone());
    match command.spawn() {
        Ok(child) => {
            // Dropping the handle neither waits nor kills: the reaper owns the process from here.
            let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
            terminal.started(pid);
            Ok(Spawned::Running(pid))
        }
        Err(error) => {
            terminal.failed();
            match error.raw_os_error() {
                Some(libc::ENOENT) => Ok(Spawned::NotFound(error)),
                // Ours to solve, not the command's.
                Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => Err(error),
                _ => Ok(Spawned::NotExecutable(error)),
            }
        }
    }
}

/// What happens in the child between fork and exec.
#[expect(unsafe_code, reason = "code between fork and exec is unsafe to register")]
fn prepare(command: &mut Command, ignored: &[Signal], tty: Option<RawFd>, inherit: Vec<RawFd>) {
    let ignored: Vec<libc::c_int> = ignored.iter().map(|&signal| signal as libc::c_int).collect();
    let parent = getpid().as_raw();
    // SAFETY: only async-signal-safe calls, no allocation and no lock between fork and exec: the vectors were
    // filled before.
    unsafe {
        command.pre_exec(move || {
            if let Some(tty) = tty {
                // Still with TTOU ignored. If it fails, the command gets the terminal when it asks for it.
                libc::tcsetpgrp(tty, libc::getpid());
            }
            for signal in 1..=libc::SIGRTMAX() {
                if !ignored.contains(&signal) {
                    // KILL, STOP and the C library's own two are refused, which is as well.
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            for &fd in &inherit {
                if libc::fcntl(fd, libc::F_SETFD, 0) == -1 {
                    return Err(io::Error::last_os_error());
                }
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
            if libc::getppid() != parent {
                // It died before the line above: the signal will never come.
                libc::_exit(libc::EXIT_FAILURE);
            }
            Ok(())
        });
    }
}
