//! One round.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;

use rustix::io::Errno;

use super::ahead::Ahead;
use super::report::{AppliedBatch, Cause, Paused, Round, Waiting};
use super::{BATCHES, Ingestor, TIME};
use crate::clock::Moment;
use crate::crash;
use crate::error::Error;
use crate::records::{Batch, BatchOutcome, Standing, Target, TargetError};
use crate::spool::{self, BatchName, Directories, LIMITS, Listed, LoadError};

/// Why a round ends before its work is done.
#[derive(Debug)]
pub(super) enum Halt {
    /// The store, or the machine, cannot take anything for now.
    Pause(String),
    /// This process may not write.
    Refused(Error),
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Halt {
        Halt::Pause(format!("the spool cannot be read: {error}"))
    }
}

/// A read that failed, or a write that is about no batch in particular.
impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Pause(error.to_string())
    }
}

impl From<TargetError> for Halt {
    fn from(error: TargetError) -> Halt {
        match error {
            TargetError::Standing(error) => Halt::Refused(error),
            TargetError::Pause(why) => Halt::Pause(why),
            error @ (TargetError::Batch(_) | TargetError::Late { .. }) => Halt::Pause(error.to_string()),
        }
    }
}

/// What one round works with.
pub(super) struct Work<'a> {
    pub(super) directories: &'a Directories,
    pub(super) target: &'a mut dyn Target,
    pub(super) standing: Standing<'a>,
    pub(super) round: &'a mut Round,
    /// Instances whose batches wait.
    pub(super) held: HashSet<String>,
    /// How much was moved out of `incoming/`.
    pub(super) moved: usize,
}

impl Ingestor {
    pub(super) fn run(&mut self, target: &mut dyn Target, standing: Standing<'_>) -> Round {
        let mut round = Round::default();
        match self.spool.directories() {
            Ok(directories) => self.run_in(&directories, target, standing, &mut round),
            Err(error) => self.halt(Halt::Pause(error.to_string()), &mut round),
        }
        round.backlog = self.backlog;
        round.next = self.next(&round);
        round
    }

    fn run_in(
        &mut self,
        directories: &Directories,
        target: &mut dyn Target,
        standing: Standing<'_>,
        round: &mut Round,
    ) {
        // Before the rest: on a full disk it makes room.
        self.tidy(directories, round);
        if let Some(paused) = self.pause.at(self.clock.now()) {
            round.paused = Some(paused.clone());
            return;
        }
        let mut work = Work { directories, target, standing, round: &mut *round, held: HashSet::new(), moved: 0 };
        let done = self.ingest(&mut work).and_then(|()| self.sweep(directories, work.target, work.standing));
        match done {
            Ok(()) => self.pause.end(),
            Err(halt) => self.halt(halt, round),
        }
    }

    fn halt(&mut self, halt: Halt, round: &mut Round) {
        match halt {
            Halt::Pause(why) => {
                if !round.applied.is_empty() {
                    self.pause.end();
                }
                let paused: &Paused = self.pause.begin(self.clock.now(), why);
                round.paused = Some(paused.clone());
                round.more = false;
            }
            Halt::Refused(error) => {
                round.refused = Some(error);
                round.more = false;
            }
        }
        // What was read of the ledger may be another's by now.
        self.last.clear();
    }

    /// The names in `incoming/`, by one listing.
    pub(super) fn names(&mut self, directories: &Directories) -> io::Result<Vec<OsString>> {
        match &mut self.listing {
            Some(listing) => listing.names(),
            None => directories.incoming.names(),
        }
    }

    fn ingest(&mut self, work: &mut Work<'_>) -> Result<(), Halt> {
        let mut listed = Listed::of(self.names(work.directories)?);
        self.look_up(&listed, work.target)?;
        let mut plan = spool::plan(&listed.batches, &self.last);
        if !plan.gaps.is_empty() {
            // What is missing may have been applied without this ingestor: directly, or by somebody below an fsck.
            for gap in &plan.gaps {
                self.last.remove(&gap.instance);
            }
            // And a listing that is read while others rename may miss what was there before.
            listed.merge(Listed::of(self.names(work.directories)?));
            self.look_up(&listed, work.target)?;
            plan = spool::plan(&listed.batches, &self.last);
        }
        let there = listed.batches.len() + listed.strange.len();
        self.backlog = there;
        self.forget_what_left(&listed);
        // What a long listing took is not taken from the batches.
        let started = self.clock.now();
        for (count, name) in listed.strange.iter().enumerate() {
            if self.is_over(count, started, work) {
                break;
            }
            if !self.is_stuck(name, work) {
                let error = "its name is none of a batch".to_owned();
                self.move_to_failed(name, None, error, work);
            }
        }
        for (count, name) in plan.past.iter().enumerate() {
            if self.is_over(count, started, work) {
                break;
            }
            self.past(name, work)?;
        }
        for (gap, until) in self.gaps.wait(&plan.gaps, started) {
            if until > started {
                let (instance, seq) = (gap.instance, gap.from);
                work.round.waiting.push(Waiting { instance, seq, cause: Cause::Missing, until });
                continue;
            }
            work.target.record_skip(&gap.instance, gap.to, (self.wall)(), &mut *work.standing)?;
            tracing::warn!(instance = gap.instance, from = gap.from, to = gap.to, "batches are missing, and skipped");
            self.last.insert(gap.instance.clone(), gap.to);
            work.round.skipped.push(gap);
            work.round.more = true;
        }
        let (directories, formats) = (work.directories, self.formats.clone());
        let ready = &plan.ready;
        std::thread::scope(|scope| {
            let mut ahead = Ahead::of(scope, &directories.incoming, &formats, ready);
            for (count, name) in ready.iter().enumerate() {
                if self.is_over(count, started, work) {
                    break;
                }
                if !work.held.contains(name.instance()) {
                    let loaded = ahead.take(name);
                    let free = |next: &&BatchName| !work.held.contains(next.instance());
                    if let Some(next) = ready[count + 1..].iter().find(free) {
                        ahead.begin(next);
                    }
                    self.next_of_instance(name, loaded, work)?;
                }
                self.backlog = there.saturating_sub(work.moved);
            }
            Ok::<(), Halt>(())
        })?;
        self.backlog = there.saturating_sub(work.moved);
        Ok(())
    }

    /// Whether the round has done enough of one thing.
    fn is_over(&self, count: usize, started: Moment, work: &mut Work<'_>) -> bool {
        let over = count >= BATCHES || self.clock.now().since(started) >= TIME;
        work.round.more |= over;
        over
    }

    /// Asks the ledger for the instances that are not known yet.
    fn look_up(&mut self, listed: &Listed, target: &dyn Target) -> Result<(), Halt> {
        let there: HashSet<&str> = listed.batches.iter().map(BatchName::instance).collect();
        self.last.retain(|instance, _| there.contains(instance.as_str()));
        for instance in there {
            if !self.last.contains_key(instance) {
                self.last.insert(instance.to_owned(), target.producer_seq(instance)?);
            }
        }
        Ok(())
    }

    /// What is not there any more needs no patience.
    fn forget_what_left(&mut self, listed: &Listed) {
        if !self.stuck.is_empty() {
            let batches = listed.batches.iter().map(|name| OsString::from(name.to_string()));
            let there: HashSet<OsString> = batches.chain(listed.strange.iter().cloned()).collect();
            self.stuck.retain(|name, _| there.contains(name));
        }
        if !self.troubled.is_empty() {
            let ids: HashSet<&str> = listed.batches.iter().map(BatchName::id).collect();
            self.troubled.retain(|_, troubled| ids.contains(troubled.id.as_str()));
            let troubled: HashSet<&str> = self.troubled.values().map(|troubled| troubled.id.as_str()).collect();
            self.given_up.retain(|id| troubled.contains(id.as_str()));
        } else {
            self.given_up.clear();
        }
    }

    /// A batch whose seq is past: the ledger says what became of it.
    fn past(&mut self, name: &BatchName, work: &mut Work<'_>) -> Result<(), Halt> {
        let file = OsString::from(name.to_string());
        if self.is_stuck(&file, work) {
            return Ok(());
        }
        match work.target.batch_outcome(name.id())? {
            Some(BatchOutcome::Failed { error, .. }) => self.move_to_failed(&file, Some(name), error, work),
            Some(BatchOutcome::Applied { .. } | BatchOutcome::Skipped { .. }) => self.move_to_trash(&file, work),
            None => {
                let last = self.last.get(name.instance()).copied().unwrap_or_default();
                let (instance, seq) = (name.instance(), name.seq());
                let why =
                    format!("it is late: instance {instance} is past seq {seq}, at {last}; retry it if it is wanted");
                let now = (self.wall)();
                work.target.record_failure(name.id(), instance, seq, &why, now, &mut *work.standing)?;
                self.aging.wrote(self.clock.now(), now);
                self.move_to_failed(&file, Some(name), why, work);
            }
        }
        Ok(())
    }

    /// The batch that is next in its instance's order.
    fn next_of_instance(&mut self, name: &BatchName, loaded: Option<Batch>, work: &mut Work<'_>) -> Result<(), Halt> {
        if let Some(troubled) = self.troubled.get(name.instance())
            && troubled.id == name.id()
        {
            if self.given_up.contains(name.id()) {
                let why = format!("it was given up: {}", troubled.why);
                return self.fail(name, why, work);
            }
            if troubled.until > self.clock.now() {
                work.hold(troubled.waiting(name.instance()));
                return Ok(());
            }
        }
        let load = || spool::load(&work.directories.incoming, name, &self.formats, &LIMITS);
        let batch = match loaded.map_or_else(load, Ok) {
            Ok(batch) => batch,
            Err(LoadError::Gone) => {
                // Looked for like everything that is missing, with the next listing.
                work.held.insert(name.instance().to_owned());
                work.moved += 1;
                return Ok(());
            }
            Err(LoadError::Unreadable(why)) => return self.poison(name, why, work),
            Err(LoadError::Trouble(_, error)) if is_shortage(&error) => return Err(error.into()),
            Err(LoadError::Trouble(what, error)) => return self.attempt(name, format!("{what}: {error}"), work),
        };
        crash::point("batch-loaded");
        let outcome = match work.target.append_batch(&batch, (self.wall)(), &mut *work.standing) {
            Ok(outcome) => outcome,
            Err(TargetError::Batch(why)) => return self.attempt(name, why, work),
            Err(TargetError::Late { last, .. }) => {
                self.last.insert(name.instance().to_owned(), last);
                work.held.insert(name.instance().to_owned());
                work.round.more = true;
                return Ok(());
            }
            Err(error @ (TargetError::Standing(_) | TargetError::Pause(_))) => return Err(error.into()),
        };
        crash::point("batch-applied");
        self.pause.end();
        self.wrote(&outcome);
        self.pass(name, work)?;
        let file = OsString::from(name.to_string());
        match &outcome {
            BatchOutcome::Failed { error, .. } => self.move_to_failed(&file, Some(name), error.clone(), work),
            BatchOutcome::Applied { .. } | BatchOutcome::Skipped { .. } => self.move_to_trash(&file, work),
        }
        work.round.applied.push(AppliedBatch { name: name.clone(), outcome });
        Ok(())
    }

    /// The store has what it will ever have of a batch. One whose id it knew already has not counted there.
    pub(super) fn pass(&mut self, name: &BatchName, work: &mut Work<'_>) -> Result<(), Halt> {
        self.troubled.remove(name.instance());
        let mut last = work.target.producer_seq(name.instance())?;
        if last < name.seq() {
            work.target.record_skip(name.instance(), name.seq(), (self.wall)(), &mut *work.standing)?;
            last = name.seq();
        }
        self.last.insert(name.instance().to_owned(), last);
        Ok(())
    }

    /// When there is something to do although nobody publishes.
    fn next(&self, round: &Round) -> Option<Moment> {
        let paused = round.paused.as_ref().map(|paused| paused.until);
        let waiting = round.waiting.iter().map(|waiting| waiting.until);
        let stuck = round.stuck.iter().filter_map(|stuck| self.stuck.get(&stuck.file)).map(|(until, _)| *until);
        let regular = [self.tidies_at(), self.aging.next()];
        paused.into_iter().chain(waiting).chain(stuck).chain(regular).min()
    }
}

impl Work<'_> {
    /// Lets an instance wait for the rest of the round.
    pub(super) fn hold(&mut self, waiting: Waiting) {
        self.held.insert(waiting.instance.clone());
        self.round.waiting.push(waiting);
    }
}

/// Whether the machine is short of something: no batch is to blame.
fn is_shortage(error: &io::Error) -> bool {
    use io::ErrorKind::{OutOfMemory, StorageFull};
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
        || matches!(error.kind(), OutOfMemory | StorageFull)
}
