//! A store of a test's own, and short words for batches.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use lockhouse::records::sqlite::SqliteTarget;
use lockhouse::records::{
    Applied, Batch, BatchOutcome, Entry, Operation, Outcome, Refusal, Row, Schema, Source, StreamMeta, StreamName,
    Target, TargetError,
};
use serde_json::{Value, json};

use crate::support::scratch::Scratch;

pub(crate) const ID: &str = "6f1c8a52";

/// A moment in the owner's life: the tests move it as they like.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + seconds).unwrap()
}

pub(crate) struct Store {
    scratch: Scratch,
    pub(crate) target: SqliteTarget,
    seq: u64,
}

impl Store {
    pub(crate) fn new() -> Store {
        let scratch = Scratch::new("records");
        let target = SqliteTarget::open(&scratch.path().join("store"), ID).unwrap();
        Store { scratch, target, seq: 0 }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.scratch.path().join("store")
    }

    pub(crate) fn reader(&self) -> SqliteTarget {
        SqliteTarget::open_read_only(&self.path(), ID).unwrap().expect("there is a store")
    }

    /// Applies entries as the next batch of one instance, at a moment.
    pub(crate) fn apply_at(&mut self, now: Timestamp, schemas: &[Schema], entries: Vec<Entry>) -> Vec<Outcome> {
        self.seq += 1;
        let batch = batch("main", self.seq, schemas, entries);
        entries_of(self.target.append_batch(&batch, now, &mut stands).unwrap())
    }

    pub(crate) fn apply(&mut self, schemas: &[Schema], entries: Vec<Entry>) -> Vec<Outcome> {
        self.apply_at(at(0), schemas, entries)
    }

    /// One entry, which is applied.
    pub(crate) fn applied(&mut self, schemas: &[Schema], entry: Entry) -> Applied {
        match self.apply(schemas, vec![entry]).remove(0) {
            Outcome::Applied(applied) => applied,
            refused => panic!("{refused:?}"),
        }
    }

    /// One entry, which is refused.
    pub(crate) fn refused(&mut self, schemas: &[Schema], entry: Entry) -> Refusal {
        match self.apply(schemas, vec![entry]).remove(0) {
            Outcome::Refused(refusal) => refusal,
            applied => panic!("{applied:?}"),
        }
    }

    pub(crate) fn meta(&self, stream: &str) -> StreamMeta {
        self.target.meta(&name(stream)).unwrap().unwrap_or_else(|| panic!("no stream {stream}"))
    }

    /// All rows of a stream with their seqs, as JSON, read in small windows.
    pub(crate) fn rows(&self, stream: &str) -> Vec<(u64, Value)> {
        rows(&self.target, stream)
    }
}

pub(crate) fn rows(source: &dyn Source, stream: &str) -> Vec<(u64, Value)> {
    let (mut from, mut all) = (1, Vec::new());
    loop {
        let Some(window) = source.scan(&name(stream), from, 2).unwrap() else { return all };
        for (seq, row) in &window.rows {
            let mut json = Vec::new();
            window.schema.write(row, &mut json);
            all.push((*seq, serde_json::from_slice(&json).unwrap()));
        }
        assert!(window.next >= from);
        if window.rows.is_empty() {
            assert_eq!(window.next, window.meta.next);
            assert_eq!(all.len() as u64, window.meta.rows, "the count of rows is kept");
            return all;
        }
        from = window.next;
    }
}

pub(crate) fn stands() -> lockhouse::Result<()> {
    Ok(())
}

pub(crate) fn name(stream: &str) -> StreamName {
    stream.parse().unwrap()
}

pub(crate) fn batch(instance: &str, seq: u64, schemas: &[Schema], entries: Vec<Entry>) -> Batch {
    let id = format!("{instance}.{seq}");
    Batch { id, instance: instance.to_owned(), seq, schemas: schemas.to_vec(), entries }
}

pub(crate) fn entries_of(outcome: BatchOutcome) -> Vec<Outcome> {
    match outcome {
        BatchOutcome::Applied { entries, .. } => entries,
        other => panic!("{other:?}"),
    }
}

/// `order`: an integer `id`, which may be the key, a text `item`, an optional real `price`.
pub(crate) fn order(more: Value) -> Schema {
    let mut schema = json!({
        "kind": "order",
        "columns": [
            {"name": "id", "type": "integer"},
            {"name": "item", "type": "text"},
            {"name": "price", "type": "real", "optional": true},
        ],
    });
    schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(schema).unwrap()
}

pub(crate) fn plain() -> Schema {
    order(json!({}))
}

pub(crate) fn row(schema: &Schema, json: Value) -> Row {
    schema.row(json.to_string().as_bytes()).unwrap()
}

/// Rows with these ids.
pub(crate) fn ids(schema: &Schema, ids: impl IntoIterator<Item = i64>) -> Vec<Row> {
    ids.into_iter().map(|id| row(schema, json!({"id": id, "item": format!("item {id}")}))).collect()
}

pub(crate) fn entry(stream: &str, operation: Operation) -> Entry {
    Entry { stream: name(stream), generation: None, operation }
}

pub(crate) fn append(stream: &str, schema: &Schema, rows: Vec<Row>) -> Entry {
    entry(stream, Operation::Append { kind: schema.kind.clone(), rows, ttl: None, seal: false })
}

pub(crate) fn append_for(stream: &str, schema: &Schema, rows: Vec<Row>, ttl: Duration) -> Entry {
    entry(stream, Operation::Append { kind: schema.kind.clone(), rows, ttl: Some(ttl), seal: false })
}

pub(crate) fn fenced(mut entry: Entry, generation: u64) -> Entry {
    entry.generation = Some(generation);
    entry
}

pub(crate) fn seqs(rows: &[(u64, Value)]) -> Vec<u64> {
    rows.iter().map(|(seq, _)| *seq).collect()
}

pub(crate) fn pauses<T: std::fmt::Debug>(result: Result<T, TargetError>) -> String {
    match result {
        Err(TargetError::Pause(why)) => why,
        other => panic!("{other:?}"),
    }
}
