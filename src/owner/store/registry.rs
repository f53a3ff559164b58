//! One open store a path within a process: a second open of it shares the first's, so a process never waits for its own
//! lock and never hands its writes to itself.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{mpsc, watch};

use super::core::{Core, Job, Position, forked};
use super::life::Life;
use super::opener::Opener;
use super::options::OpenStore;
use super::reading::Reading;
use super::worker::Worker;
use super::{Store, await_settled};
use crate::backend::local::files::{self, FileId};
use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::{Trouble, belongs_to_another};
use crate::error::{Error, Result};
use crate::owner::candidate::Candidate;
use crate::spool::{Producer, Spool};

/// An open store, and how many handles are on it.
struct Entry {
    core: Arc<dyn Any + Send + Sync>,
    handles: usize,
    pid: u32,
}

type Entries = HashMap<FileId, Entry>;

fn entries() -> MutexGuard<'static, Entries> {
    static ENTRIES: OnceLock<Mutex<Entries>> = OnceLock::new();
    ENTRIES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a store, or shares the one that is open.
pub(super) async fn open<O: Opener>(options: OpenStore<O>) -> Result<Store<O>> {
    let limit = options.start_wait;
    let store = enter(options)?;
    await_settled(&store, limit).await?;
    Ok(store)
}

/// A handle on the store that is open, or on one whose life begins now.
fn enter<O: Opener>(options: OpenStore<O>) -> Result<Store<O>> {
    let candidate = Candidate::allowing(&options.path, options.build.clone(), &options.file_systems)?;
    let path = StorePath::resolve(&options.path)?;
    let name = path.display();
    belongs_to_another(&path.leases()).map_err(|error| error.at(&name))?;
    // The store is known by the file that is locked: the same by every path to it. Nobody looks at it by locking it.
    let lock = path.lock();
    let made = files::open_or_create(&lock).and_then(|file| FileId::of(&file));
    let id = made.trouble("opening", &lock).map_err(|error| error.at(&name))?;
    let mut entries = entries();
    if let Some(entry) = entries.get_mut(&id) {
        if entry.pid != std::process::id() {
            // What its parent's SQLite knows of the file's locks is not so in a forked child: nothing here can open it.
            return Err(forked(&name));
        }
        let Ok(core) = Arc::downcast::<Core<O>>(entry.core.clone()) else {
            return Err(Error::invalid_at(&name, "this process has it open with another opener; use the same one"));
        };
        entry.handles += 1;
        return Ok(Store::handle(core, id));
    }
    let spool = Spool::allowing(&options.path, &options.file_systems)?;
    let producer = Producer::with_formats(&spool, options.build.clone(), options.formats.clone());
    let (jobs, receiver) = mpsc::unbounded_channel();
    let core = Arc::new(Core {
        reading: Reading::start(options.opener.clone(), path.clone())?,
        publishing: Worker::start("lockhouse-spool", || ())?,
        producer: Arc::new(producer),
        position: watch::Sender::new(Position::unsettled()),
        ended: watch::Sender::new(false),
        pid: std::process::id(),
        options,
        path,
        name,
        spool,
        jobs,
    });
    Life::begin(core.clone(), candidate, receiver)?;
    entries.insert(id, Entry { core: core.clone(), handles: 1, pid: std::process::id() });
    Ok(Store::handle(core, id))
}

/// Another handle.
pub(super) fn share<O: Opener>(core: &Core<O>, id: FileId) {
    if !core.is_own() {
        return;
    }
    if let Some(entry) = entries().get_mut(&id) {
        entry.handles += 1;
    }
}

/// A handle goes. The last one ends the store's life in this process; `true`: this was it.
pub(super) fn leave<O: Opener>(core: &Core<O>, id: FileId) -> bool {
    if !core.is_own() {
        // A forked child's copy: the life goes on in the parent, one of whose threads may have held the lock here.
        return false;
    }
    let mut entries = entries();
    let Some(entry) = entries.get_mut(&id) else { return false };
    entry.handles -= 1;
    if entry.handles > 0 {
        return false;
    }
    entries.remove(&id);
    // A life that has ended needs no telling.
    let _ = core.jobs.send(Job::Close);
    true
}
