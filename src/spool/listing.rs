//! What lies in `incoming/`.
//!
//! One listing proves nothing that it does not show: an entry that is renamed in while a directory is read may be missed,
//! older ones too.

use std::ffi::OsString;
use std::fmt;
use std::io;

use super::name::BatchName;

/// Where the names in `incoming/` come from.
pub trait Listing: fmt::Debug + Send {
    /// The names that are there now, in no order.
    ///
    /// # Errors
    ///
    /// Those of reading the directory.
    fn names(&mut self) -> io::Result<Vec<OsString>>;
}

/// The names that one listing showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Batches, by name.
    pub(crate) batches: Vec<BatchName>,
    /// What can be no batch.
    pub(crate) strange: Vec<OsString>,
}

impl Listed {
    pub(crate) fn of(names: Vec<OsString>) -> Listed {
        let mut listed = Listed::default();
        for name in names {
            match BatchName::parse(&name) {
                Some(batch) => listed.batches.push(batch),
                None => listed.strange.push(name),
            }
        }
        listed.batches.sort_unstable();
        listed.strange.sort_unstable();
        listed
    }

    /// Adds what another listing showed.
    pub(crate) fn merge(&mut self, other: Listed) {
        self.batches.extend(other.batches);
        self.batches.sort_unstable();
        self.batches.dedup();
        self.strange.extend(other.strange);
        self.strange.sort_unstable();
        self.strange.dedup();
    }
}
