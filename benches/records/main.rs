//! What records cost beside a bare loop of prepared inserts of the same rows, into the same table with the same
//! settings, in the same run; and whether reading a long stream stays as small as reading a short one.
//!
//! Arguments that are no options are filters: only rows whose name contains one of them are measured.

#[path = "../support/table.rs"]
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use lockhouse::records::sqlite::SqliteTarget;
use lockhouse::records::{Batch, Entry, Operation, Row as Record, Schema, Source, StreamName, Target};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use tempfile::TempDir;

use table::{Aim, Row, compare};

const SAMPLES: usize = 10;
/// Rows of one batch.
const ROWS: i64 = 100_000;
/// At least 80 % of the bare loop's speed.
const BULK: Aim = Aim::Ratio(1.25);
/// Rows of a window.
const WINDOW: usize = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    table::head(&format!("records, SQLite {}", SqliteTarget::sqlite_version()), "bare inserts");
    let kinds = [
        ("append 100,000 rows", json!({})),
        ("the same with a key, skipping", json!({"key": ["id"]})),
        ("the same with a key, replacing", json!({"key": ["id"], "on_conflict": "replace"})),
    ];
    for (name, more) in kinds {
        if wanted(name) {
            bulk(name, &schema(more)).await;
        }
    }
    if wanted("growth") {
        growth();
    }
}

fn schema(more: Value) -> Schema {
    let mut schema = json!({"kind": "order", "columns": [
        {"name": "id", "type": "integer"},
        {"name": "item", "type": "text"},
        {"name": "price", "type": "real"},
        {"name": "paid", "type": "boolean"},
    ]});
    schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(schema).unwrap()
}

fn item(id: i64) -> String {
    format!("the item with the number {id}")
}

fn records(schema: &Schema, ids: std::ops::Range<i64>) -> Vec<Record> {
    let record = |id: i64| json!({"id": id, "item": item(id), "price": id as f64 / 8.0, "paid": id % 2 == 0});
    ids.map(|id| schema.row(record(id).to_string().as_bytes()).unwrap()).collect()
}

fn batch(schema: &Schema, seq: u64, rows: Vec<Record>) -> Batch {
    let operation = Operation::Append { kind: schema.kind.clone(), rows, ttl: None, seal: false };
    Batch {
        id: format!("bench.{seq}"),
        instance: "bench".to_owned(),
        seq,
        schemas: vec![schema.clone()],
        entries: vec![Entry { stream: stream(), generation: None, operation }],
    }
}

fn stream() -> StreamName {
    "s".parse().unwrap()
}

fn open(directory: &TempDir) -> SqliteTarget {
    SqliteTarget::open(&directory.path().join("store"), "bench").unwrap()
}

fn apply(target: &mut SqliteTarget, batch: &Batch) -> Duration {
    let began = Instant::now();
    target.append_batch(batch, Timestamp::UNIX_EPOCH, &mut || Ok(())).unwrap();
    began.elapsed()
}

/// The least that such an append can be.
fn bare(directory: &Path, key: &str, rows: &[(i64, String, f64, bool)]) -> Duration {
    let connection = Connection::open(directory.join("bare")).unwrap();
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    connection.pragma_update(None, "synchronous", "FULL").unwrap();
    connection
        .execute_batch(&format!(
            "CREATE TABLE t (_stream INTEGER NOT NULL, _seq INTEGER NOT NULL, id INTEGER NOT NULL, item TEXT NOT NULL,
             price REAL NOT NULL, paid INTEGER NOT NULL, PRIMARY KEY (_stream, _seq){key}) STRICT, WITHOUT ROWID"
        ))
        .unwrap();
    let began = Instant::now();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut insert = connection
        .prepare("INSERT INTO t (_stream, _seq, id, item, price, paid) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
        .unwrap();
    for (seq, (id, item, price, paid)) in (1_i64..).zip(rows) {
        insert.execute(params![1, seq, id, item, price, paid]).unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
    began.elapsed()
}

async fn bulk(name: &'static str, schema: &Schema) {
    let ours = batch(schema, 1, records(schema, 0..ROWS));
    let theirs: Vec<_> = (0..ROWS).map(|id| (id, item(id), id as f64 / 8.0, id % 2 == 0)).collect();
    let key = if schema.key.is_empty() { "" } else { ", UNIQUE (_stream, id)" };
    compare(
        Row::of(name).aim(BULK),
        SAMPLES,
        async || {
            let directory = tempfile::tempdir().unwrap();
            apply(&mut open(&directory), &ours)
        },
        async || bare(tempfile::tempdir().unwrap().path(), key, &theirs),
    )
    .await
    .print();
}

/// Ten times the rows may take eleven times as long, and no more memory.
fn growth() {
    let schema = schema(json!({"key": ["id"]}));
    let directory = tempfile::tempdir().unwrap();
    let mut target = open(&directory);
    let (mut filled, mut seq) = (Duration::ZERO, 0);
    let mut fill = |target: &mut SqliteTarget, to: i64| {
        while seq * 10_000 < to {
            let rows = records(&schema, seq * 10_000..(seq + 1) * 10_000);
            seq += 1;
            filled += apply(target, &batch(&schema, seq.cast_unsigned(), rows));
        }
        filled
    };
    let filled = [fill(&mut target, ROWS), fill(&mut target, 10 * ROWS)];
    let mut scanned = [Duration::ZERO; 2];
    let (before, mut most) = (resident(), 0);
    for (limit, took) in [1, 10].into_iter().zip(&mut scanned) {
        let began = Instant::now();
        let (mut from, mut count) = (1, 0);
        while count < limit * ROWS {
            let window = target.scan(&stream(), from, WINDOW).unwrap().unwrap();
            count += i64::try_from(window.rows.len()).unwrap();
            from = window.next;
            most = most.max(resident());
        }
        *took = began.elapsed();
    }
    let grown = most.saturating_sub(before);
    for (what, [small, large]) in [("appended", filled), ("scanned", scanned)] {
        let growth = large.as_secs_f64() / small.as_secs_f64();
        let verdict = if growth <= 11.0 { "" } else { "  MISSED" };
        println!("growth: 100,000 rows {what} in {small:.2?}, 1,000,000 in {large:.2?}: {growth:.1} x   11 x{verdict}");
    }
    println!("growth: memory while 1,000,000 rows were scanned: {grown} KiB");
}

/// Of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}
