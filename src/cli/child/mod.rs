//! Running a command under a lease.
//!
//! What is not promised: a command that leaves its process group (`setsid`, a shell's background job) is not waited
//! for when the rest has ended normally; it is only found and killed when the lease is lost. A command whose wrapper is
//! stopped alone (`kill -STOP`) runs on past the deadline, until the wrapper runs again. A killed
//! wrapper takes the leader with it, not the leader's own children. What a command asked a server to do goes on
//! there.
//!
//! # How it works
//!
//! Everything happens on the main thread, in one loop over four sources: signals, one alarm, the
//! lease's loss, and a revalidation under way. Each turn of the loop starts with a look at the deadline, so that
//! after any pause, whatever woke us up, nothing else is done before a passed deadline has been acted upon. The
//! deadline is read, not announced: the loop needs no other thread to be alive.
//!
//! - [`spawn`]: between fork and exec.
//! - [`reaper`]: the only waiting for children.
//! - [`processes`] reads `/proc`.
//! - [`leads`], [`alarm`]: when to act before a deadline, and on which clock.
//! - [`watch`]: the decisions.

mod alarm;
mod leads;
mod note;
mod processes;
mod reaper;
mod spawn;
mod watch;

use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use futures::future::{LocalBoxFuture, OptionFuture};

use super::signals::Signals;
use super::terminal::Terminal;
use alarm::Alarm;
use processes::Processes;
use spawn::Spawned;
use watch::Watch;

pub(crate) use note::Note;
pub(crate) use processes::Process;

/// The exit code of a run whose lease was lost.
const LEASE_LOST: i32 = 80;
/// The exit code of a command that was not found.
const NOT_FOUND: i32 = 127;
/// The exit code of a command that cannot be executed.
const NOT_EXECUTABLE: i32 = 126;
/// Added to the number of the signal that ended a command.
const BY_SIGNAL: i32 = 128;

/// What to run, and how.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub(crate) command: OsString,
    pub(crate) args: Vec<OsString>,
    /// Set in addition to the inherited environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Descriptors that the command inherits under the same numbers. They have to stay open until [`run`] returns.
    pub(crate) inherit_fds: Vec<RawFd>,
    pub(crate) on_lost: OnLost,
}

/// What a command gets when its lease is lost, or is about to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    /// TERM early enough to end by itself, then KILL in time for the deadline.
    Term,
    /// KILL in time for the deadline, or at once when the lease is lost before it.
    Kill,
    /// Nothing: the loss is said, and the command goes on.
    Warn,
}

/// The lease, as a running command needs to see it. All of it may be asked at any time, and none may block.
pub(crate) trait Hold {
    /// The time left until the deadline, as of the last refresh: zero when it has passed, `None` if there is no
    /// deadline. Must not depend on another thread's progress other than for refreshes.
    fn remaining(&self) -> Option<Duration>;
    /// Whether the lease is valid now, or why not.
    fn check(&self) -> Result<(), String>;
    /// Resolves when the lease is lost, with the reason.
    fn lost(&self) -> LocalBoxFuture<'_, String>;
    /// Makes sure, after a pause, that the lease still stands: asks the store where there is one to ask.
    fn revalidate(&self) -> LocalBoxFuture<'_, Result<(), String>>;
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    /// By itself, with this code.
    Exited(i32),
    /// By the signal of this number.
    Signaled(i32),
}

/// How a run ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The command ended by itself, with this code.
    Exited(i32),
    /// The signal of this number ended the command.
    Signaled(i32),
    /// The command was ended, or not even started, because the lease was lost.
    Lost {
        /// Why.
        why: String,
        /// How the command ended, if it was started.
        child: Option<ChildEnd>,
    },
    /// There is no such command.
    NotFound(io::Error),
    /// There is, but it cannot be executed.
    NotExecutable(io::Error),
}

impl End {
    /// The exit code of the program.
    pub(crate) fn exit_code(&self) -> i32 {
        match self {
            End::Exited(code) => *code,
            End::Signaled(signal) => BY_SIGNAL + signal,
            End::Lost { .. } => LEASE_LOST,
            End::NotFound(_) => NOT_FOUND,
            End::NotExecutable(_) => NOT_EXECUTABLE,
        }
    }
}

/// Runs a command under a lease until it and every other process of its group have ended.
///
/// To be awaited on the main thread, in a runtime with I/O enabled and without another reaper of
/// children. The lease may be released when it returns, whatever it returns. `log` is told what a user would want
/// to know meanwhile; it must not block, because nobody watches the deadline while it runs.
///
/// Dropping the future leaves the command running, unwatched, until the program ends.
///
/// # Errors
///
/// When the system refuses what is needed to watch a command: no process can be made, `/proc` is missing. If that
/// happens after the start, the command is killed first.
pub(crate) async fn run(
    spec: Spec,
    signals: &mut Signals,
    hold: &dyn Hold,
    log: &mut dyn FnMut(Note),
) -> io::Result<End> {
    Processes::usable()?;
    let earlier = Processes::read()?.earlier();
    // What the command leaves behind becomes ours, so that it can be found.
    nix::sys::prctl::set_child_subreaper(true)?;
    let alarm = Alarm::new()?;
    let mut terminal = Terminal::open();
    if let Err(why) = hold.check() {
        return Ok(End::Lost { why, child: None });
    }
    let leader = match spawn::spawn(&spec, signals.ignored(), &mut terminal)? {
        Spawned::Running(leader) => leader,
        Spawned::NotFound(error) => return Ok(End::NotFound(error)),
        Spawned::NotExecutable(error) => return Ok(End::NotExecutable(error)),
    };
    let mut watch = Watch::new(leader, spec.on_lost, hold, earlier, terminal, log);
    match follow(&mut watch, signals, hold, &alarm).await {
        Ok(()) => watch.finish(),
        Err(error) => {
            watch.abandon();
            Err(error)
        }
    }
}

/// The loop over everything that can happen.
async fn follow(watch: &mut Watch<'_>, signals: &mut Signals, hold: &dyn Hold, alarm: &Alarm) -> io::Result<()> {
    let mut loss = OptionFuture::from(Some(hold.lost()));
    let mut revalidation: OptionFuture<LocalBoxFuture<'_, Result<(), String>>> = None.into();
    let mut revalidating = false;
    watch.collect(signals)?;
    loop {
        if watch.advance(revalidating)? {
            return Ok(());
        }
        if watch.overslept() && !revalidating {
            revalidation = Some(hold.revalidate()).into();
            revalidating = true;
        }
        alarm.set(watch.wake_at())?;
        tokio::select! {
            biased;
            signal = signals.next() => {
                if watch.on_signal(signal?, signals)? {
                    // A second one starts afresh: what was asked before another pause says nothing about it.
                    revalidation = Some(hold.revalidate()).into();
                    revalidating = true;
                }
            }
            rang = alarm.rang() => rang?,
            Some(result) = &mut revalidation, if revalidating => {
                revalidation = None.into();
                revalidating = false;
                watch.on_revalidated(result);
            }
            Some(why) = &mut loss => {
                loss = None.into();
                watch.on_lost(why);
            }
        }
    }
}
