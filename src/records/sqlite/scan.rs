//! Reading rows in windows.

use rusqlite::{Connection, Row as Found, params};

use super::kinds::{quoted, schema, table};
use super::trouble::damaged;
use super::{signed, streams, unsigned};
use crate::records::name::StreamName;
use crate::records::row::{Cell, Row};
use crate::records::schema::{Column, ColumnType};
use crate::records::target::Window;

/// A window that has become this large, in bytes, ends: rows may be large, and a window lies in memory.
const LARGEST_WINDOW: usize = 8 << 20;

pub(super) fn window(
    connection: &Connection,
    name: &StreamName,
    from_seq: u64,
    limit: usize,
) -> rusqlite::Result<Option<Window>> {
    // One look at all of it; dropped at the end of this function.
    let moment = connection.unchecked_transaction()?;
    let Some(stream) = streams::find(&moment, name)? else { return Ok(None) };
    let id = stream.id;
    let Some(meta) = stream.meta(name)? else { return Ok(None) };
    let schema = schema(&moment, &meta.kind)?.ok_or_else(|| damaged(0, format!("kind {} has no schema", meta.kind)))?;
    let columns: String = schema.columns.iter().map(|column| format!(", {}", quoted(&column.name))).collect();
    let sql = format!(
        "SELECT _seq{columns} FROM {} WHERE _stream = ?1 AND _seq >= ?2 ORDER BY _seq LIMIT ?3",
        table(&schema.kind)
    );
    let from = from_seq.clamp(1, meta.next);
    let mut next = from;
    let mut rows = Vec::new();
    let mut bytes = 0;
    {
        let mut statement = moment.prepare_cached(&sql)?;
        let mut found = statement.query(params![id, signed(from)?, i64::try_from(limit).unwrap_or(i64::MAX)])?;
        while bytes < LARGEST_WINDOW {
            let Some(row) = found.next()? else {
                next = if rows.len() < limit { meta.next } else { next };
                break;
            };
            let seq = unsigned(0, row.get(0)?)?;
            let row = read(row, &schema.columns, &mut bytes)?;
            next = seq + 1;
            rows.push((seq, row));
        }
    }
    Ok(Some(Window { meta, schema, rows, next }))
}

fn read(found: &Found<'_>, columns: &[Column], bytes: &mut usize) -> rusqlite::Result<Row> {
    let mut cells = Vec::with_capacity(columns.len());
    for (place, column) in (1..).zip(columns) {
        let value = found.get_ref(place)?;
        let cell = if value == rusqlite::types::ValueRef::Null {
            Cell::Null
        } else {
            match column.holds {
                ColumnType::Text => Cell::Text(found.get(place)?),
                ColumnType::Json => Cell::Json(found.get(place)?),
                ColumnType::Integer => Cell::Integer(found.get(place)?),
                ColumnType::Real => Cell::Real(found.get(place)?),
                ColumnType::Boolean => Cell::Boolean(found.get(place)?),
            }
        };
        *bytes += size_of::<Cell>();
        if let Cell::Text(text) | Cell::Json(text) = &cell {
            *bytes += text.len();
        }
        cells.push(cell);
    }
    Ok(Row(cells))
}
