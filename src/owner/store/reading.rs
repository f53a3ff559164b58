//! Reading the store, in either role: by a connection of its own on a thread of its own, opened again when somebody has
//! put another file in the place of the one that was open.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::opener::Opener;
use super::worker::Worker;
use crate::backend::local::files::{self, FileId};
use crate::backend::local::layout::Layout;
use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::Trouble;
use crate::clock::{SystemClock, within};
use crate::error::{Error, Result};
use crate::records::{BatchOutcome, Schema, Source, StreamMeta, StreamName, Window};

/// The thread that reads.
#[derive(Debug)]
pub(super) struct Reading<O: Opener> {
    worker: Worker<Reader<O>>,
    /// The file that is open, for who cannot wait for the thread.
    shown: Arc<Mutex<Option<FileId>>>,
    path: PathBuf,
}

/// How long a connection is waited for that somebody reads by.
const IN_USE: Duration = Duration::from_millis(100);
/// How often it is looked whether it is out of the way.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Its state.
pub(super) struct Reader<O: Opener> {
    opener: Arc<O>,
    store: StorePath,
    file: PathBuf,
    open: Option<Open<O::Target>>,
    shown: Arc<Mutex<Option<FileId>>>,
}

struct Open<T> {
    target: T,
    seen: Seen,
}

/// The file, the generation in which it was opened, and what is shared with those who have it open.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    file: FileId,
    generation: i64,
    shared: Option<FileId>,
}

impl<O: Opener> Reading<O> {
    pub(super) fn start(opener: Arc<O>, store: StorePath) -> Result<Reading<O>> {
        let file = opener.file(&store.path());
        let shown = Arc::<Mutex<Option<FileId>>>::default();
        let shows = Arc::clone(&shown);
        let path = file.clone();
        let worker =
            Worker::start("lockhouse-reads", move || Reader { opener, store, file, open: None, shown: shows })?;
        Ok(Reading { worker, shown, path })
    }

    /// Reads something. A store that has no file yet is an empty one.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Source) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.worker
            .run(move |reader| {
                reader.open()?;
                let Some(open) = &reader.open else { return read(&Nothing) };
                let done = read(&open.target);
                // What SQLite keeps beside the file is known by its name, so it may have been another's in between.
                reader.check(open)?;
                done
            })
            .await
    }

    /// Takes the connection that reads away, for it to become the one that writes. `None`: there is none that is of use,
    /// or somebody reads by it; then it is one to the same file.
    pub(super) async fn take(&self) -> Result<Option<O::Target>> {
        let taking = self.worker.run(|reader| {
            reader.open()?;
            Ok(reader.take().map(|open| open.target))
        });
        let mut taking = Box::pin(taking);
        if let Some(taken) = within(&SystemClock, IN_USE, &mut taking).await {
            return taken;
        }
        loop {
            // Dropped, it is left out, or what it took is closed.
            if self.stands_on(&self.path) {
                return Ok(None);
            }
            if let Some(taken) = within(&SystemClock, LOOK_AGAIN, &mut taking).await {
                return taken;
            }
        }
    }

    /// Whether nothing is open but what has the file's name now.
    fn stands_on(&self, file: &Path) -> bool {
        match *self.shown.lock().unwrap_or_else(PoisonError::into_inner) {
            None => true,
            open => files::id_at(file).is_ok_and(|there| there == open),
        }
    }
}

impl<O: Opener> Reader<O> {
    /// Opens what there is to be read, unless it is open.
    fn open(&mut self) -> Result<()> {
        let name = self.store.display();
        let id = files::id_at(&self.file).trouble("looking at", &self.file).map_err(|error| error.at(&name))?;
        let path = self.store.layout();
        let layout = Layout::read(&self.store).trouble("reading", &path).map_err(|error| error.at(&name))?;
        let (Some(id), Some(layout)) = (id, layout) else {
            self.close();
            return Ok(());
        };
        let mut seen = Seen { file: id, generation: layout.generation, shared: self.shared() };
        if self.open.as_ref().is_none_or(|open| open.seen != seen) {
            // The old one first: two files of one name would share what SQLite keeps beside it.
            self.close();
            let target = self.opener.open_read_only(&self.file, &layout.store_id)?;
            // Opening may have made it.
            seen.shared = self.shared();
            self.open = target.map(|target| Open { target, seen });
            self.show();
        }
        Ok(())
    }

    fn shared(&self) -> Option<FileId> {
        self.opener.shared(&self.file).and_then(|shared| files::id_at(&shared).ok().flatten())
    }

    /// Nothing is shown as closed before it is.
    fn close(&mut self) {
        self.open = None;
        self.show();
    }

    fn take(&mut self) -> Option<Open<O::Target>> {
        let taken = self.open.take();
        self.show();
        taken
    }

    fn show(&self) {
        let open = self.open.as_ref().map(|open| open.seen.file);
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = open;
    }

    /// Whether it is still the file that was read.
    fn check(&self, open: &Open<O::Target>) -> Result<()> {
        // What was not shared yet may be by now: a rebuilt file has no log before its first owner.
        let shares = open.seen.shared.is_none() || self.shared() == open.seen.shared;
        match files::id_at(&self.file) {
            Ok(Some(id)) if shares && id == open.seen.file => Ok(()),
            _ => {
                Err(Error::unavailable_at(&self.store.display(), "its file was replaced while it was read; read again"))
            }
        }
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
