//! One row as a store keeps it.

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// No value.
    Null,
    /// Of a text column.
    Text(String),
    /// Of an integer column.
    Integer(i64),
    /// Of a real column: finite, and never minus zero.
    Real(f64),
    /// Of a boolean column.
    Boolean(bool),
    /// Of a JSON column: the value as compact JSON.
    Json(String),
}

/// One row of a kind: a value for each of its schema's columns, in their order.
///
/// It is made from JSON once, where it enters a process: what goes through a spool and what is appended directly is
/// the same row, bit by bit.
#[derive(Debug, Clone, PartialEq)]
pub struct Row(pub(crate) Vec<Cell>);

impl Row {
    /// Its values.
    pub fn cells(&self) -> &[Cell] {
        &self.0
    }
}
