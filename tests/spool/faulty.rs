//! A store that fails when it is told to, and is a real one otherwise.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lockhouse::records::sqlite::SqliteTarget;
use lockhouse::records::{
    Batch, BatchOutcome, Checkpoint, Expired, Schema, Source, Standing, StreamMeta, StreamName, Target, TargetError,
    Window,
};

/// What is wrong with it.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    Pause(&'static str),
    Batch(&'static str),
}

pub(crate) struct Faulty {
    pub(crate) real: SqliteTarget,
    /// With everything.
    pub(crate) fault: Option<Fault>,
    /// With the batches of an id.
    pub(crate) batches: BTreeMap<String, Fault>,
    /// How often a batch was handed over.
    pub(crate) tries: u32,
    /// What is left of the ledger when it is swept.
    pub(crate) swept: Vec<Timestamp>,
}

impl Faulty {
    pub(crate) fn new(real: SqliteTarget) -> Faulty {
        Faulty { real, fault: None, batches: BTreeMap::new(), tries: 0, swept: Vec::new() }
    }

    fn fault(&self) -> Result<(), TargetError> {
        self.fault.as_ref().map_or(Ok(()), |fault| Err(fault.error()))
    }
}

impl Fault {
    fn error(&self) -> TargetError {
        match self {
            Fault::Pause(why) => TargetError::Pause((*why).to_owned()),
            Fault::Batch(why) => TargetError::Batch((*why).to_owned()),
        }
    }
}

impl Source for Faulty {
    fn meta(&self, stream: &StreamName) -> lockhouse::Result<Option<StreamMeta>> {
        self.real.meta(stream)
    }

    fn streams(&self, after: Option<&StreamName>, limit: usize) -> lockhouse::Result<Vec<StreamMeta>> {
        self.real.streams(after, limit)
    }

    fn kinds(&self) -> lockhouse::Result<Vec<Schema>> {
        self.real.kinds()
    }

    fn scan(&self, stream: &StreamName, from_seq: u64, limit: usize) -> lockhouse::Result<Option<Window>> {
        self.real.scan(stream, from_seq, limit)
    }

    fn batch_outcome(&self, id: &str) -> lockhouse::Result<Option<BatchOutcome>> {
        self.real.batch_outcome(id)
    }

    fn producer_seq(&self, instance: &str) -> lockhouse::Result<u64> {
        self.real.producer_seq(instance)
    }
}

impl Target for Faulty {
    fn append_batch(
        &mut self,
        batch: &Batch,
        now: Timestamp,
        standing: Standing<'_>,
    ) -> Result<BatchOutcome, TargetError> {
        self.tries += 1;
        self.fault()?;
        match self.batches.get(&batch.id) {
            Some(fault) => Err(fault.error()),
            None => self.real.append_batch(batch, now, standing),
        }
    }

    fn record_failure(
        &mut self,
        id: &str,
        instance: &str,
        seq: u64,
        error: &str,
        now: Timestamp,
        standing: Standing<'_>,
    ) -> Result<BatchOutcome, TargetError> {
        self.fault()?;
        self.real.record_failure(id, instance, seq, error, now, standing)
    }

    fn record_skip(
        &mut self,
        instance: &str,
        seq: u64,
        now: Timestamp,
        standing: Standing<'_>,
    ) -> Result<(), TargetError> {
        self.fault()?;
        self.real.record_skip(instance, seq, now, standing)
    }

    fn promote(&mut self) -> lockhouse::Result<()> {
        self.real.promote()
    }

    fn sweep_batches(
        &mut self,
        before: Timestamp,
        keep: &dyn Fn(&str) -> bool,
        standing: Standing<'_>,
    ) -> Result<u64, TargetError> {
        self.fault()?;
        self.swept.push(before);
        self.real.sweep_batches(before, keep, standing)
    }

    fn expire(&mut self, now: Timestamp, standing: Standing<'_>) -> Result<Expired, TargetError> {
        self.real.expire(now, standing)
    }

    fn checkpoint(&mut self) -> Result<Checkpoint, TargetError> {
        self.real.checkpoint()
    }
}
