//! The election of a store's owner.
//!
//! # The order
//!
//! ```text
//! lock P.lock ─▶ make P.leases ─▶ publish P.leases/owner.json, locked ─▶ publish P.owner.json
//! unlink the socket ─▶ withdraw P.owner.json ─▶ withdraw P.leases/owner.json ─▶ end the watchers ─▶ unlock P.lock
//! ```
//!
//! P.lock comes first and goes last: whatever else an owner makes, it makes and removes while nobody else can be the
//! owner. Its watchers are the next ones, so they are told when all but the lock is done, however long that took. P.lock
//! itself is never removed, and nobody looks at it by locking it; who looks, looks at the presence.

use std::path::Path;

use super::control::Watchers;
use super::lock::{Locks, OwnerLock};
use super::state::{self, Claim, Ownership, Phase, State};
use crate::backend::local::lock::{self as locks, Elected};
use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::{Trouble, belongs_to_another};
use crate::backend::local::{files, filesystem, judge_all};
use crate::error::{Error, Locked, Result};
use crate::holder::Holder;
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
        OwnerLock::start(self, Locks { election, presence, leases, socket: None, watchers: Watchers::default() }, state)
            .map(Some)
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
