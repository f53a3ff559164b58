//! How the file of a store is opened: for its owner, and for whoever reads.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::records::Target;
use crate::records::sqlite::{CATALOG_VERSION, SqliteTarget};

/// Opens the file of a store.
pub trait Opener: fmt::Debug + Send + Sync + 'static {
    /// What it opens.
    type Target: Target;

    /// The catalog that this build reads. A build that reads an older one than a store has never becomes its owner.
    fn catalog_version(&self) -> u32;

    /// The file, or directory, that it opens for the store at this path.
    fn file(&self, store: &Path) -> PathBuf {
        store.to_owned()
    }

    /// What is kept beside it that readers and the owner must have the same of: a reader whose one was removed opens anew.
    fn shared(&self, file: &Path) -> Option<PathBuf> {
        let _ = file;
        None
    }

    /// Opens it for the owner; makes it where there is none.
    ///
    /// # Errors
    ///
    /// [`CatalogVersion`](crate::CatalogVersion) if it has a later build's catalog; `Unavailable` if it may be opened
    /// later; any other if it may not.
    fn open(&self, file: &Path, store_id: &str) -> Result<Self::Target>;

    /// Opens it for reading; `None` while there is nothing to read.
    ///
    /// # Errors
    ///
    /// As [`Opener::open`]; `CatalogVersion` for an earlier build's catalog too.
    fn open_read_only(&self, file: &Path, store_id: &str) -> Result<Option<Self::Target>>;
}

/// Opens records in a SQLite file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sqlite;

impl Opener for Sqlite {
    type Target = SqliteTarget;

    fn catalog_version(&self) -> u32 {
        CATALOG_VERSION
    }

    fn shared(&self, file: &Path) -> Option<PathBuf> {
        let mut index = file.as_os_str().to_owned();
        index.push("-shm");
        Some(index.into())
    }

    fn open(&self, file: &Path, store_id: &str) -> Result<SqliteTarget> {
        SqliteTarget::open(file, store_id)
    }

    fn open_read_only(&self, file: &Path, store_id: &str) -> Result<Option<SqliteTarget>> {
        SqliteTarget::open_read_only(file, store_id)
    }
}
