//! Streams: the window of seqs that each has, and what becomes of it when it ends.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::kinds;
use super::trouble::damaged;
use super::unsigned;
use crate::records::name::{KindName, StreamName};
use crate::records::target::StreamMeta;

/// A name under which there is a stream, or was one.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    /// Of the name, in the tables of rows; 0 if it is not stored yet.
    pub(super) id: i64,
    pub(super) generation: u64,
    /// None: it ended. Its generation is remembered.
    pub(super) kind: Option<KindName>,
    pub(super) first: u64,
    pub(super) next: u64,
    pub(super) rows: u64,
    pub(super) sealed: bool,
    /// In milliseconds since 1970.
    pub(super) expires: Option<i64>,
}

const COLUMNS: &str = "id, generation, kind, first, next, rows, sealed, expires, stream";

pub(super) fn find(connection: &Connection, name: &StreamName) -> rusqlite::Result<Option<Stream>> {
    let sql = format!("SELECT {COLUMNS} FROM lockhouse_streams WHERE stream = ?1");
    connection.prepare_cached(&sql)?.query_row([name.as_str()], read).optional()
}

fn read(row: &Row<'_>) -> rusqlite::Result<Stream> {
    let kind: Option<String> = row.get(2)?;
    let number = |column: usize| unsigned(column, row.get(column)?);
    Ok(Stream {
        id: row.get(0)?,
        generation: number(1)?,
        kind: kind.map(|kind| kind.parse().map_err(|refusal| damaged(2, Box::new(refusal)))).transpose()?,
        first: number(3)?,
        next: number(4)?,
        rows: number(5)?,
        sealed: row.get(6)?,
        expires: row.get(7)?,
    })
}

/// The streams that there are, in the order of their names.
pub(super) fn list(
    connection: &Connection,
    after: Option<&StreamName>,
    limit: usize,
) -> rusqlite::Result<Vec<StreamMeta>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM lockhouse_streams WHERE kind IS NOT NULL AND stream > ?1 ORDER BY stream LIMIT ?2"
    ))?;
    let after = after.map_or("", StreamName::as_str);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut streams = Vec::new();
    let mut rows = statement.query(params![after, limit])?;
    while let Some(row) = rows.next()? {
        let name = row.get_ref(8)?.as_str()?.parse().map_err(|refusal| damaged(8, Box::new(refusal)))?;
        streams.extend(read(row)?.meta(&name)?);
    }
    Ok(streams)
}

/// The streams whose end has come: some of them, with their names' ids.
pub(super) fn ended(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Vec<Stream>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM lockhouse_streams WHERE expires <= ?1 AND kind IS NOT NULL ORDER BY expires LIMIT ?2"
    ))?;
    let streams = statement.query_map(params![now.as_millisecond(), limit as i64], read)?;
    streams.collect()
}

impl Stream {
    /// What comes under a name that has no stream now.
    pub(super) fn new(before: Option<&Stream>, kind: &KindName) -> Stream {
        Stream {
            id: before.map_or(0, |before| before.id),
            generation: before.map_or(0, |before| before.generation) + 1,
            kind: Some(kind.clone()),
            first: 1,
            next: 1,
            rows: 0,
            sealed: false,
            expires: None,
        }
    }

    /// Its end has come, whether or not somebody has removed it yet.
    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now.as_millisecond())
    }

    /// What is told of it; `None` if it ended.
    pub(super) fn meta(self, name: &StreamName) -> rusqlite::Result<Option<StreamMeta>> {
        let Some(kind) = self.kind else { return Ok(None) };
        let expires = self.expires.map(|end| Timestamp::from_millisecond(end).map_err(|error| damaged(7, error)));
        Ok(Some(StreamMeta {
            stream: name.clone(),
            kind,
            generation: self.generation,
            first: self.first,
            next: self.next,
            rows: self.rows,
            sealed: self.sealed,
            expires: expires.transpose()?,
        }))
    }

    /// Keeps what became of it. A new name gets its id.
    pub(super) fn save(&mut self, connection: &Connection, name: &StreamName) -> rusqlite::Result<()> {
        if self.id != 0 {
            return self.update(connection);
        }
        connection
            .prepare_cached(
                "INSERT INTO lockhouse_streams (stream, generation, first, next, rows, sealed) VALUES (?1, 1, 1, 1, 0, 0)",
            )?
            .execute([name.as_str()])?;
        self.id = connection.last_insert_rowid();
        self.update(connection)
    }

    fn update(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "UPDATE lockhouse_streams
             SET generation = ?2, kind = ?3, first = ?4, next = ?5, rows = ?6, sealed = ?7, expires = ?8 WHERE id = ?1",
        )?;
        let kind = self.kind.as_ref().map(KindName::as_str);
        let [generation, first, next, rows] =
            [self.generation, self.first, self.next, self.rows].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        statement.execute(params![self.id, generation, kind, first, next, rows, self.sealed, self.expires])?;
        Ok(())
    }

    /// Removes it with all its rows, and remembers its generation. How many rows it had.
    pub(super) fn end(&mut self, connection: &Connection) -> rusqlite::Result<u64> {
        let removed = self.remove_before(connection, i64::MAX)?;
        self.kind = None;
        self.rows = 0;
        self.expires = None;
        self.update(connection)?;
        Ok(removed)
    }

    /// Removes its rows below a seq. How many there were.
    pub(super) fn remove_before(&self, connection: &Connection, seq: i64) -> rusqlite::Result<u64> {
        let Some(kind) = &self.kind else { return Ok(0) };
        let table = kinds::table(kind);
        let sql = format!("DELETE FROM {table} WHERE _stream = ?1 AND _seq < ?2");
        Ok(connection.prepare_cached(&sql)?.execute([self.id, seq])? as u64)
    }
}
