//! What a store of streams does for the one process that owns it, and for those that only look.
//!
//! Both halves are synchronous: they run on one thread of their process's, which owns the connection. Nothing in
//! them reads a clock. Times come from whoever calls, and what a time to live has ended stays until
//! [`Target::expire`] removes it: until then it is found and read as if it lived.
//!
//! # What is promised
//!
//! - A batch is applied once, however often it is handed over: its outcome is looked up under the store's write lock,
//!   and kept in the transaction that applies it.
//! - A batch is applied whole or not at all, but for the entries that are refused; an entry is applied whole or not
//!   at all.
//! - A seq names one row of one generation of a stream and never another, trimmed and replaced rows' seqs too.
//!
//! # What is not
//!
//! That no seq of an instance is missing: whoever hands batches over keeps their order, and gives up what nobody has
//! by [`Target::record_skip`]. The numbers of a stream are not without gaps either: replaced, expired and removed rows
//! leave theirs behind.

use jiff::Timestamp;

use super::batch::Batch;
use super::name::{KindName, StreamName};
use super::outcome::BatchOutcome;
use super::row::Row;
use super::schema::Schema;

/// Asked inside each writing transaction, after the store's write lock is taken and again just before the commit,
/// whether this process may still write: its role, its lock, its lease. Its error rolls the transaction back and comes
/// back as it is.
pub type Standing<'a> = &'a mut dyn FnMut() -> crate::Result<()>;

/// What a store says of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamMeta {
    /// Its name.
    pub stream: StreamName,
    /// The kind of its rows.
    pub kind: KindName,
    /// Which stream of this name it is, from 1: one that is made after another was deleted or expired is the next.
    pub generation: u64,
    /// No row has a lower seq: 1, or where it was trimmed.
    pub first: u64,
    /// The seq that the next row gets.
    pub next: u64,
    /// How many rows it has.
    pub rows: u64,
    /// It takes no more rows.
    pub sealed: bool,
    /// When it ends; for kinds whose rows end one by one, and for streams without an end, `None`.
    pub expires: Option<Timestamp>,
}

/// Some rows of a stream, one after the other, as they were at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Window {
    /// The stream at that moment. Another generation than that of the window before means that the rows have nothing
    /// to do with each other.
    pub meta: StreamMeta,
    /// What the rows are made by.
    pub schema: Schema,
    /// The rows with their seqs, which rise.
    pub rows: Vec<(u64, Row)>,
    /// Where the next window begins: past the last row of this one, or `meta.next` when there are no more.
    pub next: u64,
}

/// What can be read. Nothing here elects, ingests, migrates or waits for writers.
///
/// # Errors
///
/// `Unavailable` when the store cannot be read for now (a full or failing disk, a lock of another program's),
/// `Internal` when what it holds is none of ours.
pub trait Source: Send + 'static {
    /// What is known of a stream; `None` if there is none.
    fn meta(&self, stream: &StreamName) -> crate::Result<Option<StreamMeta>>;

    /// The streams in the order of their names: at most `limit`, those after `after`.
    fn streams(&self, after: Option<&StreamName>, limit: usize) -> crate::Result<Vec<StreamMeta>>;

    /// The kinds in the order of their names.
    fn kinds(&self) -> crate::Result<Vec<Schema>>;

    /// At most `limit` rows from a seq on; `None` if there is no such stream.
    ///
    /// A window ends early where its rows get large, but has a row if there is one and `limit` is not 0. No read
    /// transaction stays open when it returns.
    fn scan(&self, stream: &StreamName, from_seq: u64, limit: usize) -> crate::Result<Option<Window>>;

    /// What became of a batch; `None` if the ledger does not know it, or no longer.
    fn batch_outcome(&self, id: &str) -> crate::Result<Option<BatchOutcome>>;

    /// The seq of the last batch of an instance that was applied, failed or skipped; 0 if there was none. It outlives
    /// the ledger's rows.
    fn producer_seq(&self, instance: &str) -> crate::Result<u64>;
}

/// What the owner of a store does to it.
///
/// Nothing can be cancelled half-way, and nothing is left half done: when a call fails, or its process is killed in
/// it, the store is as before or as after.
pub trait Target: Source {
    /// Applies a batch, or gives the outcome that the ledger has of it and does nothing.
    ///
    /// # Errors
    ///
    /// Any [`TargetError`]: nothing of the batch was applied then, and nothing counted.
    fn append_batch(
        &mut self,
        batch: &Batch,
        now: Timestamp,
        standing: Standing<'_>,
    ) -> Result<BatchOutcome, TargetError>;

    /// Keeps that a batch cannot be applied, and passes over its seq. A batch that the ledger knows keeps the outcome
    /// that it has, which is what comes back.
    ///
    /// # Errors
    ///
    /// Any [`TargetError`] but `Late`.
    fn record_failure(
        &mut self,
        id: &str,
        instance: &str,
        seq: u64,
        error: &str,
        now: Timestamp,
        standing: Standing<'_>,
    ) -> Result<BatchOutcome, TargetError>;

    /// Gives up a seq that nobody has, and those below it. One that has been passed already changes nothing.
    ///
    /// # Errors
    ///
    /// Any [`TargetError`] but `Late`.
    fn record_skip(
        &mut self,
        instance: &str,
        seq: u64,
        now: Timestamp,
        standing: Standing<'_>,
    ) -> Result<(), TargetError>;

    /// Makes what was opened for reading writable in place.
    ///
    /// # Errors
    ///
    /// As opening for writing. It is still readable then.
    fn promote(&mut self) -> crate::Result<()>;

    /// Forgets what became of batches before a time, but for those whose id is kept. How many it forgot.
    ///
    /// # Errors
    ///
    /// Any [`TargetError`] but `Late`.
    fn sweep_batches(
        &mut self,
        before: Timestamp,
        keep: &dyn Fn(&str) -> bool,
        standing: Standing<'_>,
    ) -> Result<u64, TargetError>;

    /// Removes what a time to live has ended, some of it at a time: call it again while there is more.
    ///
    /// # Errors
    ///
    /// Any [`TargetError`] but `Late`.
    fn expire(&mut self, now: Timestamp, standing: Standing<'_>) -> Result<Expired, TargetError>;

    /// Brings everything that was written into the store's own file, as far as readers allow.
    ///
    /// # Errors
    ///
    /// `Pause` or `Batch`.
    fn checkpoint(&mut self) -> Result<Checkpoint, TargetError>;

    /// From now on nothing is written by closing it either: for who may not write any more. What closing would have
    /// tidied up is left for whoever opens the store next.
    fn abandon(&mut self) {}
}

/// What an [`Target::expire`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Expired {
    /// Whole streams.
    pub streams: u64,
    /// Rows, those of the streams too.
    pub rows: u64,
    /// There may be more to remove.
    pub more: bool,
}

/// How far a [`Target::checkpoint`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Checkpoint {
    /// Everything is in the store's own file.
    Complete,
    /// A reader, or another program, still needs what lies beside it.
    Partial,
}

/// Why a target did nothing.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// This process may not write any more.
    #[error(transparent)]
    Standing(crate::Error),
    /// The store cannot take anything for now: a full or failing disk, another program's lock, a damaged file. The
    /// batch is as good as before; try again later.
    #[error("{0}")]
    Pause(String),
    /// This batch cannot be applied as it is.
    #[error("{0}")]
    Batch(String),
    /// The instance's batches have gone past this one, and the ledger does not know it: it is never applied.
    #[error("batch {seq} of instance {instance} is late: {last} was there before it")]
    Late {
        /// The instance.
        instance: String,
        /// The seq of the batch.
        seq: u64,
        /// The last seq of the instance.
        last: u64,
    },
}
