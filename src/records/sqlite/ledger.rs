//! What became of batches, and how far each instance came.
//!
//! How far an instance came is never forgotten: a row of some sixty bytes for each open of a store that wrote something, so
//! a million of them are about as large as a batch. It is all that tells an old batch from a new one once the ledger has
//! forgotten its id: a batch that comes back much later, with a restored directory or by hand, is late by it, and is not
//! applied twice. Neither the instance's death nor any age makes a row superfluous: a copy of the spool can be older than
//! both, and whoever lives and is silent would be taken for one whose first batches are missing.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::trouble::damaged;
use crate::records::outcome::BatchOutcome;

pub(super) fn outcome(connection: &Connection, id: &str) -> rusqlite::Result<Option<BatchOutcome>> {
    let mut statement = connection.prepare_cached("SELECT outcome FROM lockhouse_batches WHERE id = ?1")?;
    let text = statement.query_row([id], |row| row.get::<_, String>(0)).optional()?;
    text.map(|text| serde_json::from_str(&text).map_err(|error| damaged(0, error))).transpose()
}

/// Keeps what became of a batch, and that its instance has come so far. A skipped batch has no id.
pub(super) fn record(
    connection: &Connection,
    id: Option<&str>,
    instance: &str,
    seq: i64,
    outcome: &BatchOutcome,
) -> rusqlite::Result<()> {
    let (BatchOutcome::Applied { at, .. } | BatchOutcome::Failed { at, .. } | BatchOutcome::Skipped { at }) = outcome;
    let text = serde_json::to_string(outcome).map_err(|error| damaged(0, error))?;
    let mut batch = connection
        .prepare_cached("INSERT INTO lockhouse_batches (id, instance, seq, at, outcome) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    batch.execute(params![id, instance, seq, at.as_millisecond(), text])?;
    let mut producer = connection.prepare_cached(
        "INSERT INTO lockhouse_producers (instance, seq) VALUES (?1, ?2)
         ON CONFLICT (instance) DO UPDATE SET seq = max(seq, excluded.seq)",
    )?;
    producer.execute(params![instance, seq])?;
    Ok(())
}

/// The seq of an instance's last batch; 0 if it has none.
pub(super) fn last_seq(connection: &Connection, instance: &str) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT seq FROM lockhouse_producers WHERE instance = ?1")?;
    let seq: Option<i64> = statement.query_row([instance], |row| row.get(0)).optional()?;
    super::unsigned(0, seq.unwrap_or(0))
}

/// Forgets the batches before a time. How far their instances came stays.
pub(super) fn sweep(connection: &Connection, before: Timestamp, keep: &dyn Fn(&str) -> bool) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT number, id FROM lockhouse_batches WHERE at < ?1")?;
    let old = statement.query_map([before.as_millisecond()], |row| {
        let id: Option<String> = row.get(1)?;
        Ok((row.get::<_, i64>(0)?, id.is_some_and(|id| keep(&id))))
    })?;
    let old: Vec<(i64, bool)> = old.collect::<rusqlite::Result<_>>()?;
    let mut forget = connection.prepare_cached("DELETE FROM lockhouse_batches WHERE number = ?1")?;
    let mut forgotten = 0;
    for (number, _) in old.iter().filter(|(_, kept)| !kept) {
        forgotten += forget.execute([number])? as u64;
    }
    Ok(forgotten)
}
