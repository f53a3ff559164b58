//! What became of the rows of one command.

use lockhouse::StoreName;
use lockhouse::records::{Applied, KindName, StreamName};
use serde_json::{Value, json};

use super::progress::grouped;

/// Counts.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Rows that were handed over.
    pub(super) rows: u64,
    /// The batches that they went in.
    pub(super) batches: Vec<String>,
    /// Those of which nothing is known yet.
    pub(super) pending: Vec<String>,
    stored: u64,
    skipped: u64,
    replaced: u64,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    generation: Option<u64>,
    pub(super) sealed: bool,
}

impl Tally {
    /// A batch was applied.
    pub(super) fn add(&mut self, applied: &Applied) {
        self.stored += applied.stored;
        self.skipped += applied.skipped;
        self.replaced += applied.removed;
        self.first_seq = self.first_seq.or(applied.first_seq);
        self.last_seq = applied.last_seq.or(self.last_seq);
        self.generation = Some(applied.generation);
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "rows": self.rows, "stored": self.stored, "skipped": self.skipped, "replaced": self.replaced,
            "first_seq": self.first_seq, "last_seq": self.last_seq, "generation": self.generation,
            "sealed": self.sealed, "batches": self.batches, "pending": self.pending
        })
    }

    /// The whole result.
    pub(super) fn object(&self, store: &StoreName, stream: &StreamName, kind: Option<&KindName>) -> Value {
        let mut object = json!({"schema": 1, "store": store, "stream": stream, "kind": kind});
        if let (Some(object), Value::Object(counts)) = (object.as_object_mut(), self.json()) {
            object.extend(counts);
        }
        object
    }

    /// In a sentence.
    pub(super) fn text(&self, stream: &StreamName) -> String {
        let mut text = format!("stream {stream}: {} rows stored", grouped(self.stored));
        if let (Some(first), Some(last)) = (self.first_seq, self.last_seq) {
            text.push_str(&format!(" (seqs {first} to {last})"));
        }
        text.push_str(&format!(", {} skipped, {} replaced", grouped(self.skipped), grouped(self.replaced)));
        if self.sealed {
            text.push_str(", sealed");
        }
        text
    }

    /// What was done before it failed; `None`: nothing.
    pub(super) fn so_far(&self) -> Option<String> {
        let done = (self.stored + self.skipped > 0)
            .then(|| format!("{} rows before its batch are applied", grouped(self.stored + self.skipped)));
        let pending = self.pending.first().map(|first| {
            format!("{} batches before it are handed over, `lockhouse records await {first}`", self.pending.len())
        });
        let said: Vec<String> = done.into_iter().chain(pending).collect();
        (!said.is_empty()).then(|| said.join(" and "))
    }
}
