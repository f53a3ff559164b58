//! What a kind is: its columns, its key, and what ends a row's life.

use serde::{Deserialize, Serialize};

use super::name::KindName;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// Text.
    Text,
    /// A whole number of 64 bits, signed.
    Integer,
    /// A finite number of 64 bits, floating. Whole numbers are taken if they are exact; minus zero becomes zero.
    Real,
    /// True or false.
    Boolean,
    /// Any JSON value but null.
    Json,
}

/// One column of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it holds.
    #[serde(rename = "type")]
    pub holds: ColumnType,
    /// A row may come without it. A null is no value: the row is kept as if the column were not named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// What happens to a row whose key its stream has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conflict {
    /// The row that is there stays, and keeps its seq.
    #[default]
    Skip,
    /// The new row takes its place, with a new seq.
    Replace,
}

/// What a time to live ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retention {
    /// The whole stream.
    #[default]
    Stream,
    /// Each row by itself.
    Row,
}

/// A kind of rows.
///
/// As JSON: `{"kind": "order", "columns": [{"name": "id", "type": "integer"}, …], "key": ["id"], "on_conflict": "skip",
/// "retention": "stream"}`; what is not said is no key, `skip` and `stream`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// Its name.
    pub kind: KindName,
    /// Its columns, in the order in which rows are shown.
    pub columns: Vec<Column>,
    /// The columns that tell a row from every other of its stream. None: every row is another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// What happens to a row whose key is there.
    #[serde(default)]
    pub on_conflict: Conflict,
    /// What a time to live ends.
    #[serde(default)]
    pub retention: Retention,
}
