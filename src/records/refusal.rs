//! Why something is not done: typed, so that it can be stored in a ledger and handed to another process as it was.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::name::{KindName, StreamName};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusalKind {
    /// No name of a stream or a kind.
    BadName,
    /// A schema that cannot be one.
    BadSchema,
    /// A row that is no JSON object, or no JSON.
    NotARow,
    /// A column that the kind has not.
    UnknownColumn,
    /// A column without a value that has to have one.
    MissingColumn,
    /// A value of another type than its column's.
    WrongType,
    /// A number that its column cannot hold exactly.
    DoesNotFit,
    /// A row, or a value in it, is too long or too deep.
    TooLarge,
    /// The same key twice in one append.
    DuplicateKey,
    /// No such kind, and no schema for it.
    UnknownKind,
    /// The stream holds rows of another kind.
    OtherKind,
    /// The kind has another schema, and the change does more than add.
    SchemaConflict,
    /// No such stream.
    UnknownStream,
    /// The stream is sealed.
    Sealed,
    /// The stream was deleted and made anew since.
    Fenced,
    /// A time to live that is not positive, or too long.
    BadTtl,
    /// A position that the stream cannot have.
    BadPosition,
    /// A later version's.
    #[serde(other)]
    Other,
}

/// Why an entry, or something in it, is refused: nothing of that entry is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Refusal {
    /// What is wrong, for programs.
    pub kind: RefusalKind,
    /// What is wrong and what to do, for people; without the place, which the other fields have.
    pub message: String,
    /// The stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamName>,
    /// The kind of its rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<KindName>,
    /// Which row of the append, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// The column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into(), stream: None, of: None, row: None, column: None }
    }

    pub(crate) fn in_stream(mut self, stream: &StreamName) -> Refusal {
        self.stream = Some(stream.clone());
        self
    }

    pub(crate) fn of_kind(mut self, kind: &KindName) -> Refusal {
        self.of = Some(kind.clone());
        self
    }

    pub(crate) fn at_row(mut self, row: u64) -> Refusal {
        self.row = Some(row);
        self
    }

    pub(crate) fn at_column(mut self, column: impl Into<String>) -> Refusal {
        self.column = Some(column.into());
        self
    }
}

impl fmt::Display for Refusal {
    /// `stream s, kind k, row 3, column c: …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = Vec::new();
        place.extend(self.stream.as_ref().map(|stream| format!("stream {stream}")));
        place.extend(self.of.as_ref().map(|kind| format!("kind {kind}")));
        place.extend(self.row.map(|row| format!("row {row}")));
        place.extend(self.column.as_ref().map(|column| format!("column {}", crate::describe::brief(column))));
        if !place.is_empty() {
            write!(f, "{}: ", place.join(", "))?;
        }
        f.write_str(&self.message)
    }
}
