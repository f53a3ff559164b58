//! Rows from JSON and back. What goes there and back is the same row, bit by bit.

use serde::Serialize;

use super::nested;
use super::object::{self, LONGEST_ROW, Members};
use super::refusal::{Refusal, RefusalKind};
use super::row::{Cell, Row};
use super::schema::{Column, ColumnType, Schema};

mod quick;
#[cfg(test)]
mod tests;

/// More than any cell but text and JSON can grow when it is written back: the longest number and its separators.
const LONGEST_NUMBER: usize = 32;

impl Schema {
    /// A row from one JSON object.
    ///
    /// Numbers are exact or refused. An integer column takes what is written as a whole number: `1000`, not `1e3` or
    /// `1000.0`. A real column takes the nearest number to a fraction, and a whole number only if it is exactly that;
    /// minus zero becomes zero. A JSON column keeps its value as it was written, but for the space between its parts.
    /// A null is no value.
    ///
    /// # Errors
    ///
    /// `NotARow` for what is no JSON object or names a column twice, `UnknownColumn`, `MissingColumn`, `WrongType`,
    /// `DoesNotFit`, and `TooLarge` past [`LONGEST_ROW`] or [`DEEPEST_ROW`](super::DEEPEST_ROW). It names the kind and
    /// the column; only the caller knows the stream and the row.
    pub fn row(&self, json: &[u8]) -> Result<Row, Refusal> {
        quick::row(self, json).map_or_else(|| self.any_row(json), Ok)
    }

    /// As [`Schema::row`], however it is written.
    fn any_row(&self, json: &[u8]) -> Result<Row, Refusal> {
        let of_kind = |refusal: Refusal| refusal.of_kind(&self.kind);
        let mut cells = Cells { columns: &self.columns, cells: vec![None; self.columns.len()], next: 0 };
        object::read(json, &mut cells).map_err(of_kind)?;
        let mut row = Vec::with_capacity(self.columns.len());
        for (column, cell) in self.columns.iter().zip(cells.cells) {
            match cell.unwrap_or(Cell::Null) {
                Cell::Null if !column.optional => {
                    let refusal = Refusal::new(RefusalKind::MissingColumn, "it has to have a value");
                    return Err(of_kind(refusal.at_column(&column.name)));
                }
                cell => row.push(cell),
            }
        }
        let row = Row(row);
        // What is written back has to be a row again.
        if json.len() > LONGEST_ROW.saturating_sub(LONGEST_NUMBER * self.columns.len()) {
            let mut written = Vec::with_capacity(json.len());
            self.write(&row, &mut written);
            if written.len() > LONGEST_ROW {
                return Err(of_kind(object::too_large(written.len())));
            }
        }
        Ok(row)
    }

    /// Writes a row that was made by this schema, or by an older and narrower one, as one compact JSON object: its
    /// columns in their order, without those that have no value.
    pub fn write(&self, row: &Row, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut first = true;
        for (column, cell) in self.columns.iter().zip(&row.0) {
            if *cell == Cell::Null {
                continue;
            }
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            put_text(out, &column.name);
            out.push(b':');
            match cell {
                Cell::Null => {}
                Cell::Text(text) => put_text(out, text),
                Cell::Integer(number) => put(out, number),
                Cell::Real(number) => put(out, number),
                Cell::Boolean(truth) => put(out, truth),
                Cell::Json(json) => out.extend_from_slice(json.as_bytes()),
            }
        }
        out.push(b'}');
    }
}

/// Writing plain values to memory cannot fail.
fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(out, value);
}

/// As [`put`], at once where no byte has to be written otherwise.
fn put_text(out: &mut Vec<u8>, text: &str) {
    // Without an early end, many bytes are looked at in one step.
    if !text.bytes().fold(true, |plain, byte| plain & quick::is_plain(byte)) {
        return put(out, text);
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// The cells of a row that is being read.
struct Cells<'s> {
    columns: &'s [Column],
    cells: Vec<Option<Cell>>,
    /// Where the next name is looked for first: rows name their columns in the same order, most of them.
    next: usize,
}

impl Members for Cells<'_> {
    fn name(&mut self, name: &str) -> Result<usize, Refusal> {
        let all = self.columns.len();
        let place = (self.next..all).chain(0..self.next).find(|&place| self.columns[place].name == name);
        let refuse = |kind, message| Err(Refusal::new(kind, message).at_column(name));
        match place {
            None => refuse(RefusalKind::UnknownColumn, "the kind has no such column"),
            Some(place) if self.cells[place].is_some() => refuse(RefusalKind::NotARow, "it is named twice"),
            Some(place) => {
                self.next = place + 1;
                Ok(place)
            }
        }
    }

    fn value(&mut self, place: usize, json: &str) -> Result<(), Refusal> {
        let column = &self.columns[place];
        self.cells[place] = Some(cell(column.holds, json).map_err(|refusal| refusal.at_column(&column.name))?);
        Ok(())
    }
}

/// What a value is, told by its text, which is known to be JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Null,
    Boolean,
    Text,
    /// Written as a whole number.
    Whole,
    /// Written with a fraction or an exponent.
    Fraction,
    Container,
}

pub(super) fn shape(json: &str) -> Shape {
    match json.as_bytes().first() {
        Some(b'n') => Shape::Null,
        Some(b't' | b'f') => Shape::Boolean,
        Some(b'"') => Shape::Text,
        Some(b'{' | b'[') => Shape::Container,
        _ if json.contains(['.', 'e', 'E']) => Shape::Fraction,
        _ => Shape::Whole,
    }
}

fn cell(holds: ColumnType, json: &str) -> Result<Cell, Refusal> {
    match (holds, shape(json)) {
        (_, Shape::Null) => Ok(Cell::Null),
        (ColumnType::Json, _) => Ok(Cell::Json(nested::compact(json)?)),
        (ColumnType::Text, Shape::Text) => {
            Ok(Cell::Text(serde_json::from_str(json).map_err(|error| object::not_json(&error))?))
        }
        (ColumnType::Boolean, Shape::Boolean) => Ok(Cell::Boolean(json == "true")),
        (ColumnType::Integer, Shape::Whole) => json.parse().map(Cell::Integer).map_err(|_| {
            let message = format!("{} is no whole number of 64 bits", crate::describe::brief(json));
            Refusal::new(RefusalKind::DoesNotFit, message)
        }),
        (ColumnType::Real, Shape::Whole | Shape::Fraction) => real(json).map(Cell::Real),
        (_, shape) => Err(wrong_type(holds, shape)),
    }
}

fn wrong_type(holds: ColumnType, found: Shape) -> Refusal {
    let found = match found {
        Shape::Null => "null",
        Shape::Boolean => "true or false",
        Shape::Text => "text",
        Shape::Whole => "a number",
        Shape::Fraction if holds == ColumnType::Integer => "a number with a fraction or an exponent",
        Shape::Fraction => "a number",
        Shape::Container => "an object or an array",
    };
    Refusal::new(RefusalKind::WrongType, format!("it holds {}, and this is {found}", holds.described()))
}

/// The standard library's reader gives the nearest number, always; it takes every number that JSON can write.
pub(super) fn real(json: &str) -> Result<f64, Refusal> {
    let number = json.parse::<f64>().ok().filter(|number| number.is_finite());
    // Below 2^127 a whole number turns into an i128 without loss; what is written with more digits is not looked at.
    let exact = |number: &f64| {
        shape(json) == Shape::Fraction || (number.abs() < 2f64.powi(127) && json.parse() == Ok(*number as i128))
    };
    match number.filter(exact) {
        Some(0.0) => Ok(0.0),
        Some(number) => Ok(number),
        None => {
            let message = format!("{} cannot be held exactly by 64 bits, floating", crate::describe::brief(json));
            Err(Refusal::new(RefusalKind::DoesNotFit, message))
        }
    }
}
