//! The tables that every store has, and how they came to be: migrations that are only ever added to.
//!
//! | table | a row for each |
//! | --- | --- |
//! | `lockhouse_store` | store: its identity |
//! | `lockhouse_kinds` | kind: its schema, as JSON |
//! | `lockhouse_streams` | name of a stream that there is or was: a deleted one keeps its generation |
//! | `lockhouse_batches` | batch that was applied, failed or skipped, until it is swept |
//! | `lockhouse_producers` | instance that ever published: its last seq |
//! | `rows_KIND` | row of a kind; `view_KIND` shows them with the names of their streams |
//!
//! Times are milliseconds since 1970.

use rusqlite::{Connection, OptionalExtension};

/// Marks a SQLite file as ours: "lkhs".
pub(super) const APPLICATION_ID: i32 = 0x6c6b_6873;

/// Each brings a store from the version of its place to the next. One that was released is never changed.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE lockhouse_store (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        store_id TEXT NOT NULL
    ) STRICT;
    CREATE TABLE lockhouse_kinds (
        kind TEXT NOT NULL PRIMARY KEY COLLATE NOCASE,
        schema TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE lockhouse_streams (
        id INTEGER PRIMARY KEY,
        stream TEXT NOT NULL UNIQUE,
        generation INTEGER NOT NULL,
        kind TEXT,
        first INTEGER NOT NULL,
        next INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        sealed INTEGER NOT NULL,
        expires INTEGER
    ) STRICT;
    CREATE INDEX lockhouse_streams_by_end ON lockhouse_streams (expires) WHERE expires IS NOT NULL;
    CREATE TABLE lockhouse_batches (
        number INTEGER PRIMARY KEY,
        id TEXT UNIQUE,
        instance TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        outcome TEXT NOT NULL
    ) STRICT;
    CREATE INDEX lockhouse_batches_by_time ON lockhouse_batches (at);
    CREATE TABLE lockhouse_producers (
        instance TEXT NOT NULL PRIMARY KEY,
        seq INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
"];

/// The version that this build knows.
pub const CATALOG_VERSION: u32 = MIGRATIONS.len() as u32;

/// What a SQLite file says that it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing yet.
    Empty,
    /// A store of this version.
    Ours(i64),
    /// Another program's.
    Foreign,
}

pub(super) fn found(connection: &Connection) -> rusqlite::Result<Found> {
    let (application, version, tables) = connection.query_row(
        "SELECT (SELECT application_id FROM pragma_application_id),
                (SELECT user_version FROM pragma_user_version),
                (SELECT count(*) FROM sqlite_schema)",
        [],
        |row| Ok((row.get::<_, i32>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)),
    )?;
    Ok(match (application, version, tables) {
        (0, 0, 0) => Found::Empty,
        (APPLICATION_ID, version, _) => Found::Ours(version),
        _ => Found::Foreign,
    })
}

/// Brings a store to this build's version, within a transaction of the caller's.
pub(super) fn migrate(transaction: &Connection, from: usize, store_id: &str) -> rusqlite::Result<()> {
    for migration in &MIGRATIONS[from..] {
        transaction.execute_batch(migration)?;
    }
    if from == 0 {
        transaction.execute("INSERT INTO lockhouse_store (one, store_id) VALUES (1, ?1)", [store_id])?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    transaction.pragma_update(None, "user_version", CATALOG_VERSION)
}

pub(super) fn store_id(connection: &Connection) -> rusqlite::Result<Option<String>> {
    connection.query_row("SELECT store_id FROM lockhouse_store", [], |row| row.get(0)).optional()
}
