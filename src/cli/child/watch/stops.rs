//! Stopping and continuing: a command, the wrapper above it and the terminal go together, as a shell expects.

use std::io;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, killpg};

use super::super::super::signals::{Signals, Stop};
use super::super::super::terminal::Modes;
use super::super::Note;
use super::super::alarm::now;
use super::super::processes::Processes;
use super::{Group, Watch};

impl Watch<'_> {
    pub(super) fn on_stop(&mut self, signal: i32, signals: &Signals) -> io::Result<()> {
        if let Some(loss) = &mut self.loss {
            // It cannot act on the TERM that it was sent.
            self.group = Group::Stopped;
            loss.next_kill = loss.next_kill.min(now());
            return Ok(());
        }
        match signal {
            libc::SIGTTIN | libc::SIGTTOU => {
                self.terminal.want();
                self.group = Group::Stopped;
                if self.terminal.give(self.leader) {
                    self.resume();
                    return Ok(());
                }
                self.suspend(signal, signals)
            }
            // Somebody stopped the command on purpose and will continue it the same way. With the terminal in
            // its hands, though, nobody could: this is how a shell suspends itself.
            libc::SIGSTOP if !self.terminal.is_given() => {
                self.group = Group::Stopped;
                Ok(())
            }
            _ => self.suspend(signal, signals),
        }
    }

    /// The command is stopped: stops our own group too, so that the shell above sees a stopped job.
    pub(super) fn suspend(&mut self, signal: i32, signals: &Signals) -> io::Result<()> {
        self.group = Group::Stopped;
        self.take_terminal(Modes::Leave);
        match signals.stop_group()? {
            Stop::Continued => {}
            Stop::Refused if matches!(signal, libc::SIGTTIN | libc::SIGTTOU) => {
                // Continued now it would ask for the terminal again, and again.
                self.group = Group::WaitsForTerminal;
                (self.log)(Note::WantsTerminal);
            }
            Stop::Refused => self.resume(),
        }
        Ok(())
    }

    /// Continues the command, with the terminal if it may have it.
    pub(super) fn resume(&mut self) {
        self.terminal.give(self.leader);
        self.group = Group::Running;
        self.forward(Signal::SIGCONT);
    }

    pub(super) fn forward(&mut self, signal: Signal) {
        match killpg(self.leader, signal) {
            // ESRCH: only dead members, or rather none that had to hear it.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => (self.log)(Note::NotForwarded { signal, error: error.desc().to_owned() }),
        }
    }

    pub(super) fn take_terminal(&mut self, modes: Modes) {
        let (leader, earlier) = (self.leader, &self.earlier);
        self.terminal.take_back(modes, |group| {
            Processes::read().is_ok_and(|processes| processes.is_descendant_group(group, leader, earlier))
        });
    }
}
