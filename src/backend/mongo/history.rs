//! The audit trail: one document a line, ordered by the server's time in it. A line costs one command; once in
//! a while a process looks for lines above the bound.

use std::cell::Cell;

use bson::{DateTime, RawDocument, doc};
use futures::TryStreamExt;

use crate::backend::{Answer, HISTORY_KEPT, HistoryLine};
use crate::lease::status::HistoryEntry;

use super::{Mongo, documents, look, statements};

/// A process trims with its first line, then with one line of so many. So the trail may stand above the bound
/// by what processes wrote since they last trimmed; readers are shown no more than the bound.
pub(super) const TRIMMED_EVERY: u32 = 50;
/// Of a trail that has grown long, so many lines go at a time.
const TRIMMED_AT_ONCE: i64 = 5_000;

/// How many lines this process writes before it trims.
#[derive(Debug, Default)]
pub(super) struct Untrimmed(Cell<u32>);

impl Untrimmed {
    /// Whether to trim with the line that was just written.
    fn is_due(&self) -> bool {
        let due = self.0.get() == 0;
        self.0.set(if due { TRIMMED_EVERY } else { self.0.get() } - 1);
        due
    }

    fn is_due_again(&self) {
        self.0.set(0);
    }
}

impl Mongo {
    /// The trail, oldest line first.
    pub(super) async fn read_history(&self) -> Answer<Vec<HistoryEntry>> {
        let found = look::find(&self.collection, None, statements::history(), doc! {}).await;
        let mut lines = found.map_err(|error| self.faults.look(error))?;
        lines.sort_by(|a, b| time_and_id(a).cmp(&time_and_id(b)));
        let mut entries: Vec<_> = lines.iter().filter_map(|line| documents::history_entry(line)).collect();
        entries.drain(..entries.len().saturating_sub(HISTORY_KEPT));
        Ok(entries)
    }

    /// Adds a line. Sent again it changes nothing.
    pub(super) async fn add_history(&self, line: &HistoryLine) -> Answer<()> {
        self.collection
            .update_one(statements::id(&format!("history/{}", line.name)), statements::record(line))
            .upsert(true)
            .await
            .map_err(|error| self.faults.write(error))?;
        // The line stands, whatever becomes of older ones.
        if self.untrimmed.is_due()
            && let Err(error) = self.trim_history().await
        {
            self.untrimmed.is_due_again();
            tracing::debug!(store = %self.name, error = error.message, "the history was not trimmed");
        }
        Ok(())
    }

    /// Removes the oldest lines above the bound.
    async fn trim_history(&self) -> Answer<()> {
        let surplus = self
            .collection
            .find(statements::history())
            .sort(doc! { "at": -1, "_id": -1 })
            .skip(HISTORY_KEPT as u64)
            .limit(TRIMMED_AT_ONCE)
            .projection(doc! { "_id": 1 });
        let surplus = async { surplus.await?.try_collect::<Vec<_>>().await };
        let surplus = surplus.await.map_err(|error| self.faults.look(error))?;
        let ids: Vec<&str> = surplus.iter().filter_map(|line| line.get_str("_id").ok()).collect();
        if !ids.is_empty() {
            let deleted = self.collection.delete_many(statements::one_of(&ids)).await;
            deleted.map_err(|error| self.faults.write(error))?;
        }
        Ok(())
    }
}

fn time_and_id(line: &RawDocument) -> (Option<DateTime>, Option<&str>) {
    (line.get_datetime("at").ok(), line.get_str("_id").ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_trims_and_then_one_of_many() {
        let untrimmed = Untrimmed::default();
        let due: Vec<u32> = (0..=2 * TRIMMED_EVERY).filter(|_| untrimmed.is_due()).collect();
        assert_eq!(due, [0, TRIMMED_EVERY, 2 * TRIMMED_EVERY]);
        assert!(!untrimmed.is_due());
        untrimmed.is_due_again();
        assert!(untrimmed.is_due() && !untrimmed.is_due());
    }
}
