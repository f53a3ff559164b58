//! One record store, written by any number of processes: real ones, killed by real signals and at named points.
//!
//! `roles` is what one process sees, `reading` is who only looks, `opening` what cannot be opened or owned, `outcomes` what comes back to a reader,
//! `crashes` what those leave that die, `fscks` and `rebuilt` an fsck beside an owner, `crowd` all of it at once for a
//! while. `probe` is the other processes, `checker` what an fsck runs.
//!
//! # Where to find what is tested of a hand-over that anything may interrupt
//!
//! | what happens | where |
//! | --- | --- |
//! | the owner is killed between appends, before a commit, after it, before and after the move to `trash/` | `crashes`: `killed_while_four_write…` |
//! | it is killed while it starts, or makes the store | `crashes`: `killed_while_it_starts…`, `killed_while_it_makes…` |
//! | it is killed after the last drain, or a batch is published after that | `crashes`: `killed_while_it_closes…` |
//! | three readers and an owner that is killed: one of them takes over | `crashes`: `killed_while_four_write…` |
//! | a producer that ends at once, a backlog without an owner | `roles`: `a_producer_may_end_at_once…` |
//! | a widened and a changed schema, a sealed stream in a bulk batch, a dead generation | `outcomes`: `each_entry…`; the rules: `records::schemas`, `records::batches` |
//! | fifty batches and a seal, in order | `crashes`: `fifty_batches…` |
//! | a manifest from the future | `outcomes`; retried by a newer build: `spool::failed` |
//! | a reader learns what the owner did, and reads it | `roles`: `a_reader_gets_back…`, `opening`: `an_outcome_that_is_too_long…` |
//! | an opener waits for an owner that starts | `opening`: `an_opener_waits…` |
//! | the socket is gone | `outcomes`: `without_a_socket…` |
//! | another program holds SQLite's lock | `outcomes`: `another_programs_lock…` |
//! | the role changes between the question and the write | `outcomes`: `a_role_that_changes…` |
//! | an fsck replaces the file | `rebuilt`, `crowd` |
//! | a full disk | `outcomes`: `on_a_full_disk…`; in the middle of a batch: `records::crashes`, `spool::full` |
//! | builds of other catalogs, forks, an fsck that ends under its own writers | `opening` |
//! | every step of publishing and of applying | `spool::crashes` |
//! | replays, a lost counter, a clock that steps back, a listing that misses something | `spool::ordering` |
//! | poison, strange things in `incoming/`, ten thousand batches at once | `spool::poison`, `spool::strange`, `spool::crowds` |
//! | eight processes, kills, fscks | `crowd` |

#[path = "../support/mod.rs"]
mod support;

mod checker;
mod crashes;
mod crowd;
mod fscks;
mod opening;
mod outcomes;
mod probe;
mod reading;
mod rebuilt;
mod roles;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockhouse::owner::Store;
use lockhouse::records::{Row, Schema, StreamName};

/// How long anything may take that ought to happen soon, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// The path of a store in a directory of its own.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("records")
    }
}

fn schema() -> Schema {
    let json = r#"{"kind": "note", "columns": [
        {"name": "by", "type": "text"}, {"name": "n", "type": "integer"}, {"name": "more", "type": "text", "optional": true}
    ]}"#;
    serde_json::from_str(json).unwrap()
}

fn stream(name: &str) -> StreamName {
    name.parse().unwrap()
}

fn row(by: &str, n: u64) -> Row {
    schema().row(format!(r#"{{"by": "{by}", "n": {n}}}"#).as_bytes()).unwrap()
}

async fn open(path: &Path) -> Store {
    tokio::time::timeout(PATIENCE, Store::open(path).build("test")).await.expect("opened in time").unwrap()
}

/// All rows of a stream as JSON, in the order of their seqs.
async fn rows(store: &Store, name: &str) -> Vec<serde_json::Value> {
    let (mut all, mut from) = (Vec::new(), 1);
    while let Some(window) = store.scan(&stream(name), from, 1000).await.unwrap() {
        for (seq, row) in &window.rows {
            assert!(*seq >= from);
            let mut json = Vec::new();
            window.schema.write(row, &mut json);
            all.push(serde_json::from_slice(&json).unwrap());
        }
        if window.rows.is_empty() {
            break;
        }
        from = window.next;
    }
    all
}

/// The numbers that one writer's rows have, in the order of the stream.
async fn numbers(store: &Store, name: &str, by: &str) -> Vec<u64> {
    let rows = rows(store, name).await;
    rows.iter().filter(|row| row["by"] == by).map(|row| row["n"].as_u64().unwrap()).collect()
}
