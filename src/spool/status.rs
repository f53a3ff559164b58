//! What a look at a spool shows. It makes nothing, not even a directory.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::directories;
use super::failed::{self, FailedFiles};
use super::listing::Listed;
use super::open::Spool;
use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::Trouble;
use crate::error::Result;

/// What lies in a spool.
///
/// As JSON: `dir`, `backlog`, `failed`, `oldest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SpoolStatus {
    /// Its directory.
    #[serde(serialize_with = "shown")]
    pub dir: PathBuf,
    /// Batches that wait for the owner.
    pub backlog: u64,
    /// What could not be applied, and waits for a person.
    pub failed: u64,
    /// When the oldest of those that wait was published, by its producer's wall clock.
    pub oldest: Option<Timestamp>,
}

fn shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl SpoolStatus {
    /// What lies in the spool of the store at `path`, by the names in two directories: for whoever looks often, or may only
    /// read. Nothing else is opened, and nothing synced. `None`: it has no spool.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is no path of a store; those of reading the directories.
    pub fn look(path: &Path) -> Result<Option<SpoolStatus>> {
        let store = StorePath::resolve(path)?;
        let dir = store.spool();
        let names = |part: &str| match directories::names_at(&dir.join(part)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            names => names.map(Some).trouble("listing", &dir.join(part)).map_err(|error| error.at(&store.display())),
        };
        let (Some(incoming), Some(failed)) = (names("incoming")?, names("failed")?) else { return Ok(None) };
        Ok(Some(SpoolStatus::of(dir, &Listed::of(incoming), failed::count(&failed))))
    }

    fn of(dir: PathBuf, incoming: &Listed, failed: u64) -> SpoolStatus {
        let oldest = incoming.batches.iter().map(|batch| batch.created_ns()).min();
        SpoolStatus {
            dir,
            backlog: (incoming.batches.len() + incoming.strange.len()) as u64,
            failed,
            oldest: oldest.and_then(|ns| Timestamp::from_nanosecond(i128::from(ns)).ok()),
        }
    }
}

impl Spool {
    /// The spool of the store at `path` if it has one, to be looked at: this makes nothing and waits for no disk, so that
    /// what is published through it may be lost with the machine. For that, open it.
    ///
    /// # Errors
    ///
    /// `Invalid` or `Denied` for a path, a file system or directories that cannot be trusted.
    pub fn find(path: &Path, allowed: &[String]) -> Result<Option<Spool>> {
        let spool = StorePath::resolve(path)?.spool();
        let parts = ["tmp", "incoming", "failed", "trash"];
        // One that is half made has nothing in it.
        if !parts.iter().all(|part| spool.join(part).is_dir()) {
            return Ok(None);
        }
        Spool::to_look_at(path, allowed).map(Some)
    }

    /// What lies in it now.
    ///
    /// # Errors
    ///
    /// Those of reading its directories.
    pub fn status(&self) -> Result<SpoolStatus> {
        let listed = self.listed()?;
        Ok(SpoolStatus::of(self.path(), &listed, FailedFiles::of(self).count()?))
    }

    /// The ids of the batches that wait, in no order that means anything.
    ///
    /// # Errors
    ///
    /// Those of reading its directories.
    pub fn waiting(&self) -> Result<Vec<String>> {
        Ok(self.listed()?.batches.iter().map(|batch| batch.id().to_owned()).collect())
    }
}
