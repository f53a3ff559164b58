//! What a write costs that another process applies: from the call to the answer, beside a bare loop that makes the same
//! files durable in the same steps; and rows in bulk, beside bare inserts of the same rows.
//!
//! The owner is this program once more. Both kinds take turns on the same file system, so that noise meets both alike.
//!
//! ```text
//! cargo bench --bench spool [--no-default-features --features local]
//! ```
//!
//! The first number that is given is the count of writes (500).

#[path = "../support/table.rs"]
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod table;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockhouse::owner::{Ingestor, Role, Store, Until};
use lockhouse::records::sqlite::SqliteTarget;
use lockhouse::records::{Entry, Operation, Row as Record, Schema, StreamName};
use lockhouse::spool::{NewBatch, Producer, Spool};
use rusqlite::{Connection, params};

/// The aim for a write and its answer.
const AIM: Duration = Duration::from_millis(10);
/// Rows in bulk.
const ROWS: u64 = 200_000;
/// Rows of one batch: what a writer cuts unless it is told otherwise.
const BATCH: u64 = 50_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let word = words.next();
    if word.as_deref() == Some("own") {
        return own(Path::new(&words.next().expect("own PATH"))).await;
    }
    let writes: u64 = word.map_or(500, |word| word.parse().expect("a count of writes"));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("p");
    let mut owner = start(&path);
    let store = Store::open(&path).build("bench").await.expect("an open store");
    assert_eq!(store.role(), Role::Reader);
    single(&store, directory.path(), writes).await;
    bulk(&store, directory.path()).await;
    store.close().await.expect("an end");
    owner.kill().expect("an own child");
    owner.wait().expect("its end");
}

/// An owner, until it is killed.
async fn own(path: &Path) {
    let _store = Store::open(path).build("bench").await.expect("an open store");
    println!("ready");
    std::io::stdout().flush().expect("somebody reads");
    std::future::pending::<()>().await;
}

fn start(path: &Path) -> Child {
    let mut owner = Command::new(std::env::current_exe().expect("this program"))
        .arg("own")
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("an owner");
    let mut line = String::new();
    BufReader::new(owner.stdout.take().expect("a pipe")).read_line(&mut line).expect("its word");
    assert_eq!(line, "ready\n");
    owner
}

fn schema() -> Schema {
    let json = r#"{"kind": "order", "columns": [
        {"name": "id", "type": "integer"}, {"name": "item", "type": "text"}, {"name": "price", "type": "real"}]}"#;
    serde_json::from_str(json).expect("a schema")
}

fn record(schema: &Schema, id: u64) -> Record {
    let json = format!(r#"{{"id": {id}, "item": "the item with the number {id}", "price": {}}}"#, id as f64 / 8.0);
    schema.row(json.as_bytes()).expect("a row")
}

/// One row after the other, each answered before the next.
async fn single(store: &Store, directory: &Path, writes: u64) {
    let (schema, stream) = (schema(), "single".parse::<StreamName>().expect("a name"));
    let bare = Bare::new(directory);
    let (mut ours, mut theirs, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    for id in 0..writes {
        let rows = vec![record(&schema, id)];
        let begun = Instant::now();
        store.append(&stream, &schema, rows).await.expect("an outcome");
        ours.push(begun.elapsed());
        let begun = Instant::now();
        syncs.push(bare.write(id));
        theirs.push(begun.elapsed());
    }
    table::head("a row that another process applies", "bare files");
    table::Row::of("published, applied, answered")
        .aim(table::Aim::Mostly(AIM))
        .limited_by("five fsyncs, one after the other")
        .with(ours, theirs)
        .print();
    table::Row::of("the fsyncs of the bare files alone").with(syncs, Vec::new()).print();
}

/// The least that makes a batch durable, and then its row: what is written is not read again, nobody is told.
struct Bare {
    from: std::path::PathBuf,
    incoming: std::path::PathBuf,
    log: File,
}

impl Bare {
    fn new(directory: &Path) -> Bare {
        let [from, incoming] = ["bare-tmp", "bare-incoming"].map(|name| directory.join(name));
        for path in [&from, &incoming] {
            std::fs::create_dir(path).expect("a directory");
        }
        Bare { from, incoming, log: File::create(directory.join("bare-log")).expect("a file") }
    }

    /// How long its syncs took.
    fn write(&self, id: u64) -> Duration {
        let mut syncing = Duration::ZERO;
        let mut sync = |file: &File| {
            let begun = Instant::now();
            file.sync_all().expect("a sync");
            syncing += begun.elapsed();
        };
        let batch = self.from.join(id.to_string());
        std::fs::create_dir(&batch).expect("a directory");
        for (name, bytes) in [("0.ndjson", 100), ("manifest.json", 900)] {
            let mut file = File::create(batch.join(name)).expect("a file");
            file.write_all(&vec![b'x'; bytes]).expect("room");
            sync(&file);
        }
        sync(&File::open(&batch).expect("a directory"));
        std::fs::rename(&batch, self.incoming.join(id.to_string())).expect("a rename");
        sync(&File::open(&self.incoming).expect("a directory"));
        // The pages that a small commit has in SQLite's log.
        (&self.log).write_all(&[b'x'; 6 * 4096]).expect("room");
        sync(&self.log);
        syncing
    }
}

/// Batches that lie in a spool, applied by this process.
fn ingest(directory: &Path) -> Duration {
    let (schema, stream, path) = (schema(), "bulk".parse::<StreamName>().expect("a name"), directory.join("q"));
    let spool = Spool::open(&path).expect("a spool");
    let producer = Producer::new(&spool, "bench");
    for first in (0..ROWS).step_by(BATCH as usize) {
        let rows = (first..first + BATCH).map(|id| record(&schema, id)).collect();
        let operation = Operation::Append { kind: schema.kind.clone(), rows, ttl: None, seal: false };
        let entry = Entry { stream: stream.clone(), generation: None, operation };
        producer.publish(&NewBatch::new(vec![schema.clone()], vec![entry]), "ndjson").expect("a batch");
    }
    let mut target = SqliteTarget::open(&path, "bench").expect("a file");
    let mut ingestor = Ingestor::new(&spool);
    let begun = Instant::now();
    let mut applied = 0;
    while applied < ROWS / BATCH {
        let round = ingestor.round(&mut target, &mut || Ok(()));
        assert!(round.failed.is_empty() && round.paused.is_none(), "{round:?}");
        applied += round.applied.len() as u64;
    }
    begun.elapsed()
}

/// Many rows through the spool, until all of them are applied.
async fn bulk(store: &Store, directory: &Path) {
    let (schema, stream) = (schema(), "bulk".parse::<StreamName>().expect("a name"));
    let records: Vec<_> = (0..ROWS).map(|id| record(&schema, id)).collect();
    let begun = Instant::now();
    let mut writer = store.writer();
    for record in records {
        writer.row(&stream, &schema, record).await.expect("room");
    }
    let flushed = writer.flush(Until::Applied).await.expect("an outcome");
    let ours = begun.elapsed();
    assert_eq!(flushed.stored, ROWS);
    let each = |took: Duration| vec![took / u32::try_from(ROWS).expect("a count")];
    table::head("200,000 rows in bulk, each row", "bare inserts");
    // From the batches in the spool to the rows in the file: listed, read, digested, parsed, checked, inserted, in the
    // ledger. The bare inserts find their rows in memory; both commit four times, with the same settings.
    table::Row::of("ingested: from the spool to the file")
        .aim(table::Aim::Ratio(1.25))
        .limited_by("CPU: the first batch is read before anything is inserted")
        .with(each(ingest(directory)), each(inserts(directory, "bare-ingest")))
        .print();
    // From rows in memory, as the bare inserts, to the outcome that the producer gets back.
    table::Row::of("the whole way, by another process")
        .limited_by("CPU: rows are made JSON, digested, and read again before they are inserted")
        .with(each(ours), each(inserts(directory, "bare")))
        .print();
}

fn inserts(directory: &Path, name: &str) -> Duration {
    let connection = Connection::open(directory.join(name)).expect("a database");
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).expect("a log");
    connection.pragma_update(None, "synchronous", "FULL").expect("a setting");
    let table = "CREATE TABLE t (_stream INTEGER NOT NULL, _seq INTEGER NOT NULL, id INTEGER NOT NULL,
        item TEXT NOT NULL, price REAL NOT NULL, PRIMARY KEY (_stream, _seq)) STRICT, WITHOUT ROWID";
    connection.execute_batch(table).expect("a table");
    let rows: Vec<_> = (0..ROWS).map(|id| (id, format!("the item with the number {id}"), id as f64 / 8.0)).collect();
    let begun = Instant::now();
    let insert = "INSERT INTO t (_stream, _seq, id, item, price) VALUES (1, ?1, ?1, ?2, ?3)";
    let mut insert = connection.prepare(insert).expect("a statement");
    for batch in rows.chunks(BATCH as usize) {
        connection.execute_batch("BEGIN IMMEDIATE").expect("a transaction");
        for (id, item, price) in batch {
            insert.execute(params![id.cast_signed(), item, price]).expect("a row");
        }
        connection.execute_batch("COMMIT").expect("a commit");
    }
    begun.elapsed()
}
