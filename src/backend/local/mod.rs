//! Leases on one machine, kept by the kernel.
//!
//! A lease is a locked file: the kernel frees it when the last process that has it open is gone, so nothing is
//! ever stale and nobody needs a clock. The handshake is that of every backend, with files for documents:
//!
//! ```text
//! writer: publish writers/<uuid>.json, locked ─▶ look at fsck.json ─▶ granted        else withdraw
//! fsck:   lock fsck.lock ─▶ publish fsck.json, locked ─▶ list the writers ─▶ wait for the living ─▶ granted
//! ```
//!
//! # What it does not promise
//!
//! Anything across machines: network file systems are refused. Anything against a user who removes the files
//! of a living holder: the holder notices with its next re-check, at the latest half a refresh interval later.
//!
//! # Why nothing here awaits
//!
//! Every statement is a handful of system calls on a local disk, and runs to its end where it begins. So no
//! statement is ever half done because its caller was dropped, and none is late. A disk that hangs holds up the
//! supervisor, and nobody else: the kernel goes on keeping the locks.
//!
//! # Files
//!
//! `path` resolves and names, `filesystem` refuses, `files` opens, `lock` locks, `presence` tells who,
//! `layout` and `history` are what outlives the processes, `watch` hears of changes.

pub(crate) mod files;
pub(crate) mod filesystem;
mod history;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod modified;
pub(crate) mod path;
pub(crate) mod presence;
pub(crate) mod trouble;
mod turn;
pub(crate) mod watch;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::backend::{
    Access, Answer, Awaited, Backend, BackendError, Changes, Detail, FSCK_ID, Fault, FsckLook, Grant, HistoryLine,
    Init, Install, LeaseKey, Life, NewLease, Record, RefreshLook, StoreLook, Traits, WriterLook,
};
use crate::crash;
use crate::error::Result;
use crate::lease::status::{HistoryEntry, LeaseKind, Phase};
use crate::store_url::StoreName;

use files::FileId;
use layout::Layout;
use lock::{Elected, HeldLock, Looked, Wanted};
use path::StorePath;
use presence::{LocalPulse, Presence};
use trouble::Trouble;

use trouble::belongs_to_another;

/// The local backend of one coordinator.
#[derive(Debug)]
pub(crate) struct Local {
    path: StorePath,
    name: StoreName,
    allowed: Vec<String>,
    held: RefCell<BTreeMap<LeaseKey, Holding>>,
    changes: RefCell<Option<tokio::sync::watch::Receiver<()>>>,
    registered: std::cell::Cell<usize>,
}

/// Refuses a path, file systems and files that the protocol cannot trust. Says what the store lives on.
pub(crate) fn judge_all(path: &StorePath, allowed: &[String], name: &StoreName) -> Result<Vec<filesystem::FileSystem>> {
    path.check()?;
    let mut directories = vec![path.directory().to_owned()];
    let beside = [path.path(), path.leases(), path.spool()];
    directories.extend(beside.into_iter().filter(|path| path.is_dir()));
    let found: Result<_> = directories.iter().map(|directory| filesystem::judge(directory, allowed, name)).collect();
    belongs_to_another(&path.leases()).map_err(|error| error.at(name))?;
    found
}

/// The locks of one lease.
#[derive(Debug)]
enum Holding {
    Writer(HeldLock),
    Fsck(Box<FsckLocks>),
}

#[derive(Debug)]
struct FsckLocks {
    election: HeldLock,
    presence: HeldLock,
    says: Presence,
    /// The directory whose list of writers the grant rests on.
    writers: FileId,
}

/// Each so many registrations, dead writers' files are removed on the way.
const TIDY_EVERY: usize = 64;

impl Local {
    /// A backend on a store that need not have a layout yet.
    ///
    /// # Errors
    ///
    /// `Invalid` or `Denied` for a path, a file system or files that cannot be trusted.
    pub(crate) fn open(path: &std::path::Path, allowed: &[String]) -> Result<Local> {
        let path = StorePath::resolve(path)?;
        let name = path.display();
        let local = Local {
            path,
            name,
            allowed: allowed.to_vec(),
            held: RefCell::default(),
            changes: RefCell::default(),
            registered: std::cell::Cell::new(0),
        };
        local.check()?;
        Ok(local)
    }

    /// Refuses what the protocol cannot trust.
    fn check(&self) -> Result<()> {
        judge_all(&self.path, &self.allowed, &self.name).map(drop)
    }

    fn no_layout(&self) -> BackendError {
        BackendError::new(Fault::Invalid, crate::backend::NO_LAYOUT)
    }

    fn generation(&self) -> Answer<Option<i64>> {
        let layout = Layout::read(&self.path).trouble("reading", &self.path.layout())?;
        Ok(layout.map(|layout| layout.generation))
    }

    fn writer_path(&self, id: &str) -> PathBuf {
        let name = id.strip_prefix("lease/").unwrap_or(id);
        self.path.writers().join(format!("{name}.json"))
    }

    fn path_of(&self, id: &str) -> PathBuf {
        if id == FSCK_ID { self.path.fsck() } else { self.writer_path(id) }
    }

    /// Whether the locks of a lease are still what they were.
    fn stands(&self, holding: &Holding) -> Answer<bool> {
        match holding {
            Holding::Writer(lock) => lock.recheck().trouble("checking", lock.path()),
            Holding::Fsck(locks) => {
                for lock in [&locks.election, &locks.presence] {
                    if !lock.recheck().trouble("checking", lock.path())? {
                        return Ok(false);
                    }
                }
                let directory = self.path.writers();
                Ok(files::id_at(&directory).trouble("looking at", &directory)? == Some(locks.writers))
            }
        }
    }

    fn is_standing(&self, key: &LeaseKey) -> Answer<bool> {
        match self.held.borrow().get(key) {
            Some(holding) => self.stands(holding),
            None => Ok(false),
        }
    }

    /// The fsck in the way, if a living one is, or something that may be one.
    fn living_fsck(&self) -> Option<Record<LocalPulse>> {
        presence::record(FSCK_ID, &self.path.fsck(), Wanted::Content).filter(|record| record.life != Life::Dead)
    }

    /// Every writer's record, dead ones too.
    fn writers(&self, wanted: Wanted) -> Answer<Vec<Record<LocalPulse>>> {
        let directory = self.path.writers();
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.trouble("listing", &directory)?,
        };
        let mut records = Vec::new();
        for entry in entries {
            let entry = entry.trouble("listing", &directory)?;
            let name = entry.file_name();
            // Not ours if it is no text.
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
            records.extend(presence::record(&format!("lease/{name}"), &entry.path(), wanted));
        }
        Ok(records)
    }

    /// Removes what dead writers left: their files, and those that never came to their name.
    fn tidy(&self, records: &[Record<LocalPulse>]) {
        for record in records.iter().filter(|record| record.life == Life::Dead) {
            self.remove_if_dead(&self.path_of(&record.id));
        }
        for directory in [self.path.writers(), self.path.leases()] {
            let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
            for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(files::is_temporary)) {
                self.remove_if_dead(&entry.path());
            }
        }
    }

    fn remove_if_dead(&self, path: &std::path::Path) {
        if let Looked::Dead(found) = lock::look(path)
            && let Err(error) = lock::remove_dead(path, &found)
        {
            tracing::debug!(%error, path = %path.display(), "a dead holder's file cannot be removed");
        }
    }

    /// Becomes the fsck by election, then says so.
    fn elect(&self, lease: &NewLease) -> Answer<Option<Holding>> {
        let path = self.path.fsck_lock();
        let mut election = match lock::elect(&path).trouble("locking", &path)? {
            Elected::Taken => return Ok(None),
            Elected::Held(election) => election,
        };
        election.hasten();
        let writers = files::id_at(&self.path.writers()).trouble("looking at", &self.path.writers())?;
        let Some(writers) = writers else { return Err(self.no_layout()) };
        let says = Presence::new(lease, LeaseKind::Fsck, Some(Phase::Draining));
        let mut presence = lock::publish(&self.path.fsck(), &says.json()).trouble("publishing", &self.path.fsck())?;
        presence.hasten();
        Ok(Some(Holding::Fsck(Box::new(FsckLocks { election, presence, says, writers }))))
    }

    fn raise(&self, expected: i64) -> Answer<bool> {
        let path = self.path.layout();
        let layout = Layout::read(&self.path).trouble("reading", &path)?;
        let Some(layout) = layout.filter(|layout| layout.generation == expected) else { return Ok(false) };
        let raised = Layout { generation: expected + 1, ..layout };
        raised.write(&self.path).trouble("writing", &path)?;
        Ok(true)
    }

    /// Takes a lease's locks apart: the file first, then the locks.
    fn let_go(&self, holding: Holding) {
        let withdraw = |lock: HeldLock| {
            let path = lock.path().to_owned();
            if let Err(error) = lock.withdraw() {
                // It is a dead holder's file then.
                tracing::debug!(%error, path = %path.display(), "a presence file cannot be removed");
            }
        };
        crash::point("releasing");
        match holding {
            Holding::Writer(lock) => withdraw(lock),
            Holding::Fsck(locks) => {
                withdraw(locks.presence);
                crash::point("presence-withdrawn");
                drop(locks.election);
            }
        }
    }
}

impl Backend for Local {
    type Session = ();
    type Pulse = LocalPulse;

    fn store(&self) -> &StoreName {
        &self.name
    }

    fn traits(&self) -> Traits {
        Traits {
            name: "local",
            sessions_refuse_late: true,
            fails_over: false,
            shared_with_peer: false,
            knows_the_living: true,
        }
    }

    fn changes(&self, _of: Awaited) -> Changes {
        let mut changes = self.changes.borrow_mut();
        if changes.as_ref().is_none_or(|running| running.has_changed().is_err()) {
            *changes = match watch::changes(&[&self.path.leases(), &self.path.writers()]) {
                Ok(started) => Some(started),
                Err(error) => {
                    tracing::debug!(%error, store = %self.name, "no directory events; polling instead");
                    None
                }
            };
        }
        changes.clone().map_or_else(Changes::untold, Changes::told_by)
    }

    async fn ready(&self, access: Access) -> Answer<()> {
        belongs_to_another(&self.path.leases())?;
        match access {
            Access::Remove | Access::Write if self.generation()?.is_none() => Err(self.no_layout()),
            Access::Look | Access::Init | Access::Remove | Access::Write => Ok(()),
        }
    }

    async fn init(&self) -> Answer<Init> {
        let (leases, writers) = (self.path.leases(), self.path.writers());
        files::create_directory(&leases).trouble("making", &leases)?;
        files::create_directory(&writers).trouble("making", &writers)?;
        // Held while the layout is made, so that two first runs make one; an fsck that holds it has a layout.
        let path = self.path.fsck_lock();
        let election = lock::elect(&path).trouble("locking", &path)?;
        if self.generation()?.is_some() {
            return Ok(Init::AlreadyThere);
        }
        if matches!(election, Elected::Taken) {
            return Err(BackendError::new(Fault::Busy, "another process is making the layout"));
        }
        Layout::new().write(&self.path).trouble("writing", &self.path.layout())?;
        for directory in [&writers, &leases] {
            files::sync_directory(directory).trouble("syncing", directory)?;
        }
        files::sync_directory(self.path.directory()).trouble("syncing", self.path.directory())?;
        Ok(Init::Made)
    }

    async fn session(&self) -> Answer<()> {
        Ok(())
    }

    async fn register(&self, (): &mut (), lease: &NewLease) -> Answer<()> {
        if self.registered.get().is_multiple_of(TIDY_EVERY) {
            self.tidy(&self.writers(Wanted::Life)?);
        }
        self.registered.set(self.registered.get() + 1);
        let path = self.writer_path(&lease.key.id);
        let says = Presence::new(lease, LeaseKind::Writer, None);
        let mut lock = lock::publish(&path, &says.json()).trouble("publishing", &path)?;
        lock.hasten();
        self.held.borrow_mut().insert(lease.key.clone(), Holding::Writer(lock));
        Ok(())
    }

    async fn look_writer(&self, (): &mut (), key: &LeaseKey) -> Answer<WriterLook<LocalPulse>> {
        Ok(WriterLook { registered: self.is_standing(key)?, fsck: self.living_fsck(), generation: self.generation()? })
    }

    async fn install(&self, (): &mut (), lease: &NewLease) -> Answer<Install<LocalPulse>> {
        if let Some(holding) = self.elect(lease)? {
            self.held.borrow_mut().insert(lease.key.clone(), holding);
            return Ok(Install::Mine);
        }
        match self.living_fsck() {
            Some(fsck) => Ok(Install::Held(Box::new(fsck))),
            // Between its election and its publication, or between its end and that of its election.
            None => Err(BackendError::new(Fault::Exists, "another fsck is just coming or going")),
        }
    }

    /// Nothing to replace: what the kernel freed is installed over.
    async fn replace(&self, session: &mut (), lease: &NewLease, _over: &LocalPulse) -> Answer<bool> {
        Ok(matches!(self.install(session, lease).await?, Install::Mine))
    }

    async fn look_fsck(&self, (): &mut (), key: &LeaseKey, detail: Detail) -> Answer<FsckLook<LocalPulse>> {
        let fsck =
            if self.is_standing(key)? { presence::record(FSCK_ID, &self.path.fsck(), Wanted::Content) } else { None };
        let mut writers = self.writers(match detail {
            Detail::Full => Wanted::Content,
            Detail::Lean => Wanted::Life,
        })?;
        self.tidy(&writers);
        writers.retain(|record| record.life != Life::Dead);
        Ok(FsckLook { fsck, generation: self.generation()?, writers, foreign_fences: false })
    }

    async fn sweep_fences(&self, _keep: &LeaseKey) -> Answer<()> {
        Ok(())
    }

    async fn grant(&self, (): &mut (), key: &LeaseKey, generation: i64, bump: bool) -> Answer<Grant> {
        if !self.is_standing(key)? {
            return Ok(Grant::Displaced);
        }
        let now = self.generation()?;
        if now != Some(generation) || (bump && !self.raise(generation)?) {
            return Ok(Grant::GenerationMoved);
        }
        crash::point("raised");
        let mut held = self.held.borrow_mut();
        let Some(Holding::Fsck(locks)) = held.get_mut(key) else { return Ok(Grant::Displaced) };
        locks.says.phase = Some(Phase::Exclusive);
        // A file of its own that takes the other's place: at every moment the one that is there is locked.
        let path = self.path.fsck();
        locks.presence = lock::publish(&path, &locks.says.json()).trouble("publishing", &path)?;
        locks.presence.hasten();
        Ok(Grant::Granted(if bump { generation + 1 } else { generation }))
    }

    async fn release(&self, (): &mut (), key: &LeaseKey) -> Answer<bool> {
        let holding = self.held.borrow_mut().remove(key);
        Ok(holding.map(|holding| self.let_go(holding)).is_some())
    }

    async fn leave_turn(&self, lasts: Duration) -> Answer<()> {
        turn::leave(&self.path, lasts).trouble("writing", &self.path.turn())
    }

    async fn turn(&self) -> Answer<Duration> {
        turn::left(&self.path).trouble("reading", &self.path.turn())
    }

    async fn refresh(&self, keys: &[LeaseKey]) -> Answer<u64> {
        Ok(self.standing(keys).await?.len() as u64)
    }

    async fn refresh_look(&self) -> Answer<RefreshLook> {
        let fsck = self.living_fsck().map(|record| (record.owner, record.ours.and_then(|ours| ours.phase)));
        Ok(RefreshLook { fsck, generation: self.generation()? })
    }

    async fn standing(&self, keys: &[LeaseKey]) -> Answer<Vec<LeaseKey>> {
        let mut standing = Vec::with_capacity(keys.len());
        for key in keys {
            if self.is_standing(key)? {
                standing.push(key.clone());
            }
        }
        Ok(standing)
    }

    async fn peek(&self) -> Answer<Option<Record<LocalPulse>>> {
        Ok(self.living_fsck())
    }

    async fn look(&self) -> Answer<StoreLook<LocalPulse>> {
        let mut leases = self.writers(Wanted::Content)?;
        leases.extend(presence::record(FSCK_ID, &self.path.fsck(), Wanted::Content));
        Ok(StoreLook { now: crate::clock::wall(), generation: self.generation()?, leases })
    }

    async fn remove(&self, id: &str, pulse: &LocalPulse) -> Answer<bool> {
        let path = self.path_of(id);
        // Whoever publishes an fsck holds the election: nobody publishes while it is held here.
        let election = match id {
            FSCK_ID => match lock::elect(&self.path.fsck_lock()).trouble("locking", &self.path.fsck_lock())? {
                Elected::Held(election) => Some(election),
                Elected::Taken => return Ok(false),
            },
            _ => None,
        };
        let Some(record) = presence::record(id, &path, Wanted::Life).filter(|record| record.pulse == *pulse) else {
            return Ok(false);
        };
        let removed = match (record.life, lock::look(&path)) {
            (Life::Dead, Looked::Dead(found)) => lock::remove_dead(&path, &found).trouble("removing", &path)?,
            (Life::Unknown, Looked::Strange(_)) => {
                let removed = if path.is_dir() && !path.is_symlink() {
                    std::fs::remove_dir(&path)
                } else {
                    std::fs::remove_file(&path)
                };
                removed.map(|()| true).trouble("removing", &path)?
            }
            _ => false,
        };
        drop(election);
        Ok(removed)
    }

    fn descriptors(&self, key: &LeaseKey) -> Answer<Vec<OwnedFd>> {
        let held = self.held.borrow();
        let locks = match held.get(key) {
            Some(Holding::Writer(lock)) => vec![lock],
            Some(Holding::Fsck(locks)) => vec![&locks.election, &locks.presence],
            None => Vec::new(),
        };
        locks.into_iter().map(|lock| lock.duplicate().trouble("duplicating", lock.path())).collect()
    }

    async fn history(&self) -> Answer<Vec<HistoryEntry>> {
        history::read(&self.path).trouble("reading", &self.path.history())
    }

    async fn record(&self, line: &HistoryLine) -> Answer<()> {
        history::add(&self.path, line).trouble("writing", &self.path.history())
    }
}
