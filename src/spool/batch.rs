//! What becomes a batch, wherever it goes: to the spool, or straight to the store that this process owns.

use crate::error::{Error, Result};
use crate::records::{Batch, Entry, Operation, Schema};
use crate::store_url::StoreName;

use super::instance::Place;
use super::limits::LIMITS;
use super::name::is_batch_id;

/// A batch that has no place yet in the order of an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct NewBatch {
    /// Tells it from every other batch: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
    pub id: String,
    /// The schemas of the kinds that its appends are of.
    pub schemas: Vec<Schema>,
    /// What is to be done, in order.
    pub entries: Vec<Entry>,
}

impl NewBatch {
    /// A batch with a random id.
    pub fn new(schemas: Vec<Schema>, entries: Vec<Entry>) -> NewBatch {
        NewBatch { id: crate::entropy::unique().simple().to_string(), schemas, entries }
    }

    /// The batch at its place.
    pub(crate) fn at(self, place: &Place) -> Batch {
        let NewBatch { id, schemas, entries } = self;
        Batch { id, instance: place.instance.clone(), seq: place.seq, schemas, entries }
    }

    /// Checks what every batch has to keep to.
    pub(crate) fn check(&self, store: &StoreName) -> Result<()> {
        if !is_batch_id(&self.id) {
            let id = crate::describe::brief(&self.id);
            let message = format!("{id} is no id of a batch: a letter or digit, then up to 63 of A-Z a-z 0-9 . _ -");
            return Err(Error::invalid_at(store, message));
        }
        if let Some(Err(bad)) = self.schemas.iter().map(Schema::check).find(Result::is_err) {
            return Err(Error::invalid_at(store, bad.to_string()));
        }
        let rows: usize = self.entries.iter().map(|entry| rows_of(&entry.operation)).sum();
        let most = usize::try_from(LIMITS.rows).unwrap_or(usize::MAX);
        if self.entries.len() > LIMITS.entries || rows > most {
            let message = format!(
                "a batch has {} entries with {rows} rows, and may have {} with {most}; make it several",
                self.entries.len(),
                LIMITS.entries
            );
            return Err(Error::invalid_at(store, message));
        }
        Ok(())
    }
}

/// How many rows an operation brings.
pub(super) fn rows_of(operation: &Operation) -> usize {
    match operation {
        Operation::Append { rows, .. } => rows.len(),
        Operation::Seal | Operation::Reopen | Operation::Trim { .. } | Operation::Expire { .. } | Operation::Delete => {
            0
        }
    }
}
