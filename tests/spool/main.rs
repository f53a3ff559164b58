//! The spool of a local store and its owner's ingestion: real files, real processes, a real SQLite file.
//!
//! - `publishing`: what is in `incoming/`, and when; forks, lost counters, directories that vanish.
//! - `ordering`: replays, gaps, clocks that step, listings that miss something.
//! - `strange`: whatever else may lie in `incoming/` and in a batch.
//! - `poison`: batches that cannot be applied, and producers that wait for them.
//! - `pausing`: a store that cannot take anything.
//! - `failed`: what lies in `failed/`, and bringing it back.
//! - `writing`: entries gathered to batches.
//! - `crashes`: killed at each step of publishing, applying and failing.
//! - `crowds`: many batches, many producers.
//! - `full`: full disks.
//! - `raw`: batches made by hand; `faulty`: a store that fails when it is told to; `probe`: the process that others start.

mod crashes;
mod crowds;
mod failed;
mod faulty;
mod full;
mod ordering;
mod pausing;
mod poison;
mod probe;
mod publishing;
mod raw;
mod strange;
#[path = "../support/mod.rs"]
mod support;
mod writing;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockhouse::owner::{Ingestor, Round};
use lockhouse::records::sqlite::SqliteTarget;
use lockhouse::records::{Cell, Entry, Operation, Row, Schema, Source, StreamName, Target};
use lockhouse::spool::{FailedFiles, NewBatch, Spool};
use support::scratch::Scratch;

/// How long anything may take that ought to happen soon.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store of a test's own, with its spool.
struct Store {
    directory: PathBuf,
    spool: Spool,
    _scratch: Option<Scratch>,
}

impl Store {
    fn new() -> Store {
        let scratch = Scratch::new("spool");
        let store = Store::within(scratch.path());
        Store { _scratch: Some(scratch), ..store }
    }

    /// The one within a directory.
    fn within(directory: &Path) -> Store {
        let spool = Spool::open(directory.join("p")).unwrap();
        Store { directory: directory.to_owned(), spool, _scratch: None }
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self) -> PathBuf {
        self.directory.join("p")
    }

    fn target(&self) -> SqliteTarget {
        open_target(&self.path())
    }

    fn failed(&self) -> FailedFiles {
        FailedFiles::of(&self.spool)
    }

    /// What lies in one of the spool's directories, by name.
    fn list(&self, part: &str) -> BTreeSet<String> {
        list(&self.spool.path().join(part))
    }

    fn incoming(&self) -> PathBuf {
        self.spool.path().join("incoming")
    }
}

fn list(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn open_target(store: &Path) -> SqliteTarget {
    SqliteTarget::open(store, "the store of a test").unwrap()
}

/// Rows with one text.
fn schema() -> Schema {
    let json = r#"{"kind": "note", "columns": [{"name": "text", "type": "text"}]}"#;
    serde_json::from_str(json).unwrap()
}

fn stream() -> StreamName {
    "notes".parse().unwrap()
}

fn note(text: &str) -> Row {
    schema().row(serde_json::json!({"text": text}).to_string().as_bytes()).unwrap()
}

fn append(texts: &[&str]) -> Entry {
    let rows = texts.iter().map(|text| note(text)).collect();
    let operation = Operation::Append { kind: "note".parse().unwrap(), rows, ttl: None, seal: false };
    Entry { stream: stream(), generation: None, operation }
}

/// A batch that appends these notes.
fn batch(texts: &[&str]) -> NewBatch {
    NewBatch::new(vec![schema()], vec![append(texts)])
}

/// The notes of a store, in the order in which they were appended.
fn notes(target: &impl Source) -> Vec<String> {
    let mut notes = Vec::new();
    let mut from = 1;
    while let Some(window) = target.scan(&stream(), from, 1000).unwrap() {
        if window.rows.is_empty() {
            break;
        }
        notes.extend(window.rows.iter().map(|(_, row)| match &row.cells()[0] {
            Cell::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        }));
        from = window.next;
    }
    notes
}

/// One round, by a process that may write.
fn round(ingestor: &mut Ingestor, target: &mut dyn Target) -> Round {
    ingestor.round(target, &mut || Ok(()))
}

/// Rounds until there is nothing to do at once. All that they did.
fn rounds(ingestor: &mut Ingestor, target: &mut dyn Target) -> Round {
    let mut all = round(ingestor, target);
    for _ in 0..10_000 {
        if !all.more {
            return all;
        }
        let next = round(ingestor, target);
        all.applied.extend(next.applied);
        all.failed.extend(next.failed);
        all.skipped.extend(next.skipped);
        (all.waiting, all.stuck, all.backlog) = (next.waiting, next.stuck, next.backlog);
        (all.paused, all.refused, all.more, all.next) = (next.paused, next.refused, next.more, next.next);
    }
    panic!("there is always more to do: {all:?}");
}

/// The ids of what a round applied.
fn applied(round: &Round) -> Vec<&str> {
    round.applied.iter().map(|applied| applied.name.id()).collect()
}

/// Nothing went wrong, nothing waits, and nothing is left.
fn assert_clean(round: &Round) {
    assert!(round.failed.is_empty() && round.skipped.is_empty() && round.stuck.is_empty(), "{round:?}");
    assert!(round.waiting.is_empty() && round.paused.is_none() && round.refused.is_none(), "{round:?}");
    assert_eq!(round.backlog, 0, "{round:?}");
}
