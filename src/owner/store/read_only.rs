//! Looking at a record store without taking part in it: no election, no spool, no thread that follows an owner.

use std::path::Path;
use std::sync::Arc;

use super::changes::Changes;
use super::opener::{Opener, Sqlite};
use super::reading::Reading;
use crate::backend::local::filesystem;
use crate::backend::local::layout::Layout;
use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::{Trouble, belongs_to_another};
use crate::error::{Error, Result};
use crate::records::{BatchOutcome, Schema, Source, StreamMeta, StreamName, Window};
use crate::store_url::StoreName;

/// A record store that is only read. It never elects, ingests, migrates or waits for writers, and no fsck waits for it.
///
/// It has one thread, on which it reads, and opens the file anew when somebody has put another in its place.
#[derive(Debug)]
pub struct ReadOnly<O: Opener = Sqlite> {
    reading: Reading<O>,
    opener: Arc<O>,
    store: StorePath,
    name: StoreName,
}

/// Opens the record store at `path` for reading alone.
///
/// ```no_run
/// # async fn example() -> lockhouse::Result<()> {
/// let store = lockhouse::owner::read_only("/srv/orders")?;
/// for kind in store.kinds().await? {
///     println!("{}", kind.kind);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// `Invalid` for a path that cannot be a store's, or at which there is none; `Denied` for another user's and on a file
/// system whose locks cannot be trusted.
pub fn read_only(path: impl AsRef<Path>) -> Result<ReadOnly> {
    ReadOnly::allowing(path.as_ref(), &[])
}

impl ReadOnly<Sqlite> {
    /// As [`read_only`], with types of file systems that somebody who knows them allowed by name.
    ///
    /// # Errors
    ///
    /// As [`read_only`].
    pub fn allowing(path: &Path, allowed: &[String]) -> Result<ReadOnly<Sqlite>> {
        ReadOnly::with(path, allowed, Sqlite)
    }
}

impl<O: Opener> ReadOnly<O> {
    /// As [`ReadOnly::allowing`], for something else than records in a SQLite file.
    ///
    /// # Errors
    ///
    /// As [`read_only`].
    pub fn with(path: &Path, allowed: &[String], opener: O) -> Result<ReadOnly<O>> {
        let store = StorePath::resolve(path)?;
        let name = store.display();
        filesystem::judge(store.directory(), allowed, &name)?;
        belongs_to_another(&store.leases()).map_err(|error| error.at(&name))?;
        let layout = Layout::read(&store).trouble("reading", &store.layout()).map_err(|error| error.at(&name))?;
        if layout.is_none() {
            let message = "there is no store: look whether the path is the right one; `lockhouse init` makes one";
            return Err(Error::invalid_at(&name, message));
        }
        let opener = Arc::new(opener);
        Ok(ReadOnly { reading: Reading::start(opener.clone(), store.clone())?, opener, store, name })
    }

    /// The store's name.
    pub fn name(&self) -> &StoreName {
        &self.name
    }

    /// Reads something, on the thread that reads. `read` must not keep anything of the source.
    ///
    /// # Errors
    ///
    /// As [`Store::read`](super::Store::read).
    ///
    /// # Cancellation
    ///
    /// What has begun goes on to its end.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Source) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.reading.read(read).await
    }

    /// What is known of a stream; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`ReadOnly::read`].
    pub async fn meta(&self, stream: &StreamName) -> Result<Option<StreamMeta>> {
        let stream = stream.clone();
        self.read(move |source| source.meta(&stream)).await
    }

    /// The streams in the order of their names: at most `limit`, those after `after`.
    ///
    /// # Errors
    ///
    /// As [`ReadOnly::read`].
    pub async fn streams(&self, after: Option<&StreamName>, limit: usize) -> Result<Vec<StreamMeta>> {
        let after = after.cloned();
        self.read(move |source| source.streams(after.as_ref(), limit)).await
    }

    /// The kinds, in the order of their names.
    ///
    /// # Errors
    ///
    /// As [`ReadOnly::read`].
    pub async fn kinds(&self) -> Result<Vec<Schema>> {
        self.read(|source| source.kinds()).await
    }

    /// At most `limit` rows of a stream, from a seq on; `None` if there is no such stream.
    ///
    /// # Errors
    ///
    /// As [`ReadOnly::read`].
    pub async fn scan(&self, stream: &StreamName, from_seq: u64, limit: usize) -> Result<Option<Window>> {
        let stream = stream.clone();
        self.read(move |source| source.scan(&stream, from_seq, limit)).await
    }

    /// What the ledger knows of a batch.
    ///
    /// # Errors
    ///
    /// As [`ReadOnly::read`].
    pub async fn batch_outcome(&self, id: &str) -> Result<Option<BatchOutcome>> {
        let id = id.to_owned();
        self.read(move |source| source.batch_outcome(&id)).await
    }

    /// Tells from now on when the store may have changed.
    pub fn changes(&self) -> Changes {
        Changes::of(&self.opener.file(&self.store.path()))
    }
}
