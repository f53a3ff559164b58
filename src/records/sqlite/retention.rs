//! Removing what a time to live has ended, a bounded part of it in one transaction: nobody else writes meanwhile.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::{kinds, streams};
use crate::records::schema::Retention;
use crate::records::target::Expired;

/// Rows that end by themselves, in one go.
const ROWS: u64 = 10_000;
/// Streams in one go. Each goes whole: half a stream would be neither there nor gone.
const STREAMS: usize = 16;

pub(super) fn expire(connection: &Connection, now: Timestamp) -> rusqlite::Result<Expired> {
    let mut expired = Expired::default();
    let ended = streams::ended(connection, now, STREAMS)?;
    expired.more = ended.len() == STREAMS;
    for mut stream in ended {
        expired.rows += stream.end(connection)?;
        expired.streams += 1;
    }
    let mut left = ROWS;
    for schema in kinds::all(connection)?.iter().filter(|schema| schema.retention == Retention::Row) {
        let table = kinds::table(&schema.kind);
        let mut statement = connection.prepare_cached(&format!(
            "DELETE FROM {table} WHERE (_stream, _seq) IN
                 (SELECT _stream, _seq FROM {table} WHERE _expires <= ?1 ORDER BY _expires LIMIT ?2)
             RETURNING _stream"
        ))?;
        let mut of_stream = BTreeMap::<i64, i64>::new();
        let mut rows = statement.query(params![now.as_millisecond(), left as i64])?;
        while let Some(row) = rows.next()? {
            *of_stream.entry(row.get(0)?).or_default() += 1;
            left -= 1;
            expired.rows += 1;
        }
        let mut count = connection.prepare_cached("UPDATE lockhouse_streams SET rows = rows - ?2 WHERE id = ?1")?;
        for (stream, removed) in of_stream {
            count.execute([stream, removed])?;
        }
        if left == 0 {
            expired.more = true;
            break;
        }
    }
    Ok(expired)
}
