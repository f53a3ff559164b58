//! The decisions about a running command: what to pass on, when to stop (`stops`), when to end it (`ending`), when
//! it is over.

mod ending;
mod stops;

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::super::signals::Signals;
use super::super::terminal::{Modes, Terminal};
use super::alarm::{Moment, now};
use super::leads::{GRACE, Leads};
use super::processes::{Earlier, Process, Processes};
use super::reaper::{Reaper, Turn};
use super::{ChildEnd, End, Hold, Note, OnLost};
use ending::Loss;

/// A look at what only looking shows: a group whose last members are not our children, a terminal that
/// became free.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How long the rest of a group may take to end after its leader before the user is told what is waited for.
const LINGERING: Duration = Duration::from_secs(1);
/// An alarm this late means that we, or the whole machine, were asleep.
const PAUSE: Duration = Duration::from_millis(500);

/// What is known about the leader's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Running,
    /// To be continued by whoever continues us, after a revalidation.
    Stopped,
    /// Stopped for want of the terminal, and nobody above us can be told: continued when the terminal is free.
    WaitsForTerminal,
}

/// One running command.
pub(super) struct Watch<'a> {
    leader: Pid,
    reaper: Reaper,
    group: Group,
    terminal: Terminal,
    earlier: Earlier,
    hold: &'a dyn Hold,
    on_lost: OnLost,
    log: &'a mut dyn FnMut(Note),
    loss: Option<Loss>,
    warned: bool,
    /// The longest time that was ever left: how long a refresh makes the lease valid.
    window: Duration,
    /// The latest deadline seen. Kept, as a lost lease may have none left to tell.
    deadline: Option<Moment>,
    wake: Option<Moment>,
    overslept: bool,
    /// The revalidation under way was asked for by a CONT: the command is continued after it.
    continuing: bool,
    /// When the leader was seen to have ended with others left, and whether they have been named.
    lingering: Option<(Moment, bool)>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        leader: Pid,
        on_lost: OnLost,
        hold: &'a dyn Hold,
        earlier: Earlier,
        terminal: Terminal,
        log: &'a mut dyn FnMut(Note),
    ) -> Watch<'a> {
        Watch {
            leader,
            reaper: Reaper::new(leader),
            group: Group::Running,
            terminal,
            earlier,
            hold,
            on_lost,
            log,
            loss: None,
            warned: false,
            window: Duration::ZERO,
            deadline: None,
            wake: None,
            overslept: false,
            continuing: false,
            lingering: None,
        }
    }

    /// When [`advance`](Self::advance) wants to be called again at the latest.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        self.wake
    }

    /// Whether the last turn came so late that the lease should be revalidated, not judged by its age.
    pub(super) fn overslept(&self) -> bool {
        self.overslept
    }

    /// Does what is due, and says whether everything is over. `revalidating`: the store is being asked whether the lease
    /// stands, so a near deadline is no reason to end the command yet.
    pub(super) fn advance(&mut self, revalidating: bool) -> io::Result<bool> {
        let now = now();
        self.overslept = self.wake.is_some_and(|planned| now > planned + PAUSE) && self.loss.is_none();
        self.wake = None;
        self.judge_deadline(now, revalidating || self.overslept);
        if self.loss.is_some() {
            return self.end(now);
        }
        if self.group == Group::WaitsForTerminal {
            if self.terminal.give(self.leader) {
                self.resume();
            } else {
                self.wake_by(now + LOOK_AGAIN);
            }
        }
        self.is_over(now)
    }

    /// Passes a signal on, or acts on it. True if we have just been continued: the lease has to be revalidated, and
    /// the command continued only then.
    pub(super) fn on_signal(&mut self, signal: Signal, signals: &Signals) -> io::Result<bool> {
        match signal {
            Signal::SIGCHLD => self.collect(signals)?,
            Signal::SIGCONT => {
                self.continuing = self.loss.is_none();
                return Ok(self.continuing);
            }
            // It comes when the command has not the terminal (a pipeline): stop the command, and with it ourselves.
            Signal::SIGTSTP if self.group == Group::Running => self.forward(signal),
            Signal::SIGTSTP if self.loss.is_none() => self.suspend(signal as i32, signals)?,
            Signal::SIGTSTP => {}
            _ => self.forward(signal),
        }
        Ok(false)
    }

    /// Collects what children did, and acts on stops.
    pub(super) fn collect(&mut self, signals: &Signals) -> io::Result<()> {
        let turns = self.reaper.collect()?;
        // A group is stopped and continued as one, so the last word counts for all of it.
        match turns.last() {
            Some(&Turn::Stopped(signal)) => self.on_stop(signal, signals),
            Some(Turn::Continued) => {
                self.group = Group::Running;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The store has answered.
    pub(super) fn on_revalidated(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => {}
            Err(why) => self.on_lost(why),
        }
        if self.continuing && self.loss.is_none() {
            self.resume();
        }
        self.continuing = false;
    }

    /// The lease is lost.
    pub(super) fn on_lost(&mut self, why: String) {
        if self.loss.is_some() {
            return;
        }
        let now = now();
        match self.on_lost {
            OnLost::Warn => self.warn(why),
            OnLost::Kill => self.begin_loss(why, now, now),
            OnLost::Term => {
                // Somebody else may be at work already, so no more than the grace; and never past the deadline.
                let kill = Leads::of(self.window).kill;
                let latest = self.deadline.map_or(now + GRACE, |deadline| deadline.saturating_sub(kill));
                self.begin_loss(why, now, latest.min(now + GRACE));
            }
        }
    }

    /// Gives the terminal back and tells how it all ended.
    pub(super) fn finish(mut self) -> io::Result<End> {
        let child = self.reaper.leader_end().ok_or_else(|| io::Error::other("the command has not ended"))?;
        let ended_itself = self.loss.is_none() && matches!(child, ChildEnd::Exited(_));
        self.take_terminal(if ended_itself { Modes::Leave } else { Modes::Restore });
        self.reaper.finish()?;
        Ok(match (self.loss, child) {
            (Some(loss), child) => End::Lost { why: loss.why, child: Some(child) },
            (None, ChildEnd::Exited(code)) => End::Exited(code),
            (None, ChildEnd::Signaled(signal)) => End::Signaled(signal),
        })
    }

    /// Kills what can be killed when the watching itself has failed.
    pub(super) fn abandon(mut self) {
        self.signal_all(rustix::process::Signal::KILL);
        self.take_terminal(Modes::Restore);
    }

    fn judge_deadline(&mut self, now: Moment, asking: bool) {
        let Some(left) = self.hold.remaining() else {
            return;
        };
        if self.loss.is_some() {
            return;
        }
        self.window = self.window.max(left);
        self.deadline = self.deadline.max(Some(now + left));
        let leads = Leads::of(self.window);
        let next = match self.on_lost {
            OnLost::Warn if self.warned => return,
            OnLost::Warn => Duration::ZERO,
            OnLost::Kill => leads.kill,
            // A stopped group cannot act on TERM before it is continued, and it does no harm until then.
            OnLost::Term if asking || self.group != Group::Running => leads.kill,
            OnLost::Term => leads.term,
        };
        if left > next {
            self.wake_by(now + (left - next));
            return;
        }
        if asking && self.group == Group::Stopped {
            // Stopped together with us, it did nothing since. Whether it may go on is what the store is asked.
            return;
        }
        let why = if left.is_zero() {
            "the lease was not refreshed before its deadline".to_owned()
        } else {
            format!("the lease was not refreshed, and {} ms are left of it", left.as_millis())
        };
        match self.on_lost {
            OnLost::Warn => self.warn(why),
            OnLost::Term | OnLost::Kill => self.begin_loss(why, now, now + left.saturating_sub(leads.kill)),
        }
    }

    fn warn(&mut self, why: String) {
        if !self.warned {
            self.warned = true;
            (self.log)(Note::LostButGoingOn { why });
        }
    }

    /// Whether the leader and every other member of its group have ended.
    fn is_over(&mut self, now: Moment) -> io::Result<bool> {
        if self.reaper.leader_end().is_none() {
            return Ok(false);
        }
        // Twice: a member that was made and orphaned during one scan may have escaped it.
        let left = self.members()?;
        if left.is_empty() && self.members()?.is_empty() {
            return Ok(true);
        }
        let (since, named) = *self.lingering.get_or_insert((now, false));
        if !named && now >= since + LINGERING && !left.is_empty() {
            self.lingering = Some((since, true));
            (self.log)(Note::WaitingFor { processes: left });
        }
        self.wake_by(now + LOOK_AGAIN);
        Ok(false)
    }

    fn members(&self) -> io::Result<Vec<Process>> {
        Ok(Processes::read()?.members(self.leader).into_iter().cloned().collect())
    }

    fn wake_by(&mut self, at: Moment) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}
