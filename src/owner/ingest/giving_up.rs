//! What cannot be applied, and what cannot be moved: tried again, and some time no more.

use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use super::report::{Cause, FailedBatch, Stuck, Waiting};
use super::round::{Halt, Work};
use super::{Ingestor, OnPoison, Troubled, pause, tidy};
use crate::crash;
use crate::records::TargetError;
use crate::spool::{self, BatchName, Reason};

/// How often a batch is tried for reasons of its own.
const ATTEMPTS: u32 = 20;
/// How long it is tried.
const PATIENCE: Duration = Duration::from_secs(600);
/// The most reasons that are kept until they can be written.
const UNEXPLAINED: usize = 1000;

impl Ingestor {
    /// A batch could not be applied for a reason of its own: it is tried again, and given up some time.
    pub(super) fn attempt(&mut self, name: &BatchName, why: String, work: &mut Work<'_>) -> Result<(), Halt> {
        let now = self.clock.now();
        let troubled = self.troubled_by(name);
        troubled.attempts += 1;
        if troubled.attempts >= ATTEMPTS || now.since(troubled.since) >= PATIENCE {
            let why = format!("after {} attempts: {why}", troubled.attempts);
            return self.poison(name, why, work);
        }
        troubled.until = now + pause::backoff(troubled.attempts);
        troubled.why = why;
        work.hold(troubled.waiting(name.instance()));
        Ok(())
    }

    fn troubled_by(&mut self, name: &BatchName) -> &mut Troubled {
        let now = self.clock.now();
        let fresh = || Troubled {
            id: name.id().to_owned(),
            seq: name.seq(),
            since: now,
            attempts: 0,
            until: now,
            why: String::new(),
            stopped: false,
        };
        let troubled = self.troubled.entry(name.instance().to_owned()).or_insert_with(fresh);
        if troubled.id != name.id() {
            *troubled = fresh();
        }
        troubled
    }

    /// A batch cannot be applied.
    pub(super) fn poison(&mut self, name: &BatchName, why: String, work: &mut Work<'_>) -> Result<(), Halt> {
        match self.on_poison {
            OnPoison::Pass => self.fail(name, why, work),
            OnPoison::Stop => {
                let until = self.clock.now() + tidy::EVERY;
                let troubled = self.troubled_by(name);
                if !troubled.stopped {
                    tracing::error!(batch = name.id(), instance = name.instance(), why, "its producer is halted at it");
                }
                (troubled.stopped, troubled.why, troubled.until) = (true, why, until);
                work.hold(troubled.waiting(name.instance()));
                Ok(())
            }
        }
    }

    /// Gives a batch up: first in the ledger, then it is moved.
    pub(super) fn fail(&mut self, name: &BatchName, why: String, work: &mut Work<'_>) -> Result<(), Halt> {
        let now = (self.wall)();
        let (id, instance) = (name.id(), name.instance());
        match work.target.record_failure(id, instance, name.seq(), &why, now, &mut *work.standing) {
            Ok(outcome) => self.wrote(&outcome),
            Err(error @ (TargetError::Standing(_) | TargetError::Pause(_))) => return Err(error.into()),
            Err(error @ (TargetError::Batch(_) | TargetError::Late { .. })) => {
                // Not even that can be written: it is in its own instance's way, and nobody else's.
                let until = self.clock.now() + tidy::EVERY;
                let troubled = self.troubled_by(name);
                (troubled.until, troubled.why) = (until, format!("{why}; and that cannot be recorded: {error}"));
                work.hold(troubled.waiting(instance));
                return Ok(());
            }
        }
        crash::point("failure-recorded");
        self.pass(name, work)?;
        self.move_to_failed(name.to_string().as_ref(), Some(name), why, work);
        Ok(())
    }

    /// Whether something could not be moved, and is not to be tried yet.
    pub(super) fn is_stuck(&self, file: &OsStr, work: &mut Work<'_>) -> bool {
        match self.stuck.get(file) {
            Some((until, error)) if *until > self.clock.now() => {
                work.round.stuck.push(Stuck { file: file.to_owned(), error: error.clone() });
                true
            }
            _ => false,
        }
    }

    pub(super) fn move_to_trash(&mut self, file: &OsStr, work: &mut Work<'_>) {
        match spool::trash(work.directories, file) {
            Ok(()) => self.moved(file, work),
            Err(error) => self.cannot_move(file, &error, work),
        }
    }

    pub(super) fn move_to_failed(
        &mut self,
        file: &OsStr,
        name: Option<&BatchName>,
        error: String,
        work: &mut Work<'_>,
    ) {
        let at = match spool::fail(work.directories, file) {
            Ok(at) => at,
            Err(error) => return self.cannot_move(file, &error, work),
        };
        self.moved(file, work);
        tracing::warn!(?file, error, "it cannot be applied, and lies in failed/");
        let reason = Reason::new((self.wall)(), error.clone());
        if let Err(error) = spool::explain(work.directories, &at, &reason) {
            tracing::warn!(%error, ?file, "why it failed cannot be written beside it yet");
            if self.unexplained.len() < UNEXPLAINED {
                self.unexplained.push((at, reason));
            }
        }
        work.round.failed.push(FailedBatch { file: file.to_owned(), name: name.cloned(), error });
    }

    fn moved(&mut self, file: &OsStr, work: &mut Work<'_>) {
        self.stuck.remove(file);
        work.moved += 1;
    }

    fn cannot_move(&mut self, file: &OsStr, error: &io::Error, work: &mut Work<'_>) {
        if error.kind() == io::ErrorKind::NotFound {
            // Somebody else moved it.
            return self.moved(file, work);
        }
        tracing::warn!(%error, ?file, "it cannot be moved out of incoming/, and is passed over");
        let error = error.to_string();
        self.stuck.insert(file.to_owned(), (self.clock.now() + tidy::EVERY, error.clone()));
        work.round.stuck.push(Stuck { file: file.to_owned(), error });
    }
}

impl Troubled {
    pub(super) fn waiting(&self, instance: &str) -> Waiting {
        let cause = if self.stopped { Cause::Stopped(self.why.clone()) } else { Cause::Retrying(self.why.clone()) };
        Waiting { instance: instance.to_owned(), seq: self.seq, cause, until: self.until }
    }
}
