//! The election of a store's owner, and what the elected one holds.
//!
//! # The order
//!
//! ```text
//! lock P.lock ─▶ make P.leases ─▶ publish P.leases/owner.json, locked ─▶ publish P.owner.json
//! unlink the socket ─▶ withdraw P.owner.json ─▶ withdraw P.leases/owner.json ─▶ unlock P.lock
//! ```
//!
//! P.lock comes first and goes last: whatever else an owner makes, it makes and removes while nobody else can be the
//! owner. P.lock itself is never removed, and nobody looks at it by locking it; who looks, looks at the presence.
//!
//! # A fork
//!
//! A forked child has the same open files, and its unlock would be the parent's. So it only closes them, whatever it
//! does with its copy of the guard; no check succeeds in it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;
use tokio::sync::watch;

use super::control::SocketFile;
use super::keeper;
use super::state::{self, Claim, Ownership, Phase, State};
use crate::backend::local::files::{self, FileId};
use crate::backend::local::lock::{self as locks, Elected, HeldLock};
use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::{Trouble, belongs_to_another, explain};
use crate::backend::local::{filesystem, judge_all};
use crate::error::{Error, LeaseLost, Locked, LossReason, OWNER_ID, Result};
use crate::holder::Holder;
use crate::lease::status::LeaseKind;
use crate::store_url::StoreName;

/// Who would be the owner of a store.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub(super) store: StorePath,
    pub(super) name: StoreName,
    instance: String,
    build: String,
    remark: Option<String>,
}

impl Candidate {
    /// A candidate for the store at `path`, with an instance of its own. Locks nothing and makes nothing.
    ///
    /// # Errors
    ///
    /// `Invalid` or `Denied` for a path, a file system or files that cannot be trusted.
    pub fn new(path: impl AsRef<Path>, build: impl Into<String>) -> Result<Candidate> {
        Candidate::allowing(path.as_ref(), build.into(), &[])
    }

    /// As [`Candidate::new`], with types of file systems that somebody who knows them allowed by name.
    pub(crate) fn allowing(path: &Path, build: String, allowed: &[String]) -> Result<Candidate> {
        let store = StorePath::resolve(path)?;
        let name = store.display();
        let found: Vec<filesystem::FileSystem> = judge_all(&store, allowed, &name)?;
        let remark = found.into_iter().find_map(|found| found.remark);
        Ok(Candidate { store, name, instance: crate::entropy::unique().simple().to_string(), build, remark })
    }

    /// The random name under which this candidate would own the store.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Tries once to become the owner. `None`: another process is, or another lock of this one.
    ///
    /// The elected one has published its presence and the phase `starting`. A few system calls; waits for nobody.
    ///
    /// # Errors
    ///
    /// `Denied` for another user's store or without the right to write; `Unavailable` while the disk is full or too
    /// many files are open; `Invalid` if something that is no lock file is in its place, or the file system has no
    /// locks. Nothing is held then.
    pub fn elect(&self) -> Result<Option<OwnerLock>> {
        let at = |error: crate::backend::BackendError| error.at(&self.name);
        belongs_to_another(&self.store.leases()).map_err(at)?;
        let path = self.store.lock();
        let mut election = match locks::elect(&path).trouble("locking", &path).map_err(at)? {
            Elected::Taken => return Ok(None),
            Elected::Held(election) => election,
        };
        // The next owner waits for this one.
        election.hasten();
        let leases = self.store.leases();
        if files::create_directory(&leases).trouble("making", &leases).map_err(at)? {
            let directory = self.store.directory();
            files::sync_directory(directory).trouble("syncing", directory).map_err(at)?;
        }
        let holder = Holder::here(None);
        let claim = serde_json::to_vec(&Claim::new(&self.instance, holder.clone())).unwrap_or_default();
        let path = self.store.owner();
        let presence = locks::publish(&path, &claim).trouble("publishing", &path).map_err(at)?;
        let id = files::id_at(&leases).trouble("looking at", &leases).map_err(at)?;
        let Some(leases) = id else {
            return Err(Error::unavailable_at(&self.name, "its P.leases was removed while it was used; try again"));
        };
        let now = crate::clock::wall();
        let state = State {
            instance: self.instance.clone(),
            pid: holder.pid,
            host: holder.host,
            build: self.build.clone(),
            phase: Phase::Starting,
            started_at: now,
            heartbeat_at: now,
            store: Some(self.store.path().to_string_lossy().into_owned()),
            catalog_version: None,
            spool: None,
            socket: None,
            backlog: 0,
            failed: 0,
            last_error: None,
            file_system: self.remark.clone(),
        };
        OwnerLock::start(self, Locks { election, presence, leases, socket: None }, state).map(Some)
    }

    /// Who owns the store.
    pub fn look(&self) -> Ownership {
        state::look(&self.store)
    }

    /// The error for a store that somebody else owns.
    pub(super) fn owned(&self, owner: Ownership) -> Error {
        Error::locked(&self.name, Locked::Owned { state: owner })
    }
}

/// What the owner of a store holds in its files.
#[derive(Debug)]
struct Locks {
    election: HeldLock,
    presence: HeldLock,
    /// The directory that the presence was published in.
    leases: FileId,
    /// The control socket, if there is one: it is unlinked while the lock is held, or never.
    socket: Option<SocketFile>,
}

/// The ownership of a store: released when dropped, and by the kernel when the process ends.
///
/// A thread of its own refreshes the advisory state every five seconds, and notices when the files are removed or
/// replaced.
#[must_use = "an owner that is dropped gives the store back at once"]
#[derive(Debug)]
pub struct OwnerLock {
    pub(super) shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

/// What the owner, its thread and its control server have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: StorePath,
    pub(super) name: StoreName,
    /// `None` once the store has been given back.
    locks: Mutex<Option<Locks>>,
    state: Mutex<State>,
    lost: watch::Sender<Option<LossReason>>,
    /// Nothing is published from here on. Set and read while `state` is locked.
    ended: AtomicBool,
    state_fails: AtomicBool,
    wake: OwnedFd,
    pid: u32,
}

impl OwnerLock {
    fn start(candidate: &Candidate, locks: Locks, state: State) -> Result<OwnerLock> {
        let cannot = |what: &str, error: std::io::Error| {
            Error::unavailable_at(&candidate.name, format!("{what} for its owner: {error}; end other programs"))
        };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| cannot("no descriptor", error.into()))?;
        let shared = Arc::new(Shared {
            store: candidate.store.clone(),
            name: candidate.name.clone(),
            locks: Mutex::new(Some(locks)),
            state: Mutex::new(state),
            lost: watch::Sender::new(None),
            ended: AtomicBool::new(false),
            state_fails: AtomicBool::new(false),
            wake,
            pid: std::process::id(),
        });
        shared.update(|_| {});
        let mut owner = OwnerLock { shared, keeper: None };
        let shared = Arc::clone(&owner.shared);
        let thread =
            std::thread::Builder::new().name("lockhouse-owner".to_owned()).spawn(move || keeper::keep(&shared));
        owner.keeper = Some(thread.map_err(|error| cannot("no thread", error))?);
        Ok(owner)
    }

    /// The store's name.
    pub fn store(&self) -> &StoreName {
        &self.shared.name
    }

    /// The random name of this owner.
    pub fn instance(&self) -> String {
        self.shared.state().instance
    }

    /// What this owner says about itself.
    pub fn state(&self) -> State {
        self.shared.state()
    }

    /// Changes what this owner says about itself, and publishes it at once. That it cannot be published stops nobody:
    /// it is traced, and tried again with the next heartbeat.
    pub fn update(&self, change: impl FnOnce(&mut State)) {
        self.shared.update(change);
    }

    /// Whether this process still owns the store: P.lock, the presence and P.leases are the files that it locked, and
    /// the locks are its own. To be called before each write. Costs a handful of system calls.
    ///
    /// # Errors
    ///
    /// `LeaseLost` if something was removed or replaced, after a release, and in a forked child: for good. Another kind
    /// if it cannot be told now.
    pub fn check(&self) -> Result<()> {
        self.shared.check()
    }

    /// Completes with the `LeaseLost` error when the ownership is lost: within a moment where the kernel tells of
    /// changed directories, else within a second.
    pub async fn lost(&self) -> Error {
        let mut lost = self.shared.lost.subscribe();
        let why = match lost.wait_for(Option::is_some).await {
            Ok(why) => why.unwrap_or(LossReason::Displaced),
            Err(_) => LossReason::Released,
        };
        self.shared.error(why)
    }

    /// Descriptors of the locked files: the kernel frees the store when they, and all their duplicates, are closed. A
    /// command that inherits them keeps the store owned when its starter is killed. Closed on execution until somebody
    /// says otherwise.
    ///
    /// # Errors
    ///
    /// `Unavailable` if there are too many open files, `LeaseLost` after a release.
    pub fn descriptors(&self) -> Result<Vec<OwnedFd>> {
        let locks = self.shared.locks();
        let Some(locks) = &*locks else { return Err(self.shared.error(LossReason::Released)) };
        let of = |lock: &HeldLock| {
            lock.duplicate().trouble("duplicating", lock.path()).map_err(|error| error.at(&self.shared.name))
        };
        Ok(vec![of(&locks.election)?, of(&locks.presence)?])
    }

    /// Gives the store back: withdraws the socket, the state and the presence, then unlocks. The same happens when
    /// the guard is dropped. In a forked child it only closes the files.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        if !self.shared.is_own() {
            // Neither the thread nor what it shares is ours: it would be the parent's that ends.
            std::mem::forget(self.keeper.take());
            self.shared.only_close();
            return;
        }
        self.shared.end();
        if let Some(keeper) = self.keeper.take() {
            self.shared.wake();
            // A panic in it has been reported by itself.
            let _ = keeper.join();
        }
        self.shared.give_back();
    }
}

impl Shared {
    fn locks(&self) -> MutexGuard<'_, Option<Locks>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the process that was elected, and not a fork of it.
    pub(super) fn is_own(&self) -> bool {
        std::process::id() == self.pid
    }

    pub(super) fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.heartbeat_at = crate::clock::wall();
        if self.ended.load(Ordering::Relaxed) || self.lost.borrow().is_some() {
            return;
        }
        let path = self.store.owner_state();
        let json = serde_json::to_vec(&*state).unwrap_or_default();
        match files::replace_through(&self.store.owner_state_temporary(), &path, &json, files::Durability::Fleeting) {
            Ok(()) => self.state_fails.store(false, Ordering::Relaxed),
            Err(error) => {
                if !self.state_fails.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, path = %path.display(), "the owner's state cannot be written; the store is owned all the same");
                }
            }
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn error(&self, why: LossReason) -> Error {
        let (store, identifier) = (self.name.clone(), OWNER_ID.to_owned());
        LeaseLost { store, identifier, kind: LeaseKind::Writer, why }.into()
    }

    pub(super) fn check(&self) -> Result<()> {
        if !self.is_own() {
            return Err(self.error(LossReason::Supervisor));
        }
        if let Some(why) = *self.lost.borrow() {
            return Err(self.error(why));
        }
        let found = {
            let locks = self.locks();
            let Some(locks) = &*locks else { return Err(self.error(LossReason::Released)) };
            locks.stand(&self.store)
        };
        match found {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.lose(LossReason::Displaced);
                Err(self.error(LossReason::Displaced))
            }
            Err(error) => Err(explain("checking", &self.store.lock(), &error).at(&self.name)),
        }
    }

    fn lose(&self, why: LossReason) {
        let first = self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert(why);
            first
        });
        if first {
            tracing::error!(store = %self.name, "no longer the owner: P.lock or P.leases was removed or replaced");
        }
    }

    /// Puts a control socket under the lock's care. Refused once the store has been given back.
    pub(super) fn keep_socket(&self, socket: SocketFile) -> bool {
        match &mut *self.locks() {
            Some(locks) => {
                locks.socket = Some(socket);
                true
            }
            None => false,
        }
    }

    /// Unlinks the control socket, if it has not been yet.
    pub(super) fn unlink_socket(&self) {
        if !self.is_own() {
            return;
        }
        if let Some(locks) = &mut *self.locks() {
            locks.unlink_socket(&self.store);
        }
    }

    pub(super) fn wake_descriptor(&self) -> &OwnedFd {
        &self.wake
    }

    fn wake(&self) {
        // It can only be full, and is read then all the same.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Nothing is published any more when this returns.
    fn end(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended.store(true, Ordering::Relaxed);
        drop(state);
    }

    fn give_back(&self) {
        let Some(mut locks) = self.locks().take() else { return };
        locks.unlink_socket(&self.store);
        self.lost.send_if_modified(|lost| {
            lost.get_or_insert(LossReason::Released);
            true
        });
        // One that was displaced may find the next owner's.
        let path = self.store.owner_state();
        let instance = self.state().instance;
        if state::read_file(&path).is_some_and(|state| state.instance == instance)
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::debug!(%error, path = %path.display(), "the owner's state cannot be removed");
        }
        if let Err(error) = locks.presence.withdraw() {
            // It is a dead owner's then.
            tracing::debug!(%error, "the owner's presence cannot be removed");
        }
        drop(locks.election);
    }

    /// In a forked child: closes the files. If another thread of the parent was just using them, they stay open until
    /// the child ends or executes something.
    fn only_close(&self) {
        match self.locks.try_lock() {
            Ok(mut locks) => drop(locks.take()),
            Err(TryLockError::Poisoned(locks)) => drop(locks.into_inner().take()),
            Err(TryLockError::WouldBlock) => {}
        }
    }
}

impl Locks {
    fn stand(&self, store: &StorePath) -> std::io::Result<bool> {
        Ok(self.election.recheck()? && self.presence.recheck()? && files::id_at(&store.leases())? == Some(self.leases))
    }

    fn unlink_socket(&mut self, store: &StorePath) {
        let Some(socket) = self.socket.take() else { return };
        // One that was displaced leaves it to the next owner, whose it may be by now.
        if self.stand(store).unwrap_or(false) {
            socket.unlink();
        }
    }
}
