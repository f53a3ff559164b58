//! Gathering writes into batches for a store: applied directly by its owner, published by everybody else.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::delivery::{self, BatchResult};
use super::opener::Opener;
use super::{Store, entries_of};
use crate::error::{Error, Result};
use crate::records::{Entry, Outcome, Refusal, Row, Schema, StreamName};
use crate::spool::{Caps, NewBatch, NotTaken, Sink, Writer};

/// What a flush waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Until {
    /// That the batches are durable: this process may end then.
    #[default]
    Durable,
    /// That the owner has applied them.
    Applied,
}

/// What a flush came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Flushed {
    /// The ids of the batches since the last flush, in order.
    pub batches: Vec<String>,
    /// Rows stored, as far as it is known.
    pub stored: u64,
    /// Rows passed over, for their key was there; as far as it is known.
    pub skipped: u64,
    /// The entries that were refused, as far as it is known.
    pub refused: Vec<Refusal>,
}

/// Gathers rows and entries, and hands them over in batches. What was not flushed when it is dropped is lost.
#[derive(Debug)]
pub struct StoreWriter<O: Opener> {
    store: Store<O>,
    gathering: Writer<Cut>,
    cut: Cut,
    flushed: Flushed,
    open: VecDeque<String>,
}

/// Batches that were cut, and not handed over yet.
#[derive(Debug, Clone, Default)]
struct Cut(Arc<Mutex<VecDeque<NewBatch>>>);

impl Cut {
    fn next(&self) -> Option<NewBatch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Sink for Cut {
    type Done = ();

    fn take(&mut self, batch: NewBatch) -> Result<(), NotTaken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(batch);
        Ok(())
    }
}

impl<O: Opener> StoreWriter<O> {
    pub(super) fn new(store: Store<O>, caps: Caps) -> StoreWriter<O> {
        let cut = Cut::default();
        let gathering = Writer::with_caps(cut.clone(), caps);
        StoreWriter { store, gathering, cut, flushed: Flushed::default(), open: VecDeque::new() }
    }

    /// Adds a row to a stream. Hands a batch over when one is full.
    ///
    /// # Errors
    ///
    /// Those of [`Store::hand_over`] for the batch that was full, which is lost then unless the error is `Pending`; the
    /// row is gathered.
    ///
    /// # Cancellation
    ///
    /// A batch that was being handed over when the future is dropped is, or is not.
    pub async fn row(&mut self, stream: &StreamName, schema: &Schema, row: Row) -> Result<()> {
        self.gathering.row(stream, schema, row)?;
        self.hand_over().await
    }

    /// Adds an entry, which is never divided. `schema` is that of the rows that it appends.
    ///
    /// # Errors
    ///
    /// As [`StoreWriter::row`].
    pub async fn entry(&mut self, schema: Option<&Schema>, entry: Entry) -> Result<()> {
        self.gathering.entry(schema, entry)?;
        self.hand_over().await
    }

    /// Hands over all that was gathered, and waits for what it is told to. What became of the batches since the last flush.
    ///
    /// # Errors
    ///
    /// Those of [`Store::write`].
    pub async fn flush(&mut self, until: Until) -> Result<Flushed> {
        self.gathering.flush()?;
        self.hand_over().await?;
        while until == Until::Applied
            && let Some(id) = self.open.front().cloned()
        {
            match self.store.await_batch(&id).await? {
                BatchResult::Known(outcome) => {
                    self.open.pop_front();
                    let outcomes = entries_of(&self.store.core, &id, outcome)?;
                    self.flushed.note(outcomes);
                }
                BatchResult::Unknown => {
                    return Err(Error::invalid_at(
                        self.store.name(),
                        format!("batch {id} is not in the spool any more, and the ledger does not know it"),
                    ));
                }
            }
        }
        self.open.clear();
        Ok(std::mem::take(&mut self.flushed))
    }

    async fn hand_over(&mut self) -> Result<()> {
        while let Some(batch) = self.cut.next() {
            let handed = delivery::hand_over(&self.store.core, batch).await?;
            self.flushed.batches.push(handed.id.clone());
            match handed.outcome {
                Some(outcome) => {
                    let outcomes = entries_of(&self.store.core, &handed.id, outcome)?;
                    self.flushed.note(outcomes);
                }
                None => self.open.push_back(handed.id),
            }
        }
        Ok(())
    }
}

impl Flushed {
    fn note(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            match outcome {
                Outcome::Applied(applied) => {
                    self.stored += applied.stored;
                    self.skipped += applied.skipped;
                }
                Outcome::Refused(refusal) => self.refused.push(refusal),
            }
        }
    }
}
