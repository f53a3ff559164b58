//! Kinds: their schemas, and the table that each has.

use rusqlite::{Connection, OptionalExtension, params};

use super::trouble::{Stopped, damaged};
use crate::records::name::KindName;
use crate::records::refusal::{Refusal, RefusalKind};
use crate::records::schema::{Column, ColumnType, Retention, Schema};

/// A name as SQL writes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The table of a kind's rows.
pub(super) fn table(kind: &KindName) -> String {
    quoted(&format!("rows_{kind}"))
}

/// The schema of a kind that the store has. Another that differs in case alone is another kind.
pub(super) fn schema(connection: &Connection, kind: &KindName) -> rusqlite::Result<Option<Schema>> {
    Ok(in_any_case(connection, kind)?.filter(|schema| schema.kind == *kind))
}

fn in_any_case(connection: &Connection, kind: &KindName) -> rusqlite::Result<Option<Schema>> {
    let mut statement = connection.prepare_cached("SELECT schema FROM lockhouse_kinds WHERE kind = ?1")?;
    let text = statement.query_row([kind.as_str()], |row| row.get::<_, String>(0)).optional()?;
    text.map(|text| parsed(&text)).transpose()
}

pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Schema>> {
    let mut statement = connection.prepare_cached("SELECT schema FROM lockhouse_kinds ORDER BY kind COLLATE BINARY")?;
    let schemas = statement.query_map([], |row| parsed(row.get_ref(0)?.as_str()?))?;
    schemas.collect()
}

fn parsed(text: &str) -> rusqlite::Result<Schema> {
    serde_json::from_str(text).map_err(|error| damaged(0, error))
}

/// The schema that the store has for rows that were made by `given`: a new kind is made, and a narrower one widened.
pub(super) fn settle(connection: &Connection, kind: &KindName, given: Option<&Schema>) -> Result<Schema, Stopped> {
    let known = in_any_case(connection, kind)?;
    let Some(given) = given else {
        return match known.filter(|known| known.kind == *kind) {
            Some(known) => Ok(known),
            None => {
                let message = "the store has no such kind, and the batch no schema for it: give its schema along";
                Err(Refusal::new(RefusalKind::UnknownKind, message).into())
            }
        };
    };
    given.check()?;
    match known {
        None => {
            make(connection, given)?;
            Ok(given.clone())
        }
        Some(known) => match known.widened(given)? {
            None => Ok(known),
            Some(wider) => {
                widen(connection, &known, &wider)?;
                Ok(wider)
            }
        },
    }
}

fn make(connection: &Connection, schema: &Schema) -> rusqlite::Result<()> {
    let table = table(&schema.kind);
    let mut columns = vec!["_stream INTEGER NOT NULL".to_owned(), "_seq INTEGER NOT NULL".to_owned()];
    if schema.retention == Retention::Row {
        columns.push("_expires INTEGER".to_owned());
    }
    columns.extend(schema.columns.iter().map(defined));
    columns.push("PRIMARY KEY (_stream, _seq)".to_owned());
    if !schema.key.is_empty() {
        columns.push(format!("UNIQUE ({})", key_columns(schema)));
    }
    // Rows of a stream lie one after the other, and there is no second tree to keep.
    connection.execute_batch(&format!("CREATE TABLE {table} ({}) STRICT, WITHOUT ROWID", columns.join(", ")))?;
    if schema.retention == Retention::Row {
        let index = quoted(&format!("rows_{}_by_end", schema.kind));
        connection.execute_batch(&format!("CREATE INDEX {index} ON {table} (_expires) WHERE _expires IS NOT NULL"))?;
    }
    show(connection, schema)?;
    connection.execute(
        "INSERT INTO lockhouse_kinds (kind, schema) VALUES (?1, ?2)",
        params![schema.kind.as_str(), text(schema)?],
    )?;
    Ok(())
}

fn widen(connection: &Connection, known: &Schema, wider: &Schema) -> rusqlite::Result<()> {
    let table = table(&wider.kind);
    for column in &wider.columns[known.columns.len()..] {
        connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {}", defined(column)))?;
    }
    show(connection, wider)?;
    connection.execute(
        "UPDATE lockhouse_kinds SET schema = ?2 WHERE kind = ?1",
        params![wider.kind.as_str(), text(wider)?],
    )?;
    Ok(())
}

/// The view for people, who know streams by name.
fn show(connection: &Connection, schema: &Schema) -> rusqlite::Result<()> {
    let view = quoted(&format!("view_{}", schema.kind));
    let columns: String = schema.columns.iter().map(|column| format!(", r.{}", quoted(&column.name))).collect();
    connection.execute_batch(&format!(
        "DROP VIEW IF EXISTS {view};
         CREATE VIEW {view} AS SELECT s.stream AS _stream, r._seq AS _seq{columns}
         FROM {} AS r JOIN lockhouse_streams AS s ON s.id = r._stream",
        table(&schema.kind)
    ))
}

fn defined(column: &Column) -> String {
    let holds = match column.holds {
        ColumnType::Text | ColumnType::Json => "TEXT",
        ColumnType::Integer | ColumnType::Boolean => "INTEGER",
        ColumnType::Real => "REAL",
    };
    format!("{} {holds}{}", quoted(&column.name), if column.optional { "" } else { " NOT NULL" })
}

/// The columns that make a row the only one of its stream.
pub(super) fn key_columns(schema: &Schema) -> String {
    let key: String = schema.key.iter().map(|name| format!(", {}", quoted(name))).collect();
    format!("_stream{key}")
}

fn text(schema: &Schema) -> rusqlite::Result<String> {
    serde_json::to_string(schema).map_err(|error| damaged(0, error))
}
