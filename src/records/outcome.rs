//! What became of a batch: as the ledger keeps it, and as every process that asks is told.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;

/// What an entry did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Applied {
    /// The stream's generation.
    pub generation: u64,
    /// The seq of the first row that was stored, if any was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seq: Option<u64>,
    /// The seq of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<u64>,
    /// Rows stored, those that replaced others too.
    #[serde(default)]
    pub stored: u64,
    /// Rows passed over, for their key was there.
    #[serde(default)]
    pub skipped: u64,
    /// Rows that were replaced or removed.
    #[serde(default)]
    pub removed: u64,
}

/// What became of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was applied.
    Applied(Applied),
    /// It was refused, and nothing of it stored.
    Refused(Refusal),
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BatchOutcome {
    /// Its entries were taken one by one, in order: one outcome for each.
    Applied {
        /// When, by the owner's wall clock.
        at: Timestamp,
        /// What became of each entry.
        entries: Vec<Outcome>,
    },
    /// It could not be applied at all, and lies in `failed/`.
    Failed {
        /// When, by the owner's wall clock.
        at: Timestamp,
        /// Why.
        error: String,
    },
    /// Nobody has it: its place in its instance's order was given up.
    Skipped {
        /// When, by the owner's wall clock.
        at: Timestamp,
    },
}
