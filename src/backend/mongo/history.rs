//! The audit trail: one document a line, in the order of the server's time, at most [`HISTORY_KEPT`].

use bson::{DateTime, RawDocument, doc};
use jiff::Timestamp;

use crate::backend::{Answer, HISTORY_KEPT, HistoryLine};
use crate::lease::status::HistoryEntry;

use super::{Mongo, documents, look, statements};

impl Mongo {
    /// The trail, oldest line first.
    pub(super) async fn read_history(&self) -> Answer<Vec<HistoryEntry>> {
        let found = look::find(&self.collection, None, statements::history(), doc! {}).await;
        let mut lines = found.map_err(|error| self.faults.look(error))?;
        lines.sort_by(|a, b| time_and_id(a).cmp(&time_and_id(b)));
        Ok(lines.iter().filter_map(|line| documents::history_entry(line)).collect())
    }

    /// Adds a line, then removes the oldest above the bound. The time in the `_id` is the server's, asked
    /// for first: only its order matters, the line's own time is of the statement that writes it.
    pub(super) async fn add_history(&self, line: &HistoryLine) -> Answer<()> {
        let id = history_id(self.server_time().await?);
        self.collection
            .update_one(statements::id(&id), statements::record(line))
            .upsert(true)
            .await
            .map_err(|error| self.faults.write(error))?;
        let newest_to_go = self
            .collection
            .find_one(statements::history())
            .sort(doc! { "_id": -1 })
            .skip(HISTORY_KEPT as u64)
            .projection(doc! { "_id": 1 })
            .await
            .map_err(|error| self.faults.look(error))?;
        if let Some(newest) = newest_to_go.as_ref().and_then(|line| line.get_str("_id").ok()) {
            self.collection
                .delete_many(statements::history_up_to(newest))
                .await
                .map_err(|error| self.faults.write(error))?;
        }
        Ok(())
    }

    /// The server's clock by itself. A look brings it along as soon as there is any document; this is for
    /// a collection that may be empty.
    pub(super) async fn server_time(&self) -> Answer<DateTime> {
        let hello = self.database.run_command(doc! { "hello": 1 }).await;
        let hello = hello.map_err(|error| self.faults.look(error))?;
        hello.get_datetime("localTime").copied().map_err(|_| {
            crate::backend::BackendError::new(crate::backend::Fault::Internal, "the server does not tell its time")
        })
    }
}

/// A line's own time is what readers see. That in its `_id` is a little older and serves for trimming only:
/// of two lines written at once the later may have the smaller one.
fn time_and_id(line: &RawDocument) -> (Option<DateTime>, Option<&str>) {
    (line.get_datetime("at").ok(), line.get_str("_id").ok())
}

/// Sorts by time: the digits of a time have a fixed width until the year 10000.
fn history_id(now: DateTime) -> String {
    let now = documents::timestamp(now).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("history/{now:.3}-{}", crate::entropy::unique())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time() {
        let id = |millis| history_id(DateTime::from_millis(millis));
        let times = [0, 1, 999, 1_000, 1_700_000_000_000, 1_700_000_000_001, 4_000_000_000_000];
        let ids: Vec<String> = times.map(id).to_vec();
        assert!(ids.is_sorted(), "{ids:?}");
        assert!(id(1_700_000_000_000).starts_with("history/2023-11-14T22:13:20.000Z-"));
    }
}
