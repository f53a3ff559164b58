//! What is to be done to a store, in one go.

use std::time::Duration;

use super::name::{KindName, StreamName};
use super::row::Row;
use super::schema::Schema;

/// What one process hands over at once: applied exactly once, in one transaction, in the order of its instance's seqs.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Tells it from every other batch: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
    pub id: String,
    /// Who publishes it: random for each open of a store, `[A-Za-z0-9]{1,64}`.
    pub instance: String,
    /// Its place in what its instance publishes, from 1.
    pub seq: u64,
    /// The schemas of the kinds that its appends are of.
    pub schemas: Vec<Schema>,
    /// What is to be done, in order. Each is applied or refused as a whole.
    pub entries: Vec<Entry>,
}

/// One thing that is to be done to one stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The stream.
    pub stream: StreamName,
    /// The incarnation of the stream that it is meant for; any, if `None`. One that has been deleted and made anew
    /// refuses it.
    pub generation: Option<u64>,
    /// What is to be done.
    pub operation: Operation,
}

/// What is to be done to a stream.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Adds rows; makes the stream if there is none.
    Append {
        /// The kind of the rows: one of the batch's schemas.
        kind: KindName,
        /// The rows, made by that schema.
        rows: Vec<Row>,
        /// How long the rows, or the stream, live from now on, as the kind's retention says.
        ttl: Option<Duration>,
        /// Seals the stream after them.
        seal: bool,
    },
    /// No more rows are taken.
    Seal,
    /// Rows are taken again.
    Reopen,
    /// Removes the rows before a seq.
    Trim {
        /// The first seq that stays.
        before: u64,
    },
    /// How long the stream and what is in it live from now on.
    Expire {
        /// So long.
        ttl: Duration,
    },
    /// Removes the stream with all its rows. What is made under its name later has another generation.
    Delete,
}

impl Operation {
    /// Its name in manifests and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Append { .. } => "append",
            Operation::Seal => "seal",
            Operation::Reopen => "reopen",
            Operation::Trim { .. } => "trim",
            Operation::Expire { .. } => "expire",
            Operation::Delete => "delete",
        }
    }
}
