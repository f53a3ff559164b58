//! Who has the terminal: the wrapper's group, or its command's.
//!
//! The command runs in a group of its own, so the terminal counts it as a background job until it is handed over.
//! It is handed over only when the wrapper's own group has it, and taken back only when the command's processes
//! (or nobody) have it: a shell that put the wrapper in the background in between keeps its terminal.
//!
//! A wrapper whose group belongs to another pid namespace (`unshare --pid` in front of it) cannot name that group,
//! so it leaves the terminal alone.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::killpg;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// What to do with the modes (echo, line editing) when the terminal is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Modes {
    /// Put back those of the moment of the hand-over: the command had no chance to.
    Restore,
    /// Leave them: the command, or the shell above, takes care of them.
    Leave,
}

/// The controlling terminal, if there is one.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: Option<File>,
    own: Pid,
    /// The command is an interactive one: it may have the terminal whenever our group has it.
    wanted: bool,
    /// The group that was given the terminal, until it is taken back.
    given: Option<Pid>,
    modes: Option<Termios>,
}

impl Terminal {
    /// Looks for the controlling terminal. `/dev/tty` rather than stdin: that may be redirected while the command
    /// opens the terminal itself, as pagers and password prompts do.
    pub(crate) fn open() -> Terminal {
        let own = getpgrp();
        let tty = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY | libc::O_CLOEXEC)
            .open("/dev/tty")
            .ok()
            .filter(|_| own.as_raw() > 0);
        // With only one of them a terminal we are likely part of a pipeline, whose other members need it.
        let wanted = tty.is_some() && io::stdin().is_terminal() && io::stdout().is_terminal();
        Terminal { tty, own, wanted, given: None, modes: None }
    }

    /// The terminal, if the command is to take it before it starts. It does so itself: were it done from here
    /// only, the command might ask for input first and be stopped.
    pub(crate) fn for_start(&mut self) -> Option<BorrowedFd<'_>> {
        if !self.wanted || !self.in_foreground() {
            return None;
        }
        self.save_modes();
        self.tty.as_ref().map(AsFd::as_fd)
    }

    /// Notes that the new `group` took the terminal at its start.
    pub(crate) fn started(&mut self, group: Pid) {
        if self.foreground() == Some(group) {
            self.given = Some(group);
        }
    }

    /// The command could not be executed: its short-lived process may have taken the terminal all the same.
    pub(crate) fn failed(&mut self) {
        let abandoned = self.foreground().filter(|&now| killpg(now, None) == Err(Errno::ESRCH));
        if abandoned.is_some() {
            self.given = abandoned;
            self.take_back(Modes::Leave, |_| false);
        }
    }

    /// The command was stopped because it wanted the terminal.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// Whether the command's group was given the terminal and it was not taken back since.
    pub(crate) fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// Whether our own group has the terminal.
    pub(crate) fn in_foreground(&self) -> bool {
        self.foreground() == Some(self.own)
    }

    /// Gives the terminal to `group` if it wants it and it is ours to give. True if `group` has it now.
    pub(crate) fn give(&mut self, group: Pid) -> bool {
        if !self.wanted {
            return false;
        }
        let now = self.foreground();
        if now == Some(self.own) {
            self.save_modes();
            let Some(tty) = &self.tty else { return false };
            if tcsetpgrp(tty, group).is_err() {
                return false;
            }
        } else if now != Some(group) {
            return false;
        }
        self.given = Some(group);
        true
    }

    /// Takes the terminal back if it was given. `is_descendant` says whether a group is one that the command made
    /// (a shell's job).
    pub(crate) fn take_back(&mut self, modes: Modes, is_descendant: impl FnOnce(Pid) -> bool) {
        let (Some(tty), Some(given)) = (&self.tty, self.given.take()) else {
            return;
        };
        let Some(now) = self.foreground() else { return };
        let abandoned = || killpg(now, None) == Err(Errno::ESRCH);
        if now == self.own {
            // Somebody gave it back to us already.
        } else if now == given || abandoned() || is_descendant(now) {
            // We ignore TTOU, so this is allowed from the background. It can fail only if the terminal has
            // hung up, and then there is nothing to take.
            if tcsetpgrp(tty, self.own).is_err() {
                return;
            }
        } else {
            return;
        }
        if let (Modes::Restore, Some(saved)) = (modes, &self.modes) {
            // Not after draining: output that is held by Ctrl-S would keep us here for ever.
            let _ = tcsetattr(tty, SetArg::TCSANOW, saved);
        }
    }

    fn foreground(&self) -> Option<Pid> {
        // 0 stands for a group of another pid namespace.
        tcgetpgrp(self.tty.as_ref()?).ok().filter(|group| group.as_raw() > 0)
    }

    fn save_modes(&mut self) {
        if let (None, Some(tty)) = (&self.modes, &self.tty) {
            self.modes = tcgetattr(tty).ok();
        }
    }
}
