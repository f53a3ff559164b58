//! Opening the file: what may be in its place, whom it belongs to, and how it is kept.
//!
//! Nothing here opens the file, its `-wal` or its `-shm` but SQLite: the kernel drops a process's locks on a file when
//! *any* of its descriptors closes, SQLite's own among them. What the file is, is asked by name; a new one is made by
//! `mknod`, which needs no descriptor.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;

use super::catalog::{self, CATALOG_VERSION, Found};
use super::trouble;
use crate::error::{CatalogVersion, Error, Failure, Result};
use crate::store_url::StoreName;

/// How long SQLite waits for another's lock by itself: short, for whoever is refused pauses and comes back.
const BUSY_TIMEOUT: Duration = Duration::from_millis(250);
/// Statements that are kept prepared: those of ours, and a few for each kind in use.
const KEPT_STATEMENTS: usize = 128;
/// What a large batch leaves of its `-wal` for the next one, in bytes.
const KEPT_WAL: i64 = 64 << 20;

/// Which file, of which store.
#[derive(Debug, Clone)]
pub(super) struct Place {
    path: PathBuf,
    store_id: String,
    pub(super) name: StoreName,
}

impl Place {
    pub(super) fn new(path: &Path, store_id: &str) -> Result<Place> {
        // A relative name could be one of SQLite's own, such as `:memory:`.
        let path = std::path::absolute(path)
            .map_err(|error| Error::invalid(format!("{} is no path: {error}", path.display())))?;
        Ok(Place { name: StoreName::path(&path), store_id: store_id.to_owned(), path })
    }

    /// Opens it for writing: makes what is not there, and brings an older store to this build's version.
    pub(super) fn writable(&self) -> Result<Connection> {
        if self.size()?.is_none() {
            self.create()?;
        }
        let connection = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let version = self.version(&connection)?;
        // Only now is it known that the file is ours to change.
        self.settle(&connection)?;
        if version != CATALOG_VERSION {
            self.migrate(&connection).map_err(|error| trouble::of_look(&self.name, "making its tables", error))?;
            self.version(&connection)?;
        }
        Ok(connection)
    }

    /// Opens it for reading; `None` while nothing is in it.
    pub(super) fn read_only(&self) -> Result<Option<Connection>> {
        if self.size()?.unwrap_or(0) == 0 {
            return Ok(None);
        }
        let connection = self.connect(OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        match self.version(&connection)? {
            0 => Ok(None),
            CATALOG_VERSION => Ok(Some(connection)),
            version => Err(self.other_version(version)),
        }
    }

    /// The size of the file, if it is there and may be used.
    fn size(&self) -> Result<Option<u64>> {
        let metadata = match std::fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata.map_err(|error| self.system("it cannot be looked at", error))?,
        };
        let (own, uid) = (rustix::process::geteuid().as_raw(), metadata.uid());
        if !metadata.is_file() {
            return Err(self.invalid("records are kept in a regular file, and this is none; name another path"));
        }
        if metadata.nlink() > 1 {
            return Err(self.invalid("the file has a second name, under which it could be written; remove that one"));
        }
        if uid != own {
            let message = format!("it belongs to uid {uid}, and this is uid {own}; run as that user");
            return Err(Error::Denied(Box::new(Failure { store: Some(self.name.clone()), message, source: None })));
        }
        Ok(Some(metadata.len()))
    }

    /// An empty file is an empty database. Its name is durable before anything is in it.
    fn create(&self) -> Result<()> {
        match mknodat(CWD, &self.path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) => {}
            // Somebody was faster; what it is was not looked at yet.
            Err(Errno::EXIST) => return self.size().map(drop),
            Err(error) => return Err(self.system("it cannot be made", error.into())),
        }
        // Whatever the umask took away.
        std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(0o600))
            .and_then(|()| std::fs::File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all())
            .map_err(|error| self.system("it cannot be made", error))
    }

    fn connect(&self, access: OpenFlags) -> Result<Connection> {
        let open = || {
            // One thread has the connection; SQLite's own lock would be one too many.
            let connection = Connection::open_with_flags(&self.path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.set_prepared_statement_cache_capacity(KEPT_STATEMENTS);
            // What somebody else put into the file's schema may not do more than SQL can.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
            Ok(connection)
        };
        open().map_err(|error| trouble::of_look(&self.name, "opening it", error))
    }

    /// The version of the store in it, 0 for none yet; refuses what is not this store, or is of a later version.
    fn version(&self, connection: &Connection) -> Result<u32> {
        let at = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => {
                self.invalid("the file is no SQLite database; name another path, or move the file away")
            }
            _ => trouble::of_look(&self.name, "reading its version", error),
        };
        let version = match catalog::found(connection).map_err(at)? {
            Found::Empty => return Ok(0),
            Found::Ours(version) => version,
            Found::Foreign => {
                return Err(self.invalid("the SQLite database in it is another program's; name another path"));
            }
        };
        match u32::try_from(version) {
            Ok(version @ 1..=CATALOG_VERSION) => {
                let found = catalog::store_id(connection).map_err(at)?;
                if found.as_deref() == Some(self.store_id.as_str()) {
                    return Ok(version);
                }
                let found = crate::describe::brief(&found.unwrap_or_else(|| "nothing".to_owned()));
                let wanted = &self.store_id;
                Err(self.invalid(&format!(
                    "the file is of the store {found}, and this is the store {wanted}: one of them was copied or \
                     moved; bring the file and its .leases back together"
                )))
            }
            Ok(version @ 1..) => Err(self.other_version(version)),
            _ => Err(self.invalid(&format!("its catalog version {version} is none; restore the file"))),
        }
    }

    /// A write-ahead log, so that readers and the writer are in nobody's way; each commit on the disk before it
    /// returns. Neither is believed before it was asked for: a file system may not have what the log needs.
    fn settle(&self, connection: &Connection) -> Result<()> {
        let at = |error| trouble::of_look(&self.name, "setting it up", error);
        let journal: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(at)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(at)?;
        connection.query_row(&format!("PRAGMA journal_size_limit = {KEPT_WAL}"), [], |_| Ok(())).map_err(at)?;
        let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(at)?;
        const FULL: i64 = 2;
        if journal != "wal" || synchronous != FULL {
            return Err(self.invalid(&format!(
                "SQLite keeps it with journal mode {journal} and synchronous {synchronous}, where WAL and {FULL} are \
                 needed; put it on a local file system"
            )));
        }
        Ok(())
    }

    fn migrate(&self, connection: &Connection) -> rusqlite::Result<()> {
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
        // Under the lock it is looked at again: somebody may have done it.
        let from = match catalog::found(&transaction)? {
            Found::Empty => 0,
            Found::Ours(version) => usize::try_from(version).unwrap_or(usize::MAX),
            Found::Foreign => usize::MAX,
        };
        if from < CATALOG_VERSION as usize {
            catalog::migrate(&transaction, from, &self.store_id)?;
            crate::crash::point("records-migrated");
        }
        transaction.commit()
    }

    fn other_version(&self, owner: u32) -> Error {
        CatalogVersion { store: self.name.clone(), owner, build: CATALOG_VERSION }.into()
    }

    fn invalid(&self, message: &str) -> Error {
        Error::invalid_at(&self.name, message)
    }

    fn system(&self, what: &str, error: io::Error) -> Error {
        type Kind = fn(Box<Failure>) -> Error;
        let (kind, next): (Kind, _) = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                (Error::Denied, "run as the user that may write its directory")
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                (Error::Invalid, "make its directory, or name another path")
            }
            _ => (Error::Unavailable, "look whether the disk is full or failing"),
        };
        let message = format!("{what}: {error}; {next}");
        kind(Box::new(Failure { store: Some(self.name.clone()), message, source: Some(Box::new(error)) }))
    }
}
