//! What the owner of a store holds, and its giving back. How it came to that is in `candidate`, with the order of both.
//!
//! # A fork
//!
//! A forked child has the same open files, and its unlock would be the parent's. So it only closes them, whatever it
//! does with its copy of the guard; no check succeeds in it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;
use tokio::sync::watch;

use super::candidate::Candidate;
use super::control::{SocketFile, Watchers};
use super::keeper;
use super::state::{self, State};
use crate::backend::local::files::{self, FileId};
use crate::backend::local::lock::HeldLock;
use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::{Trouble, explain};
use crate::error::{Error, LeaseLost, LossReason, OWNER_ID, Result};
use crate::lease::status::LeaseKind;
use crate::store_url::StoreName;

/// What the owner of a store holds in its files.
#[derive(Debug)]
pub(super) struct Locks {
    pub(super) election: HeldLock,
    pub(super) presence: HeldLock,
    /// The directory that the presence was published in.
    pub(super) leases: FileId,
    /// The control socket, if there is one: it is unlinked while the lock is held, or never.
    pub(super) socket: Option<SocketFile>,
    /// Who wants to be told when the store is given back.
    pub(super) watchers: Watchers,
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
    pub(super) fn start(candidate: &Candidate, locks: Locks, state: State) -> Result<OwnerLock> {
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
        // One that was displaced and has not noticed yet says nothing over the next owner's word.
        let stands = self.locks().as_ref().is_some_and(|locks| locks.stand(&self.store).unwrap_or(true));
        if !stands {
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

    /// Whether one more may watch.
    pub(super) fn has_room_to_watch(&self) -> bool {
        self.locks().as_mut().is_some_and(|locks| locks.watchers.has_room())
    }

    /// Keeps a watcher's connection until the watchers are told. Ends it if there is no room, or nothing to watch.
    pub(super) fn keep_watcher(&self, watcher: UnixStream) {
        match &mut *self.locks() {
            Some(locks) => locks.watchers.keep(watcher),
            None => drop(watcher),
        }
    }

    /// Tells those who watch. Whoever comes later is kept until the store is given back.
    pub(super) fn end_watchers(&self) {
        if let Some(locks) = &mut *self.locks() {
            locks.watchers.end();
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
        // One that was displaced may find the next owner's. What went wrong stays to be read: `left_state`.
        let path = self.store.owner_state();
        let instance = self.state().instance;
        if state::read_file(&path).is_some_and(|state| state.instance == instance && state.last_error.is_none())
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::debug!(%error, path = %path.display(), "the owner's state cannot be removed");
        }
        if let Err(error) = locks.presence.withdraw() {
            // It is a dead owner's then.
            tracing::debug!(%error, "the owner's presence cannot be removed");
        }
        locks.watchers.end();
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
