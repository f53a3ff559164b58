//! Ending a command whose lease is lost: TERM where there is time for it, then KILL until nothing is left.

use std::io;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};

use super::super::alarm::Moment;
use super::super::processes::{Process, Processes};
use super::super::{Note, OnLost};
use super::{Group, LOOK_AGAIN, Watch};

/// The first repetitions of KILL, against processes that were being made while we killed.
const KILL_AGAIN: Duration = Duration::from_millis(20);
/// The later ones: who survives the first second waits for a device, and no haste helps.
const KILL_SLOWLY: Duration = Duration::from_millis(200);
/// How often survivors are named.
const NAME_AGAIN: Duration = Duration::from_secs(3);

/// A command being ended because its lease is lost, or about to be.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) why: String,
    /// When the first KILL was sent.
    killed_at: Option<Moment>,
    /// When KILL is due, for the first time or again.
    pub(super) next_kill: Moment,
    next_named: Moment,
}

impl Watch<'_> {
    /// Decides that the command ends. There is no way back: a refresh that arrives after TERM finds a command that is
    /// half gone.
    pub(super) fn begin_loss(&mut self, why: String, now: Moment, kill_at: Moment) {
        let spare = self.on_lost == OnLost::Term && self.group == Group::Running && kill_at > now;
        let kill_at = if spare { kill_at } else { now };
        (self.log)(if spare {
            Note::Ending { why: why.clone(), killed_in: kill_at - now }
        } else {
            Note::Killing { why: why.clone() }
        });
        if spare {
            self.signal_all(rustix::process::Signal::TERM);
        }
        self.loss = Some(Loss { why, killed_at: None, next_kill: kill_at, next_named: now + NAME_AGAIN });
    }

    /// Brings the ending on. True when nothing that the command started is left.
    pub(super) fn end(&mut self, now: Moment) -> io::Result<bool> {
        if self.reaper.leader_end().is_some() && self.survivors()?.is_empty() && self.survivors()?.is_empty() {
            return Ok(true);
        }
        let Some(loss) = &mut self.loss else {
            return Ok(false);
        };
        if now >= loss.next_kill {
            let first = *loss.killed_at.get_or_insert(now);
            let pause = if now < first + Duration::from_secs(1) { KILL_AGAIN } else { KILL_SLOWLY };
            loss.next_kill = now + pause;
            let name = now >= loss.next_named;
            if name {
                loss.next_named = now + NAME_AGAIN;
            }
            self.signal_all(rustix::process::Signal::KILL);
            if name {
                let processes = self.survivors()?;
                if !processes.is_empty() {
                    (self.log)(Note::Surviving { processes });
                }
            }
        }
        if let Some(next) = self.loss.as_ref().map(|loss| loss.next_kill) {
            self.wake_by(next);
        }
        if self.reaper.leader_end().is_some() {
            // What left the group is not always our child, so its end may come without a signal.
            self.wake_by(now + LOOK_AGAIN);
        }
        Ok(false)
    }

    /// Sends a signal to the group and to every other descendant.
    pub(super) fn signal_all(&self, signal: rustix::process::Signal) {
        // First the group, at once and as a whole: the rest needs a scan.
        if let Ok(to_group) = Signal::try_from(signal.as_raw()) {
            let _ = killpg(self.leader, to_group);
        }
        if let Ok(processes) = Processes::read() {
            for process in processes.descendants(self.leader, &self.earlier) {
                if !process.is_in(self.leader) {
                    process.signal(signal);
                }
            }
        }
    }

    fn survivors(&self) -> io::Result<Vec<Process>> {
        Ok(Processes::read()?.descendants(self.leader, &self.earlier).into_iter().cloned().collect())
    }
}
