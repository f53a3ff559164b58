//! Reading the store, in either role: by a connection of its own on a thread of its own, opened again when somebody has
//! put another file in the place of the one that was open.

use std::path::PathBuf;
use std::sync::Arc;

use super::opener::Opener;
use super::worker::Worker;
use crate::backend::local::files::{self, FileId};
use crate::backend::local::layout::Layout;
use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::Trouble;
use crate::error::Result;
use crate::records::{BatchOutcome, Schema, Source, StreamMeta, StreamName, Window};

/// The thread that reads.
#[derive(Debug)]
pub(super) struct Reading<O: Opener>(Worker<Reader<O>>);

/// Its state.
pub(super) struct Reader<O: Opener> {
    opener: Arc<O>,
    store: StorePath,
    file: PathBuf,
    open: Option<Open<O::Target>>,
}

struct Open<T> {
    target: T,
    /// The file, and the generation in which it was opened.
    seen: (FileId, i64),
}

impl<O: Opener> Reading<O> {
    pub(super) fn start(opener: Arc<O>, store: StorePath) -> Result<Reading<O>> {
        let file = opener.file(&store.path());
        Worker::start("lockhouse-reads", move || Reader { opener, store, file, open: None }).map(Reading)
    }

    /// Reads something. A store that has no file yet is an empty one.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Source) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.0
            .run(move |reader| match reader.target()? {
                Some(target) => read(target),
                None => read(&Nothing),
            })
            .await
    }

    /// Takes the connection that reads away, for it to become the one that writes. `None`: there is none that is of use.
    pub(super) async fn take(&self) -> Result<Option<O::Target>> {
        self.0
            .run(|reader| {
                reader.target()?;
                Ok(reader.open.take().map(|open| open.target))
            })
            .await
    }
}

impl<O: Opener> Reader<O> {
    fn target(&mut self) -> Result<Option<&O::Target>> {
        let name = self.store.display();
        let id = files::id_at(&self.file).trouble("looking at", &self.file).map_err(|error| error.at(&name))?;
        let path = self.store.layout();
        let layout = Layout::read(&self.store).trouble("reading", &path).map_err(|error| error.at(&name))?;
        let (Some(id), Some(layout)) = (id, layout) else {
            self.open = None;
            return Ok(None);
        };
        let seen = (id, layout.generation);
        if self.open.as_ref().is_none_or(|open| open.seen != seen) {
            // The old one first: two files of one name would share what SQLite keeps beside it.
            self.open = None;
            let target = self.opener.open_read_only(&self.file, &layout.store_id)?;
            self.open = target.map(|target| Open { target, seen });
        }
        Ok(self.open.as_ref().map(|open| &open.target))
    }
}

/// A store in which nothing was ever written.
struct Nothing;

impl Source for Nothing {
    fn meta(&self, _stream: &StreamName) -> Result<Option<StreamMeta>> {
        Ok(None)
    }

    fn streams(&self, _after: Option<&StreamName>, _limit: usize) -> Result<Vec<StreamMeta>> {
        Ok(Vec::new())
    }

    fn kinds(&self) -> Result<Vec<Schema>> {
        Ok(Vec::new())
    }

    fn scan(&self, _stream: &StreamName, _from_seq: u64, _limit: usize) -> Result<Option<Window>> {
        Ok(None)
    }

    fn batch_outcome(&self, _id: &str) -> Result<Option<BatchOutcome>> {
        Ok(None)
    }

    fn producer_seq(&self, _instance: &str) -> Result<u64> {
        Ok(0)
    }
}
