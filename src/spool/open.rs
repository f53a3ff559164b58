//! A spool that is open: its directories, looked for again when somebody removed or replaced them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::directories::Directories;
use super::listing::Listed;
use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::Trouble;
use crate::error::Result;
use crate::store_url::StoreName;

/// The spool of one store.
#[derive(Debug, Clone)]
pub struct Spool {
    store: StorePath,
    name: StoreName,
    allowed: Vec<String>,
    open: fn(&StorePath, &[String]) -> Result<Directories>,
    directories: Arc<ArcSwap<Directories>>,
}

impl Spool {
    /// Opens the spool of the store at `path`; makes its directories where they are missing, private and synced.
    ///
    /// # Errors
    ///
    /// `Invalid` or `Denied` for a path, a file system or directories that cannot be trusted; `Unavailable` while the
    /// disk is full.
    pub fn open(path: impl AsRef<Path>) -> Result<Spool> {
        Spool::allowing(path.as_ref(), &[])
    }

    /// As [`Spool::open`], with types of file systems that somebody who knows them allowed by name.
    pub fn allowing(path: &Path, allowed: &[String]) -> Result<Spool> {
        Spool::get(path, allowed, Directories::open)
    }

    /// The spool as it is, for whoever only looks.
    pub(super) fn to_look_at(path: &Path, allowed: &[String]) -> Result<Spool> {
        Spool::get(path, allowed, Directories::look)
    }

    fn get(path: &Path, allowed: &[String], open: fn(&StorePath, &[String]) -> Result<Directories>) -> Result<Spool> {
        let store = StorePath::resolve(path)?;
        let directories = open(&store, allowed)?;
        Ok(Spool {
            name: store.display(),
            store,
            allowed: allowed.to_vec(),
            open,
            directories: Arc::new(ArcSwap::from_pointee(directories)),
        })
    }

    /// The store's name.
    pub fn store(&self) -> &StoreName {
        &self.name
    }

    /// Where it lies.
    pub fn path(&self) -> PathBuf {
        self.store.spool()
    }

    /// Its directories, as they are now: somebody may have removed or replaced them.
    pub(crate) fn directories(&self) -> Result<Arc<Directories>> {
        let directories = self.directories.load_full();
        let path = self.path();
        if directories.stand().trouble("looking at", &path).map_err(|error| error.at(&self.name))? {
            return Ok(directories);
        }
        let directories = Arc::new((self.open)(&self.store, &self.allowed)?);
        self.directories.store(Arc::clone(&directories));
        Ok(directories)
    }

    /// What lies in `incoming/` by one listing.
    pub(crate) fn listed(&self) -> Result<Listed> {
        let directories = self.directories()?;
        self.trouble("listing", directories.incoming.path(), directories.incoming.names()).map(Listed::of)
    }

    pub(crate) fn trouble<T>(&self, doing: &str, path: &Path, done: io::Result<T>) -> Result<T> {
        done.trouble(doing, path).map_err(|error| error.at(&self.name))
    }
}
