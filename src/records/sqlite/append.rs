//! Adding rows to a stream.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use jiff::Timestamp;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection};

use super::kinds::{key_columns, quoted, settle, table};
use super::signed;
use super::streams::Stream;
use super::trouble::Stopped;
use crate::records::batch::Batch;
use crate::records::name::{KindName, StreamName};
use crate::records::outcome::Applied;
use crate::records::refusal::{Refusal, RefusalKind};
use crate::records::row::{Cell, Row};
use crate::records::schema::{Column, ColumnType, Conflict, Retention, Schema};

/// What is to be added.
pub(super) struct Rows<'a> {
    pub(super) kind: &'a KindName,
    pub(super) rows: &'a [Row],
    /// When they end, or their stream does, in milliseconds since 1970.
    pub(super) expires: Option<i64>,
    pub(super) seal: bool,
}

/// Adds rows to the stream that was found under the name, if one lives there; else makes one.
pub(super) fn append(
    connection: &Connection,
    batch: &Batch,
    name: &StreamName,
    found: Option<Stream>,
    rows: &Rows<'_>,
    now: Timestamp,
) -> Result<Applied, Stopped> {
    if let Some(stream) = &found {
        may_be_added_to(stream, rows.kind)?;
    }
    let schema = settle(connection, rows.kind, given(batch, rows.kind)?)?;
    let mut stream = match found {
        Some(stream) if stream.kind.is_some() => stream,
        before => {
            let mut stream = Stream::new(before.as_ref(), rows.kind);
            // It needs its id now.
            stream.save(connection, name)?;
            stream
        }
    };
    let mut applied = Applied { generation: stream.generation, ..Applied::default() };
    if schema.retention == Retention::Row {
        let ended = remove_ended(connection, &stream, &schema, now)?;
        stream.rows = stream.rows.saturating_sub(ended);
    }
    Adding::new(connection, &schema, &stream)?.all(rows, &mut stream, &mut applied)?;
    if schema.retention == Retention::Stream {
        stream.expires = rows.expires.or(stream.expires);
    }
    stream.sealed |= rows.seal;
    stream.save(connection, name)?;
    Ok(applied)
}

fn may_be_added_to(stream: &Stream, kind: &KindName) -> Result<(), Refusal> {
    match &stream.kind {
        Some(theirs) if theirs != kind => {
            let message = format!("the stream holds rows of kind {theirs}; append to another stream");
            Err(Refusal::new(RefusalKind::OtherKind, message))
        }
        Some(_) if stream.sealed => {
            Err(Refusal::new(RefusalKind::Sealed, "the stream is sealed; reopen it, or append to another one"))
        }
        _ => Ok(()),
    }
}

/// The schema that the batch has for a kind.
fn given<'b>(batch: &'b Batch, kind: &KindName) -> Result<Option<&'b Schema>, Refusal> {
    let mut given = batch.schemas.iter().filter(|schema| schema.kind == *kind);
    let first = given.next();
    match given.any(|other| Some(other) != first) {
        true => Err(Refusal::new(RefusalKind::BadSchema, "the batch has two schemas for this kind")),
        false => Ok(first),
    }
}

/// Removes the rows of a stream whose end has come. How many there were.
fn remove_ended(connection: &Connection, stream: &Stream, schema: &Schema, now: Timestamp) -> rusqlite::Result<u64> {
    // The plus keeps SQLite from looking through the whole stream: the ended are few, and have an index.
    let sql = format!("DELETE FROM {} WHERE +_stream = ?1 AND _expires <= ?2", table(&schema.kind));
    Ok(connection.prepare_cached(&sql)?.execute([stream.id, now.as_millisecond()])? as u64)
}

/// The statements that add rows of one kind to one stream.
struct Adding<'c> {
    schema: Schema,
    /// Where the columns of the key are.
    key: Vec<usize>,
    insert: CachedStatement<'c>,
    /// Takes the row away whose place the new one takes, where a row may be there.
    remove: Option<CachedStatement<'c>>,
    /// How many parameters of `insert` come before the row's cells.
    before: usize,
}

impl<'c> Adding<'c> {
    fn new(connection: &'c Connection, schema: &Schema, stream: &Stream) -> rusqlite::Result<Adding<'c>> {
        let place = |name: &String| schema.columns.iter().position(|column| column.name == *name);
        let key: Vec<usize> = schema.key.iter().filter_map(place).collect();
        let table = table(&schema.kind);
        let mut columns = vec!["_stream".to_owned(), "_seq".to_owned()];
        columns.extend((schema.retention == Retention::Row).then(|| "_expires".to_owned()));
        let before = columns.len();
        columns.extend(schema.columns.iter().map(|column| quoted(&column.name)));
        let parameters = vec!["?"; columns.len()].join(", ");
        let conflict = match schema.on_conflict {
            Conflict::Skip if !key.is_empty() => format!(" ON CONFLICT ({}) DO NOTHING", key_columns(schema)),
            _ => String::new(),
        };
        let insert = format!("INSERT INTO {table} ({}) VALUES ({parameters}){conflict}", columns.join(", "));
        let replaces = schema.on_conflict == Conflict::Replace && !key.is_empty() && stream.rows > 0;
        let matches: String = schema.key.iter().map(|name| format!(" AND {} = ?", quoted(name))).collect();
        let remove = format!("DELETE FROM {table} WHERE _stream = ?{matches}");
        let mut insert = connection.prepare_cached(&insert)?;
        insert.raw_bind_parameter(1, stream.id)?;
        let mut remove = replaces.then(|| connection.prepare_cached(&remove)).transpose()?;
        if let Some(remove) = &mut remove {
            remove.raw_bind_parameter(1, stream.id)?;
        }
        Ok(Adding { schema: schema.clone(), key, insert, remove, before })
    }

    fn all(mut self, rows: &Rows<'_>, stream: &mut Stream, applied: &mut Applied) -> Result<(), Stopped> {
        if self.before > 2 {
            self.insert.raw_bind_parameter(3, rows.expires)?;
        }
        let mut keys = HashSet::new();
        if !self.key.is_empty() {
            keys.reserve(rows.rows.len());
        }
        for (number, row) in (1..).zip(rows.rows) {
            self.fits(row).map_err(|refusal| refusal.at_row(number))?;
            if !self.key.is_empty() && !keys.insert(Key { row, columns: &self.key }) {
                return Err(self.twice().at_row(number).into());
            }
        }
        for (number, row) in (1..).zip(rows.rows) {
            self.one(row, stream, applied).map_err(|stopped| match stopped {
                Stopped::Refused(refusal) => Stopped::Refused(refusal.at_row(number)),
                sql => sql,
            })?;
        }
        Ok(())
    }

    fn one(&mut self, row: &Row, stream: &mut Stream, applied: &mut Applied) -> Result<(), Stopped> {
        if let Some(remove) = &mut self.remove {
            for (parameter, &column) in (2..).zip(&self.key) {
                remove.raw_bind_parameter(parameter, &row.0[column])?;
            }
            let removed = remove.raw_execute()? as u64;
            applied.removed += removed;
            stream.rows = stream.rows.saturating_sub(removed);
        }
        self.insert.raw_bind_parameter(2, signed(stream.next)?)?;
        // A row of a narrower schema has nothing for the last columns.
        for (place, _) in self.schema.columns.iter().enumerate() {
            self.insert.raw_bind_parameter(self.before + 1 + place, row.0.get(place).unwrap_or(&Cell::Null))?;
        }
        if self.insert.raw_execute()? == 0 {
            applied.skipped += 1;
            return Ok(());
        }
        applied.first_seq.get_or_insert(stream.next);
        applied.last_seq = Some(stream.next);
        applied.stored += 1;
        stream.rows += 1;
        stream.next += 1;
        Ok(())
    }

    /// Rows come from outside: one may have been made by another schema than it says.
    fn fits(&self, row: &Row) -> Result<(), Refusal> {
        if row.0.len() > self.schema.columns.len() {
            return Err(Refusal::new(RefusalKind::UnknownColumn, "it has more values than the kind has columns"));
        }
        for (place, column) in self.schema.columns.iter().enumerate() {
            let cell = row.0.get(place).unwrap_or(&Cell::Null);
            let refuse = |kind, message| Err(Refusal::new(kind, message).at_column(&column.name));
            match (cell, column) {
                (Cell::Null, Column { optional: true, .. })
                | (Cell::Text(_), Column { holds: ColumnType::Text, .. })
                | (Cell::Integer(_), Column { holds: ColumnType::Integer, .. })
                | (Cell::Real(_), Column { holds: ColumnType::Real, .. })
                | (Cell::Boolean(_), Column { holds: ColumnType::Boolean, .. })
                | (Cell::Json(_), Column { holds: ColumnType::Json, .. }) => {}
                (Cell::Null, _) => return refuse(RefusalKind::MissingColumn, "it has to have a value"),
                _ => return refuse(RefusalKind::WrongType, "the value is of another type than its column"),
            }
        }
        Ok(())
    }

    fn twice(&self) -> Refusal {
        let message = "the append has an earlier row of the same key; give one of them";
        let refusal = Refusal::new(RefusalKind::DuplicateKey, message);
        match self.schema.key.as_slice() {
            [only] => refusal.at_column(only),
            _ => refusal,
        }
    }
}

/// What tells a row from the others of its stream.
struct Key<'a> {
    row: &'a Row,
    columns: &'a [usize],
}

impl Key<'_> {
    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.columns.iter().filter_map(|&column| self.row.0.get(column))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cells().eq(other.cells())
    }
}

/// No column of a key is real.
impl Eq for Key<'_> {}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for cell in self.cells() {
            match cell {
                Cell::Text(text) | Cell::Json(text) => text.hash(state),
                Cell::Integer(number) => number.hash(state),
                Cell::Boolean(truth) => truth.hash(state),
                Cell::Real(_) | Cell::Null => {}
            }
        }
    }
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Cell::Null => ValueRef::Null,
            Cell::Text(text) | Cell::Json(text) => ValueRef::Text(text.as_bytes()),
            Cell::Integer(number) => ValueRef::Integer(*number),
            Cell::Real(number) => ValueRef::Real(*number),
            Cell::Boolean(truth) => ValueRef::Integer(i64::from(*truth)),
        }))
    }
}
