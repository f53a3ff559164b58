//! One record store, written by any number of processes: real ones, killed by real signals and at named points.
//!
//! `roles` is what one process sees; `probe` the other processes; `crashes` what is left by those that die.

#[path = "../support/mod.rs"]
mod support;

mod fscks;
mod opening;
mod probe;
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
