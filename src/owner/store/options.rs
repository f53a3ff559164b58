//! What a store is opened with.

use std::future::IntoFuture;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::opener::{Opener, Sqlite};
use super::{Store, registry};
use crate::coordinator::Coordinator;
use crate::error::Result;
use crate::owner::ingest::OnPoison;
use crate::spool::Formats;

/// How long a reader waits for the owner to be ready, unless it is said otherwise.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long closing ingests what is left, unless it is said otherwise.
const DRAIN_ON_CLOSE: Duration = Duration::from_secs(10);
/// How often an owner looks at its spool when nobody tells it of anything, unless it is said otherwise.
const POLL: Duration = Duration::from_millis(500);
/// The format of what is published, unless it is said otherwise.
const FORMAT: &str = "ndjson";

/// An open store that is to be; await it.
#[must_use = "nothing is opened until it is awaited"]
#[derive(Debug, Clone)]
pub struct OpenStore<O: Opener = Sqlite> {
    pub(super) path: PathBuf,
    pub(super) opener: Arc<O>,
    pub(super) build: String,
    pub(super) label: Option<String>,
    pub(super) formats: Formats,
    pub(super) format: String,
    pub(super) start_wait: Duration,
    pub(super) drain_on_close: Duration,
    pub(super) poll: Duration,
    pub(super) on_poison: OnPoison,
    pub(super) file_systems: Vec<String>,
    pub(super) coordinator: Option<Coordinator>,
    pub(super) under: Option<String>,
}

impl OpenStore<Sqlite> {
    pub(super) fn new(path: &Path) -> OpenStore<Sqlite> {
        OpenStore {
            path: path.to_owned(),
            opener: Arc::new(Sqlite),
            build: String::new(),
            label: None,
            formats: Formats::default(),
            format: FORMAT.to_owned(),
            start_wait: START_WAIT,
            drain_on_close: DRAIN_ON_CLOSE,
            poll: POLL,
            on_poison: OnPoison::default(),
            file_systems: Vec::new(),
            coordinator: None,
            under: None,
        }
    }
}

impl<O: Opener> OpenStore<O> {
    /// Opens something else than records in a SQLite file.
    pub fn opener<P: Opener>(self, opener: P) -> OpenStore<P> {
        OpenStore {
            opener: Arc::new(opener),
            path: self.path,
            build: self.build,
            label: self.label,
            formats: self.formats,
            format: self.format,
            start_wait: self.start_wait,
            drain_on_close: self.drain_on_close,
            poll: self.poll,
            on_poison: self.on_poison,
            file_systems: self.file_systems,
            coordinator: self.coordinator,
            under: self.under,
        }
    }

    /// What this build is called in the state that it publishes as the owner, and in its batches.
    pub fn build(mut self, build: impl Into<String>) -> Self {
        self.build = build.into();
        self
    }

    /// What `status` calls the writer lease of the owner.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The format of the files that this process publishes: `ndjson` unless it is said otherwise.
    pub fn format(mut self, format: impl Into<String>) -> Self {
        self.format = format.into();
        self
    }

    /// The formats that this process reads as the owner, and writes.
    pub fn formats(mut self, formats: Formats) -> Self {
        self.formats = formats;
        self
    }

    /// How long to wait for an owner that is not ready: a minute unless it is said otherwise.
    pub fn start_wait(mut self, wait: Duration) -> Self {
        self.start_wait = wait;
        self
    }

    /// How long [`Store::close`] ingests what is left in the spool: ten seconds unless it is said otherwise.
    pub fn drain_on_close(mut self, limit: Duration) -> Self {
        self.drain_on_close = limit;
        self
    }

    /// The longest that the owner waits between looks at the spool when nobody tells it of anything: half a second unless
    /// it is said otherwise.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// What happens to a producer whose batch cannot be applied.
    pub fn on_poison(mut self, on_poison: OnPoison) -> Self {
        self.on_poison = on_poison;
        self
    }

    /// As [`CoordinatorBuilder::allow_file_system`](crate::CoordinatorBuilder::allow_file_system).
    pub fn allow_file_system(mut self, kind: impl Into<String>) -> Self {
        self.file_systems.push(kind.into());
        self
    }

    /// Holds the owner's writer lease through this coordinator, which must be on the same store, instead of one of its own:
    /// for a program that shows what it holds. The coordinator stays when the store is closed; it gives the lease back
    /// then without being waited for.
    pub fn coordinator(mut self, coordinator: &Coordinator) -> Self {
        self.coordinator = Some(coordinator.clone());
        self
    }

    /// Writes under the fsck lease that has this owner, and that an enclosing process holds, instead of a writer lease,
    /// which would wait for that process for ever. See [`Lease::owner`](crate::Lease::owner).
    pub fn under_fsck(mut self, owner: impl Into<String>) -> Self {
        self.under = Some(owner.into());
        self
    }
}

impl<O: Opener> IntoFuture for OpenStore<O> {
    type Output = Result<Store<O>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    ///
    /// `Unavailable` naming the owner and its phase if it is not ready in time, or what kept this process from being it;
    /// `CatalogVersion` if that is a later build's catalog; `StoreLocked` naming the owner if it is one
    /// that ingests nothing; `Invalid` or `Denied` for a path, a file system or files that cannot be trusted; `LeaseLost` in a forked child whose parent has it open.
    ///
    /// # Cancellation
    ///
    /// Dropping the future closes what it had opened.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(registry::open(self))
    }
}
