//! What a round of ingestion did, and what is left.

use std::ffi::OsString;

use crate::clock::Moment;
use crate::error::Error;
use crate::records::BatchOutcome;
use crate::spool::{BatchName, Gap};

/// What one round did, and what is left.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Round {
    /// The batches that the store has taken, in this order.
    pub applied: Vec<AppliedBatch>,
    /// What was given up, and lies in `failed/`.
    pub failed: Vec<FailedBatch>,
    /// Places that nobody has, and that are no longer waited for.
    pub skipped: Vec<Gap>,
    /// Producers that wait, while the others go on.
    pub waiting: Vec<Waiting>,
    /// What cannot be moved out of `incoming/`; it is tried again each minute.
    pub stuck: Vec<Stuck>,
    /// How much is left in `incoming/`.
    pub backlog: usize,
    /// Nothing is applied now, and why.
    pub paused: Option<Paused>,
    /// What `standing` said: this process may not write. Nothing was applied after it.
    pub refused: Option<Error>,
    /// Another round has something to do at once.
    pub more: bool,
    /// When the next round has something to do, even if nobody publishes anything.
    pub next: Option<Moment>,
}

/// A batch that the store has taken.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AppliedBatch {
    /// The batch.
    pub name: BatchName,
    /// What became of it.
    pub outcome: BatchOutcome,
}

/// Something that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedBatch {
    /// Its name in `incoming/`.
    pub file: OsString,
    /// The batch, where the name is one of a batch.
    pub name: Option<BatchName>,
    /// What is wrong with it.
    pub error: String,
}

/// A producer whose batches wait.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// The instance.
    pub instance: String,
    /// The place in its order that is waited for.
    pub seq: u64,
    /// Why.
    pub cause: Cause,
    /// When it is tried again, or given up.
    pub until: Moment,
}

/// Why a producer's batches wait.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A batch is missing.
    Missing,
    /// A batch could not be applied, and is tried again.
    Retrying(String),
    /// A batch cannot be applied, and its producer is halted until somebody gives it up, or mends it.
    Stopped(String),
}

/// Something that cannot be moved out of `incoming/`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// Its name there.
    pub file: OsString,
    /// What the system says.
    pub error: String,
}

/// Why nothing is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Paused {
    /// What the store, or the system, says.
    pub why: String,
    /// Since when.
    pub since: Moment,
    /// When it is tried again.
    pub until: Moment,
}
