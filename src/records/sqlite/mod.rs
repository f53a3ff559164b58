//! Records in a SQLite file.
//!
//! One table for each kind, with typed columns, so that people can ask it in SQL; `catalog` lists the others. The file
//! has a write-ahead log, and each commit is on the disk before it returns. A store's owner has one connection that
//! writes, on one thread; any number of processes read beside it and see whole batches only.
//!
//! # What is not promised
//!
//! Another program may write the file too. It waits for us and we for it, a short while; then a batch pauses and loses
//! nothing. What it does to our tables is its own affair. On a file system without real locks or shared memory nothing
//! holds: those are refused by whoever resolves the path.
//!
//! # Order
//!
//! Every change is one transaction that begins with the write lock, *then* asks whether this process may still write,
//! and only then looks into the ledger: whoever looks before the lock may apply what another owner has applied since. It
//! asks again before it commits. An entry has a savepoint. An error that is none of its own takes the whole batch
//! back, for after some errors SQLite has left the transaction by itself, and what came next would have been committed
//! alone.
//!
//! # Map
//!
//! `open` makes and opens the file, `catalog` has its tables and their versions, `kinds` the table of each kind, `streams`
//! and `ledger` a table each; `entry` applies one entry and `append` adds its rows; `scan` reads, `retention` removes what
//! has ended, `trouble` judges SQLite's errors.

mod append;
mod catalog;
mod entry;
mod kinds;
mod ledger;
mod open;
mod retention;
mod scan;
mod streams;
mod trouble;

use std::path::Path;

use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior};

pub use catalog::CATALOG_VERSION;
use open::Place;
use trouble::Stopped;

use super::batch::{Batch, Entry};
use super::name::StreamName;
use super::outcome::{BatchOutcome, Outcome};
use super::schema::Schema;
use super::target::{Checkpoint, Expired, Source, Standing, StreamMeta, Target, TargetError, Window};
use crate::error::Result;

/// Records in a SQLite file.
#[derive(Debug)]
pub struct SqliteTarget {
    connection: Connection,
    place: Place,
    access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    ReadOnly,
    Writable,
}

impl SqliteTarget {
    /// Opens the file for writing; makes it, with mode 0600, if there is none, and brings an older one to this build's
    /// [`CATALOG_VERSION`]. Only who holds the store's ownership and a writer lease may call this.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is no regular file with one name, no SQLite database, another program's, or another store's
    /// than `store_id`; [`CatalogVersion`](crate::CatalogVersion) for a later build's; `Denied` for another user's;
    /// `Unavailable` for a full or failing disk and for another program's lock.
    pub fn open(path: &Path, store_id: &str) -> Result<SqliteTarget> {
        let place = Place::new(path, store_id)?;
        Ok(SqliteTarget { connection: place.writable()?, place, access: Access::Writable })
    }

    /// Opens the file for reading; `None` while there is no file, or nothing in it yet.
    ///
    /// It makes no file but those that SQLite keeps beside one that has a write-ahead log.
    ///
    /// # Errors
    ///
    /// As [`SqliteTarget::open`]; `CatalogVersion` for an earlier build's too.
    pub fn open_read_only(path: &Path, store_id: &str) -> Result<Option<SqliteTarget>> {
        let place = Place::new(path, store_id)?;
        let connection = place.read_only()?;
        Ok(connection.map(|connection| SqliteTarget { connection, place, access: Access::ReadOnly }))
    }

    /// The version of SQLite in use.
    pub fn sqlite_version() -> &'static str {
        rusqlite::version()
    }

    fn look<T>(&self, look: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        look(&self.connection).map_err(|error| trouble::of_look(&self.place.name, "reading it", error))
    }

    /// One transaction from the write lock to the commit. However it is left, it is over.
    fn write<T>(
        &mut self,
        standing: Standing<'_>,
        work: impl FnOnce(&Connection) -> Result<T, TargetError>,
    ) -> Result<T, TargetError> {
        let name = &self.place.name;
        let at = |error| trouble::of_batch(name, &error);
        if !self.connection.is_autocommit() {
            // Taking back the last one failed: nothing goes on before that is done.
            self.connection.execute_batch("ROLLBACK").map_err(|error| {
                TargetError::Pause(format!(
                    "store {name}: the last transaction cannot be taken back: {error}; open it anew"
                ))
            })?;
        }
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate).map_err(at)?;
        standing().map_err(TargetError::Standing)?;
        let done = work(&transaction)?;
        standing().map_err(TargetError::Standing)?;
        crate::crash::point("records-applied");
        transaction.commit().map_err(at)?;
        crate::crash::point("records-committed");
        Ok(done)
    }
}

impl Source for SqliteTarget {
    fn meta(&self, stream: &StreamName) -> Result<Option<StreamMeta>> {
        self.look(|connection| match streams::find(connection, stream)? {
            Some(found) => found.meta(stream),
            None => Ok(None),
        })
    }

    fn streams(&self, after: Option<&StreamName>, limit: usize) -> Result<Vec<StreamMeta>> {
        self.look(|connection| streams::list(connection, after, limit))
    }

    fn kinds(&self) -> Result<Vec<Schema>> {
        self.look(kinds::all)
    }

    fn scan(&self, stream: &StreamName, from_seq: u64, limit: usize) -> Result<Option<Window>> {
        self.look(|connection| scan::window(connection, stream, from_seq, limit))
    }

    fn batch_outcome(&self, id: &str) -> Result<Option<BatchOutcome>> {
        self.look(|connection| ledger::outcome(connection, id))
    }

    fn producer_seq(&self, instance: &str) -> Result<u64> {
        self.look(|connection| ledger::last_seq(connection, instance))
    }
}

impl Target for SqliteTarget {
    fn append_batch(
        &mut self,
        batch: &Batch,
        now: Timestamp,
        standing: Standing<'_>,
    ) -> Result<BatchOutcome, TargetError> {
        let name = self.place.name.clone();
        let at = |error| trouble::of_batch(&name, &error);
        self.write(standing, |connection| {
            if let Some(known) = ledger::outcome(connection, &batch.id).map_err(at)? {
                return Ok(known);
            }
            let last = ledger::last_seq(connection, &batch.instance).map_err(at)?;
            if batch.seq <= last {
                return Err(TargetError::Late { instance: batch.instance.clone(), seq: batch.seq, last });
            }
            let mut entries = Vec::with_capacity(batch.entries.len());
            for entry in &batch.entries {
                entries.push(apply(connection, batch, entry, now).map_err(at)?);
                // What came next would be committed by itself.
                if connection.is_autocommit() {
                    let text = format!("store {name}: SQLite left the transaction by itself");
                    return Err(TargetError::Batch(text));
                }
            }
            let outcome = BatchOutcome::Applied { at: now, entries };
            let seq = signed(batch.seq).map_err(at)?;
            ledger::record(connection, Some(&batch.id), &batch.instance, seq, &outcome).map_err(at)?;
            Ok(outcome)
        })
    }

    fn record_failure(
        &mut self,
        id: &str,
        instance: &str,
        seq: u64,
        error: &str,
        now: Timestamp,
        standing: Standing<'_>,
    ) -> Result<BatchOutcome, TargetError> {
        let name = self.place.name.clone();
        let at = |error| trouble::of_batch(&name, &error);
        self.write(standing, |connection| {
            if let Some(known) = ledger::outcome(connection, id).map_err(at)? {
                return Ok(known);
            }
            let outcome = BatchOutcome::Failed { at: now, error: error.to_owned() };
            ledger::record(connection, Some(id), instance, signed(seq).map_err(at)?, &outcome).map_err(at)?;
            Ok(outcome)
        })
    }

    fn record_skip(
        &mut self,
        instance: &str,
        seq: u64,
        now: Timestamp,
        standing: Standing<'_>,
    ) -> Result<(), TargetError> {
        let name = self.place.name.clone();
        let at = |error| trouble::of_batch(&name, &error);
        self.write(standing, |connection| {
            if seq <= ledger::last_seq(connection, instance).map_err(at)? {
                return Ok(());
            }
            let outcome = BatchOutcome::Skipped { at: now };
            ledger::record(connection, None, instance, signed(seq).map_err(at)?, &outcome).map_err(at)
        })
    }

    fn promote(&mut self) -> Result<()> {
        if self.access == Access::ReadOnly {
            self.connection = self.place.writable()?;
            self.access = Access::Writable;
        }
        Ok(())
    }

    fn sweep_batches(
        &mut self,
        before: Timestamp,
        keep: &dyn Fn(&str) -> bool,
        standing: Standing<'_>,
    ) -> Result<u64, TargetError> {
        let name = self.place.name.clone();
        self.write(standing, |connection| {
            ledger::sweep(connection, before, keep).map_err(|error| trouble::of_batch(&name, &error))
        })
    }

    fn expire(&mut self, now: Timestamp, standing: Standing<'_>) -> Result<Expired, TargetError> {
        let name = self.place.name.clone();
        self.write(standing, |connection| {
            retention::expire(connection, now).map_err(|error| trouble::of_batch(&name, &error))
        })
    }

    fn checkpoint(&mut self) -> Result<Checkpoint, TargetError> {
        let busy = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        match busy.map_err(|error| trouble::of_batch(&self.place.name, &error))? {
            0 => Ok(Checkpoint::Complete),
            _ => Ok(Checkpoint::Partial),
        }
    }

    fn abandon(&mut self) {
        if let Err(error) = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            tracing::warn!(store = %self.place.name, %error, "closing the file may still write it");
        }
    }
}

/// Applies one entry within a savepoint. An error is not the entry's: all of its batch is to be taken back.
fn apply(connection: &Connection, batch: &Batch, entry: &Entry, now: Timestamp) -> rusqlite::Result<Outcome> {
    let run = |sql| connection.prepare_cached(sql)?.execute([]).map(drop);
    run("SAVEPOINT entry")?;
    let outcome = match entry::apply(connection, batch, entry, now) {
        Ok(applied) => Outcome::Applied(applied),
        // SQLite left the transaction with it: there is nothing to go back to, and the caller gives up.
        Err(Stopped::Refused(refusal)) if connection.is_autocommit() => return Ok(Outcome::Refused(refusal)),
        Err(Stopped::Refused(refusal)) => {
            run("ROLLBACK TO entry")?;
            Outcome::Refused(refusal)
        }
        Err(Stopped::Sql(error)) => return Err(error),
    };
    run("RELEASE entry")?;
    Ok(outcome)
}

/// Numbers are kept as SQLite's, which have a sign.
fn signed(number: u64) -> rusqlite::Result<i64> {
    i64::try_from(number).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn unsigned(column: usize, number: i64) -> rusqlite::Result<u64> {
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}
