//! What an error of SQLite's means for a batch, for a look, and for one entry.

use rusqlite::ErrorCode;

use crate::error::{Error, Failure};
use crate::records::refusal::{Refusal, RefusalKind};
use crate::records::target::TargetError;
use crate::store_url::StoreName;

/// Whose trouble it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// The place's: it passes, or a person makes it pass.
    Place,
    /// The file's: a person has to mend it.
    File,
    /// What was asked's.
    Question,
}

/// What happened to whom, and the next step.
///
/// Beside what the design names, a file that is no database any more and one that may not be touched are the store's
/// trouble: they would fail one batch after the other, each for nothing that it has done.
fn judge(error: &rusqlite::Error) -> (Trouble, &'static str) {
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        return match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..) => (Trouble::File, DAMAGED),
            _ => (Trouble::Question, REPORT),
        };
    };
    match failure.code {
        ErrorCode::DiskFull => (Trouble::Place, "make room on the disk"),
        ErrorCode::SystemIoFailure => (Trouble::Place, "look whether the disk is full or failing"),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            (Trouble::Place, "another program holds it locked: wait for that program, or end it")
        }
        ErrorCode::OutOfMemory => (Trouble::Place, "the machine has no memory left"),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => {
            (Trouble::Place, "look at its mode, its directory's, and whether the file was replaced")
        }
        ErrorCode::CannotOpen | ErrorCode::FileLockingProtocolFailed => {
            (Trouble::Place, "look whether the file and its directory are there and can be written")
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => (Trouble::File, DAMAGED),
        _ => (Trouble::Question, REPORT),
    }
}

const DAMAGED: &str = "it is damaged: let an fsck look at it (`PRAGMA integrity_check`), or restore it";
const REPORT: &str = "report this";

/// For a batch.
pub(super) fn of_batch(store: &StoreName, error: &rusqlite::Error) -> TargetError {
    let (trouble, next) = judge(error);
    let text = format!("store {store}: {error}; {next}");
    match trouble {
        Trouble::Place | Trouble::File => TargetError::Pause(text),
        Trouble::Question => TargetError::Batch(text),
    }
}

/// For whoever opens or looks.
pub(super) fn of_look(store: &StoreName, doing: &str, error: rusqlite::Error) -> Error {
    let (trouble, next) = judge(&error);
    let message = format!("{doing}: {error}; {next}");
    let failure = Box::new(Failure { store: Some(store.clone()), message, source: Some(Box::new(error)) });
    match trouble {
        Trouble::Place => Error::Unavailable(failure),
        Trouble::File => Error::Invalid(failure),
        Trouble::Question => Error::Internal(failure),
    }
}

/// Why an entry was not applied.
#[derive(Debug)]
pub(super) enum Stopped {
    /// For what it asks: it alone is rolled back.
    Refused(Refusal),
    /// For an error of SQLite's: all of its batch is rolled back.
    Sql(rusqlite::Error),
}

impl From<Refusal> for Stopped {
    fn from(refusal: Refusal) -> Stopped {
        Stopped::Refused(refusal)
    }
}

impl From<rusqlite::Error> for Stopped {
    /// A constraint that is none of ours, for ours are checked before: somebody has put one on the table.
    fn from(error: rusqlite::Error) -> Stopped {
        match error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation) => Stopped::Refused(Refusal::new(
                RefusalKind::Other,
                format!("the store's table does not take it: {error}"),
            )),
            _ => Stopped::Sql(error),
        }
    }
}

/// An error of what is stored, for a place that cannot hold what was found in it.
pub(super) fn damaged(column: usize, what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.into())
}
