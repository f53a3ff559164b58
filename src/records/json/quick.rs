//! The short way from JSON to a row, for what lies as [`Schema::write`] leaves it: the columns in their order, no space, no
//! null, no text with an escape.
//!
//! Whatever is not exactly so is none of this file's business, be it right or wrong: the general reader reads it, and
//! says what it finds. So a row that comes out here is the one that would come out there, and nothing is refused here.

use super::LONGEST_NUMBER;
use crate::records::object::LONGEST_ROW;
use crate::records::row::{Cell, Row};
use crate::records::schema::{ColumnType, Schema};

/// More digits than this may not fit.
const DIGITS: usize = 18;

/// The row, if this is the way to read it.
pub(super) fn row(schema: &Schema, json: &[u8]) -> Option<Row> {
    if json.len() > LONGEST_ROW.saturating_sub(LONGEST_NUMBER * schema.columns.len()) {
        return None;
    }
    let json = std::str::from_utf8(json).ok()?;
    let mut rest = json.strip_prefix('{')?.strip_suffix('}')?;
    let mut cells = Vec::with_capacity(schema.columns.len());
    let mut first = true;
    for column in &schema.columns {
        match named(rest, &column.name, first) {
            Some(value) => {
                let cell;
                (cell, rest) = value_of(column.holds, value)?;
                first = false;
                cells.push(cell);
            }
            None if column.optional => cells.push(Cell::Null),
            None => return None,
        }
    }
    rest.is_empty().then_some(Row(cells))
}

/// What comes after `"name":`, and after a comma before it where there is one to be.
fn named<'j>(json: &'j str, name: &str, first: bool) -> Option<&'j str> {
    let json = if first { json } else { json.strip_prefix(',')? };
    let value = json.strip_prefix('"')?.strip_prefix(name)?.strip_prefix("\":")?;
    // Such a name is written otherwise, and what is written so is another name.
    name.bytes().all(is_plain).then_some(value)
}

fn value_of(holds: ColumnType, json: &str) -> Option<(Cell, &str)> {
    match holds {
        ColumnType::Text => {
            let json = json.strip_prefix('"')?;
            let end = json.bytes().position(|byte| !is_plain(byte))?;
            let (text, rest) = json.split_at(end);
            Some((Cell::Text(text.to_owned()), rest.strip_prefix('"')?))
        }
        ColumnType::Integer => {
            let (number, rest) = up_to_the_next(json);
            let digits = number.strip_prefix('-').unwrap_or(number);
            let plain = match digits.as_bytes() {
                [b'0'] => number == "0",
                [b'1'..=b'9', ..] => digits.len() <= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit()),
                _ => false,
            };
            Some((Cell::Integer(plain.then(|| number.parse::<i64>().ok())??), rest))
        }
        ColumnType::Real => {
            let (number, rest) = up_to_the_next(json);
            Some((Cell::Real(is_number(number).then(|| super::real(number).ok())??), rest))
        }
        ColumnType::Boolean => {
            let truth = |word, is| json.strip_prefix(word).map(|rest| (Cell::Boolean(is), rest));
            truth("true", true).or_else(|| truth("false", false))
        }
        ColumnType::Json => None,
    }
}

/// Whether this byte means itself in a text, and does not end it.
pub(super) fn is_plain(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

fn up_to_the_next(json: &str) -> (&str, &str) {
    json.split_at(json.bytes().position(|byte| byte == b',').unwrap_or(json.len()))
}

/// Whether this is a number by JSON's grammar.
fn is_number(text: &str) -> bool {
    fn digits(text: &[u8]) -> Option<&[u8]> {
        let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
        (end > 0).then(|| &text[end..])
    }
    let number = || {
        let mut rest = text.as_bytes();
        rest = rest.strip_prefix(b"-").unwrap_or(rest);
        rest = match rest {
            [b'0', rest @ ..] => rest,
            rest => digits(rest)?,
        };
        if let [b'.', fraction @ ..] = rest {
            rest = digits(fraction)?;
        }
        if let [b'e' | b'E', exponent @ ..] = rest {
            rest = digits(exponent.strip_prefix(b"+").or(exponent.strip_prefix(b"-")).unwrap_or(exponent))?;
        }
        rest.is_empty().then_some(())
    };
    number().is_some()
}
