//! One period of an owner between two fscks: the file is open for writing, batches are applied, time to live is ended.
//!
//! The permit is held from before the file is opened until after it is closed, so whatever SQLite does by itself in
//! between (recovery, checkpoints) is under the lease too.

use std::collections::HashSet;
use std::time::Duration;

use futures::FutureExt;

use super::core::{Job, Written};
use super::opener::Opener;
use super::owning::{Owning, lost};
use super::permit::Permit;
use super::waiters;
use crate::clock::{Clock, Moment, SystemClock};
use crate::error::{Error, Result};
use crate::owner::ingest::{Cause, Waiting};
use crate::owner::state::Phase;
use crate::records::{Batch, BatchOutcome, Target, TargetError};
use crate::spool::{NewBatch, Taken};

/// How often time to live is ended, and what lies in `failed/` is counted.
const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// How long that may keep others waiting at a time; the rest of it is done a minute later.
const HOUSEKEEPING_TIME: Duration = Duration::from_millis(250);

/// How a period ended. The file is closed then, and the permit given back.
pub(super) enum PeriodEnd {
    /// An fsck wants the store.
    FsckComes,
    /// The store is closed; what was in the spool is ingested.
    Close,
    /// The lease, the lock, or the file was lost.
    Over(Error),
}

pub(super) struct Period<'o, 'l, O: Opener> {
    owning: &'o mut Owning<'l, O>,
    target: O::Target,
    permit: Permit,
    /// What this process published before it became the owner is applied.
    caught_up: bool,
    due: Moment,
    housekeeping: Moment,
}

impl<'o, 'l, O: Opener> Period<'o, 'l, O> {
    pub(super) fn new(owning: &'o mut Owning<'l, O>, target: O::Target, permit: Permit) -> Self {
        let now = SystemClock.now();
        Period { owning, target, permit, caught_up: false, due: now, housekeeping: now }
    }

    pub(super) async fn run(mut self) -> PeriodEnd {
        let end = self.serve().await;
        if let PeriodEnd::Close = end {
            self.drain();
            crate::crash::point("store-drained");
        }
        // Nobody writes directly from here on; the file is whole for whoever comes.
        self.owning.phase(match end {
            PeriodEnd::FsckComes => Phase::Waiting,
            PeriodEnd::Close | PeriodEnd::Over(_) => Phase::Draining,
        });
        close(self.target, &self.permit);
        crate::crash::point("store-closed");
        drop(self.permit);
        end
    }

    async fn serve(&mut self) -> PeriodEnd {
        loop {
            let now = SystemClock.now();
            if now >= self.due
                && let Err(error) = self.round()
            {
                return PeriodEnd::Over(error);
            }
            if self.caught_up && now >= self.housekeeping {
                self.keep_house();
                self.housekeeping = SystemClock.now() + HOUSEKEEPING;
            }
            let next = self.due.min(if self.caught_up { self.housekeeping } else { self.due });
            tokio::select! {
                biased;
                error = self.permit.lost() => return PeriodEnd::Over(error),
                error = lost(self.owning.lock.as_ref()) => return PeriodEnd::Over(error),
                () = self.permit.closing() => return PeriodEnd::FsckComes,
                job = self.owning.life.jobs.recv() => match job {
                    None | Some(Job::Close) => return PeriodEnd::Close,
                    Some(job) => self.job(job),
                },
                () = SystemClock.sleep_until(next) => {}
            }
        }
    }

    fn job(&mut self, job: Job) {
        match job {
            Job::Write { batch, reply } => {
                let written = if self.caught_up { self.write(*batch) } else { Written::NotNow(batch) };
                let _ = reply.send(written);
            }
            Job::Ingest { ids, wait: true, reply } => {
                self.owning.waiters.add(ids, reply);
                self.due = SystemClock.now();
            }
            Job::Ingest { ids, wait: false, reply } => {
                self.due = SystemClock.now();
                let _ = reply.send(Ok(waiters::known(&ids, &self.target, true)));
            }
            Job::GiveUp { id, reply } => {
                let _ = reply.send(self.owning.ingestor.give_up(&id));
                self.due = SystemClock.now();
            }
            Job::Close => {}
        }
    }

    /// One round of ingestion, and what it means for those who wait.
    ///
    /// # Errors
    ///
    /// This process may not write any more.
    fn round(&mut self) -> Result<()> {
        let mut standing = standing(self.owning.lock.as_ref(), &self.permit);
        let round = self.owning.ingestor.round(&mut self.target, &mut standing);
        self.owning.waiters.settle(&round, &self.target, crate::clock::wall());
        let now = SystemClock.now();
        let at_latest = now + self.owning.life.core.options.poll;
        self.due = if round.more { now } else { round.next.map_or(at_latest, |next| next.min(at_latest)) };
        // What is paused or halted is in its own writes' way, as ever, and in nobody else's.
        let own = self.owning.life.core.producer.instance();
        let waits = round.paused.is_some() || round.waiting.iter().any(|waiting| waiting.instance == own);
        let halted = || round.waiting.iter().find_map(halted);
        let wrong = round.paused.as_ref().map(|paused| paused.why.clone()).or_else(halted);
        self.tell(round.backlog as u64, wrong, !round.failed.is_empty());
        if let Some(error) = round.refused {
            return Err(error);
        }
        if !self.caught_up && (waits || !self.has_own_backlog()) {
            self.caught_up = true;
            self.count_failed();
            self.owning.life.takeover.succeeded();
            self.owning.phase(Phase::Ready);
            crate::crash::point("store-ready");
        }
        Ok(())
    }

    /// Puts into the owner's state what has changed.
    fn tell(&self, backlog: u64, wrong: Option<String>, failed: bool) {
        if failed {
            self.count_failed();
        }
        let changed = self.owning.lock.as_ref().is_some_and(|lock| {
            let state = lock.state();
            state.backlog != backlog || (state.last_error != wrong && (wrong.is_some() || backlog == 0))
        });
        if changed {
            self.owning.update(|state| (state.backlog, state.last_error) = (backlog, wrong));
        }
    }

    fn count_failed(&self) {
        let spool = &self.owning.life.core.spool;
        if let Ok(failed) = crate::spool::FailedFiles::of(spool).count() {
            self.owning.update(|state| state.failed = failed);
        }
    }

    /// Whether something that this process published before is still on its way: a direct write would overtake it.
    fn has_own_backlog(&self) -> bool {
        let core = &self.owning.life.core;
        let own = core.producer.instance();
        match core.spool.listed() {
            Ok(listed) => listed.batches.iter().any(|batch| batch.instance() == own),
            Err(_) => true,
        }
    }

    fn write(&mut self, batch: NewBatch) -> Written {
        let mut standing = standing(self.owning.lock.as_ref(), &self.permit);
        let target = &mut self.target;
        let producer = &self.owning.life.core.producer;
        let enclosed = matches!(self.permit, Permit::Fsck(_));
        let written = producer.directly(batch, |batch| match apply(target, batch, &mut standing) {
            // Nobody takes over what was to be written under an fsck's lease.
            Taken::No(NotWritten::MayNot(_, error)) if enclosed => Taken::No(NotWritten::Refused(error)),
            taken => taken,
        });
        match written {
            Ok(outcome) => {
                self.owning.ingestor.wrote(&outcome);
                Written::Done(Ok(outcome))
            }
            Err(NotWritten::NotNow(batch) | NotWritten::MayNot(batch, _)) => Written::NotNow(batch),
            Err(NotWritten::Refused(error)) => Written::Done(Err(error)),
        }
    }

    fn keep_house(&mut self) {
        self.count_failed();
        let give_up = SystemClock.now() + HOUSEKEEPING_TIME;
        while SystemClock.now() < give_up && self.permit.closing().now_or_never().is_none() {
            let mut standing = standing(self.owning.lock.as_ref(), &self.permit);
            match self.target.expire(crate::clock::wall(), &mut standing) {
                Ok(expired) if expired.more => {}
                Ok(_) => return,
                // The next round meets the same, and says it; the next minute tries again.
                Err(error) => return tracing::debug!(%error, "time to live is not ended now"),
            }
        }
    }

    /// Ingests what is in the spool now, as far as time and the store allow.
    fn drain(&mut self) {
        self.owning.phase(Phase::Draining);
        let core = self.owning.life.core.clone();
        let give_up = SystemClock.now() + core.options.drain_on_close;
        let Ok(listed) = core.spool.listed() else { return };
        let mut left: HashSet<_> = listed.batches.into_iter().collect();
        while !left.is_empty() && SystemClock.now() < give_up && self.permit.closing().now_or_never().is_none() {
            let mut standing = standing(self.owning.lock.as_ref(), &self.permit);
            let round = self.owning.ingestor.round(&mut self.target, &mut standing);
            self.owning.waiters.settle(&round, &self.target, crate::clock::wall());
            let Ok(listed) = core.spool.listed() else { return };
            let there: HashSet<_> = listed.batches.into_iter().collect();
            left.retain(|batch| there.contains(batch));
            if round.refused.is_some() || round.paused.is_some() || !round.more {
                return;
            }
        }
    }
}

/// What a person has to know of a producer that is halted.
fn halted(waiting: &Waiting) -> Option<String> {
    match &waiting.cause {
        Cause::Stopped(why) => Some(format!(
            "producer {} is halted at its batch {}: {why}; to pass it over, end this owner and type `lockhouse owner ingest`",
            waiting.instance, waiting.seq
        )),
        Cause::Missing | Cause::Retrying(_) => None,
    }
}

/// Whether this process may still write, asked inside each transaction.
pub(super) fn standing<'a>(
    lock: Option<&'a crate::owner::lock::OwnerLock>,
    permit: &'a Permit,
) -> impl FnMut() -> Result<()> + use<'a> {
    move || {
        if let Some(lock) = lock {
            lock.check()?;
        }
        permit.check()
    }
}

/// Closes the file. It is whole for whoever comes, unless this process may not write any more.
pub(super) fn close(mut target: impl Target, permit: &Permit) {
    match permit.check() {
        Ok(()) => {
            if let Err(error) = target.checkpoint() {
                tracing::debug!(%error, "no checkpoint; the next one who opens the file makes it");
            }
        }
        Err(_) => target.abandon(),
    }
}

/// Why a direct write has not been made: nothing of it is in the store.
enum NotWritten {
    NotNow(Box<NewBatch>),
    MayNot(Box<NewBatch>, Error),
    Refused(Error),
}

impl From<Error> for NotWritten {
    fn from(error: Error) -> NotWritten {
        NotWritten::Refused(error)
    }
}

/// Applies a direct write, if it is next in its instance's order.
fn apply(
    target: &mut dyn Target,
    batch: Batch,
    standing: &mut dyn FnMut() -> Result<()>,
) -> Taken<BatchOutcome, NotWritten> {
    let back = |Batch { id, schemas, entries, .. }: Batch| Box::new(NewBatch { id, schemas, entries });
    let not_now = |batch: Batch| Taken::No(NotWritten::NotNow(back(batch)));
    match target.producer_seq(&batch.instance) {
        Ok(last) if last + 1 == batch.seq => {}
        // One that was published a moment ago has to be applied first; or it cannot be told.
        Ok(_) | Err(_) => return not_now(batch),
    }
    match target.append_batch(&batch, crate::clock::wall(), standing) {
        Ok(outcome) => Taken::Yes(outcome),
        // What cannot be written now is handed over like everybody else's: it is tried until it can.
        Err(TargetError::Pause(_) | TargetError::Late { .. }) => not_now(batch),
        Err(TargetError::Standing(error)) => Taken::No(NotWritten::MayNot(back(batch), error)),
        Err(TargetError::Batch(why)) => Taken::No(NotWritten::Refused(Error::invalid(why))),
    }
}
