//! The seam between the engine and what a lease is made of.
//!
//! A backend answers the statements of the protocol; it decides nothing. What a statement means is the
//! same for every backend and is checked by one contract suite; when to send which is the engine's alone
//! (`lease/`). A backend keeps no deadline and no list of leases.
//!
//! # Dropping a call
//!
//! Any call may be dropped at any await: the engine gives each a time limit. A dropped call may have been
//! applied, and without a session's protection it may be applied later still.

#[cfg(feature = "local")]
pub(crate) mod local;
pub(crate) mod memory;
#[cfg(feature = "mongo")]
pub(crate) mod mongo;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use uuid::Uuid;

use crate::error::{Error, Failure};
use crate::holder::Holder;
use crate::lease::status::{HistoryEntry, LeaseKind, Phase};
use crate::store_url::StoreName;

/// The `_id` of the fsck lease.
pub(crate) const FSCK_ID: &str = "lease/fsck";

/// What names one acquisition: every update and delete of a lease names both.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LeaseKey {
    pub(crate) id: String,
    pub(crate) owner: String,
}

/// What a holder writes when it registers or installs.
#[derive(Debug, Clone)]
pub(crate) struct NewLease {
    pub(crate) key: LeaseKey,
    pub(crate) refresh_interval: Duration,
    pub(crate) stale_after: Duration,
    pub(crate) reason: Option<String>,
    pub(crate) holder: Holder,
}

/// One lease document as one statement read it.
#[derive(Debug, Clone)]
pub(crate) struct Record<P> {
    pub(crate) id: String,
    /// `None` if it is missing or no text.
    pub(crate) owner: Option<String>,
    /// What moves when the holder lives.
    pub(crate) pulse: P,
    /// `None` if it is missing or no date.
    pub(crate) heartbeat: Option<Timestamp>,
    /// By the store's clock, in the statement that read it; negative when that clock was set back.
    pub(crate) age_ms: Option<i64>,
    /// What the store itself knows of the holder.
    pub(crate) life: Life,
    /// It cannot be a lease that somebody refreshes: no owner, no heartbeat, or not a writer's kind.
    pub(crate) malformed: bool,
    /// The part that only lockhouse writes; `None` on a peer's lease.
    pub(crate) ours: Option<Ours>,
}

impl<P> Record<P> {
    pub(crate) fn kind(&self) -> LeaseKind {
        if self.id == FSCK_ID { LeaseKind::Fsck } else { LeaseKind::Writer }
    }
}

/// What a store itself knows of a lease's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "local"), expect(dead_code, reason = "only the kernel knows"))]
pub(crate) enum Life {
    /// Nothing: it is judged by the age of its heartbeat.
    Unknown,
    /// The kernel says that it lives.
    Lives,
    /// The process that took the lease is gone; what inherited it from that one lives.
    Inherited,
    /// The kernel says that it is gone.
    Dead,
}

/// The part of a lease document that only lockhouse writes. A field of another type reads as `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ours {
    pub(crate) acquired: Option<Timestamp>,
    pub(crate) refresh_interval: Option<Duration>,
    pub(crate) stale_after: Option<Duration>,
    pub(crate) phase: Option<Phase>,
    pub(crate) reason: Option<String>,
    pub(crate) holder: Option<Holder>,
}

/// A writer's look after it registered.
#[derive(Debug, Clone)]
pub(crate) struct WriterLook<P> {
    /// The document with the own id carries the own owner.
    pub(crate) registered: bool,
    pub(crate) fsck: Option<Record<P>>,
    /// `None`: the store has no layout.
    pub(crate) generation: Option<i64>,
}

/// A draining fsck's look.
#[derive(Debug, Clone)]
pub(crate) struct FsckLook<P> {
    pub(crate) fsck: Option<Record<P>>,
    pub(crate) generation: Option<i64>,
    pub(crate) writers: Vec<Record<P>>,
    /// Whether fence documents of other leases stand.
    pub(crate) foreign_fences: bool,
}

/// Whether a drain's look reads holders and reasons, or only what its verdict needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    Full,
    Lean,
}

/// The answer to an install.
#[derive(Debug, Clone)]
pub(crate) enum Install<P> {
    Mine,
    Held(Box<Record<P>>),
}

/// The answer to a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The phase is `exclusive`, and the generation is the given one.
    Granted(i64),
    /// The fsck document is gone or another's.
    Displaced,
    /// The layout was not at the expected generation.
    GenerationMoved,
}

/// What a refresh looks at besides its leases.
#[derive(Debug, Clone)]
pub(crate) struct RefreshLook {
    /// Owner and phase of the fsck document, if one stands.
    pub(crate) fsck: Option<(Option<String>, Option<Phase>)>,
    pub(crate) generation: Option<i64>,
}

/// A look at everything.
#[derive(Debug, Clone)]
pub(crate) struct StoreLook<P> {
    pub(crate) now: Timestamp,
    pub(crate) generation: Option<i64>,
    pub(crate) leases: Vec<Record<P>>,
}

/// What a caller is about to do, so that a backend can refuse early and with a reason. A later one includes
/// the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Status, history, dry runs.
    Look,
    /// Making the layout: the store need not be there yet.
    Init,
    /// What only removes.
    Remove,
    /// Anything that makes leases or history: the store has to be there.
    Write,
}

/// What `init` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// It made the layout.
    Made,
    /// The layout was there.
    AlreadyThere,
}

/// What differs between backends and the engine has to know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits {
    /// The backend's name in `status`.
    pub(crate) name: &'static str,
    /// A later statement of a session makes the store refuse an earlier one that is still under way. Without
    /// it the engine repeats its deletes after a stale age.
    pub(crate) sessions_refuse_late: bool,
    /// The default timing has to outlive a fail-over.
    pub(crate) fails_over: bool,
    /// The store is shared with httk-store, which judges every lease by its own stale age.
    pub(crate) shared_with_peer: bool,
    /// The store knows who lives: a lease has no deadline, and none is ever stale.
    pub(crate) knows_the_living: bool,
}

/// Refuses a store that nobody has made one.
pub(crate) const NO_LAYOUT: &str =
    "it has no layout, so it may be mistyped; if it is the right one, type `lockhouse init`";

/// Refuses a fence where it could not hold.
pub(crate) const NO_TRANSACTIONS: &str =
    "it has no transactions, so nothing can be fenced; a MongoDB server has them as a replica set, also of one member";

/// What a sleeper wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Leases that go: for a draining fsck, and for whoever waits behind one.
    Departure,
    /// An fsck that comes: for the gates of a process.
    Arrival {
        /// However busy the store is.
        always: bool,
    },
}

/// Hears of changes in a store, where its backend can tell. They only ever shorten a sleep.
#[derive(Debug)]
pub(crate) struct Changes(Option<watch::Receiver<()>>);

impl Changes {
    /// Of a store that tells nothing.
    pub(crate) fn untold() -> Changes {
        Changes(None)
    }

    #[cfg(any(feature = "local", feature = "mongo"))]
    pub(crate) fn told_by(mut receiver: watch::Receiver<()>) -> Changes {
        // The first change is told at once: what the sleeper has looked at may be older than the telling.
        receiver.mark_changed();
        Changes(Some(receiver))
    }

    /// Whether something is told at all, still.
    pub(crate) fn are_told(&self) -> bool {
        self.0.as_ref().is_some_and(|receiver| receiver.has_changed().is_ok())
    }

    /// Completes when something has changed since the last call; never where nothing is told.
    pub(crate) async fn next(&mut self) {
        if let Some(receiver) = &mut self.0
            && receiver.changed().await.is_ok()
        {
            return;
        }
        self.0 = None;
        std::future::pending().await
    }
}

/// Where the fence documents of a store are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub(crate) database: String,
    pub(crate) collection: String,
}

/// The statements of the protocol. `design`: each method is one row of the table in `lease/mod.rs`.
pub(crate) trait Backend: 'static {
    /// Carries all single-document writes of one acquisition, in order.
    type Session: 'static;
    /// What moves when a holder lives; equal only if nothing moved.
    type Pulse: Clone + PartialEq + fmt::Debug + 'static;

    fn store(&self) -> &StoreName;
    fn traits(&self) -> Traits;
    /// Hears of what changes from now on. The first change is told as soon as the telling works, for whatever came
    /// before.
    fn changes(&self, _of: Awaited) -> Changes {
        Changes::untold()
    }
    /// Where fence documents are. `None` in a store without transactions.
    fn namespace(&self) -> Option<Arc<Namespace>> {
        None
    }
    /// Descriptors that keep the lease for as long as any process has them open. None where a lease is no file.
    fn descriptors(&self, _key: &LeaseKey) -> Answer<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    /// Refuses a store that the protocol cannot trust. Asked once before the first `Look`, and before the
    /// first use that needs more than was asked for until then.
    async fn ready(&self, access: Access) -> Answer<()>;
    /// Makes the layout document; a second run changes nothing.
    async fn init(&self) -> Answer<Init>;

    async fn session(&self) -> Answer<Self::Session>;
    /// Makes a writer's document durable.
    async fn register(&self, session: &mut Self::Session, lease: &NewLease) -> Answer<()>;
    async fn look_writer(&self, session: &mut Self::Session, key: &LeaseKey) -> Answer<WriterLook<Self::Pulse>>;
    /// Makes the fsck document durable unless one stands. A malformed one is [`Fault::Exists`].
    async fn install(&self, session: &mut Self::Session, lease: &NewLease) -> Answer<Install<Self::Pulse>>;
    /// Replaces the whole fsck document on condition of exactly that pulse.
    async fn replace(&self, session: &mut Self::Session, lease: &NewLease, over: &Self::Pulse) -> Answer<bool>;
    async fn look_fsck(
        &self,
        session: &mut Self::Session,
        key: &LeaseKey,
        detail: Detail,
    ) -> Answer<FsckLook<Self::Pulse>>;
    /// The ids of the writers that stand: all that most looks of a long drain have to know, where a store has them for a
    /// fraction of the cost.
    async fn writer_ids(&self, session: &mut Self::Session, key: &LeaseKey) -> Answer<BTreeSet<String>> {
        let look = self.look_fsck(session, key, Detail::Lean).await?;
        Ok(look.writers.into_iter().map(|writer| writer.id).collect())
    }
    /// Deletes every fence document but those of `keep`. Waits for open fenced transactions.
    async fn sweep_fences(&self, keep: &LeaseKey) -> Answer<()>;
    /// Makes fence documents of a lease, with these numbers, in one transaction that writes the lease's document too.
    /// `false`: the lease does not stand. A call whose answer was lost is not sent again with the same numbers.
    async fn make_slots(&self, _session: &mut Self::Session, _key: &LeaseKey, _slots: Range<u64>) -> Answer<bool> {
        Err(BackendError::new(Fault::Invalid, NO_TRANSACTIONS))
    }
    /// Turns the phase to `exclusive`, on condition of the owner, and with `bump` raises the generation from
    /// `generation` by one: both or neither where the store has transactions. Counts as a refresh.
    async fn grant(&self, session: &mut Self::Session, key: &LeaseKey, generation: i64, bump: bool) -> Answer<Grant>;
    /// Deletes a lease by id and owner, then its fence documents. `false`: there was none.
    async fn release(&self, session: &mut Self::Session, key: &LeaseKey) -> Answer<bool>;

    /// Leaves the writers a turn: for so long from now on an fsck that can wait lets them in first.
    async fn leave_turn(&self, lasts: Duration) -> Answer<()>;
    /// How much of the writers' turn is left by the store's clock.
    async fn turn(&self) -> Answer<Duration>;

    /// Refreshes the leases that still stand with their owner; how many those were. At most
    /// [`REFRESH_CHUNK`] of them.
    async fn refresh(&self, keys: &[LeaseKey]) -> Answer<u64>;
    async fn refresh_look(&self) -> Answer<RefreshLook>;
    /// Which of the leases still stand with their owner.
    async fn standing(&self, keys: &[LeaseKey]) -> Answer<Vec<LeaseKey>>;

    /// The fsck document alone.
    async fn peek(&self) -> Answer<Option<Record<Self::Pulse>>>;
    /// Everything, changing nothing.
    async fn look(&self) -> Answer<StoreLook<Self::Pulse>>;
    /// Deletes a lease on condition of exactly that pulse, then its fence documents.
    async fn remove(&self, id: &str, pulse: &Self::Pulse) -> Answer<bool>;

    async fn history(&self) -> Answer<Vec<HistoryEntry>>;
    /// Writes a line of the audit trail, with the store's time. Sent again, because an
    /// answer was lost, it writes no second line.
    async fn record(&self, line: &HistoryLine) -> Answer<()>;
}

/// How many leases one refresh statement names at most.
pub(crate) const REFRESH_CHUNK: usize = 5_000;

/// How many lines of the audit trail are shown. Older ones are removed sooner or later.
pub(crate) const HISTORY_KEPT: usize = 1_000;

/// A line of the audit trail before the store gave it a time.
#[derive(Debug, Clone)]
pub(crate) struct HistoryLine {
    /// Tells it from every other line: one that is sent again is the same.
    pub(crate) name: Uuid,
    pub(crate) what: &'static str,
    pub(crate) lease: Option<String>,
    pub(crate) holder: Holder,
    pub(crate) reason: Option<String>,
}

pub(crate) type Answer<T> = Result<T, BackendError>;

/// A statement that failed: what is known about its effect, and what to say.
#[derive(Debug)]
pub(crate) struct BackendError {
    pub(crate) fault: Fault,
    /// What happened and what to do about it, for people. No secrets.
    pub(crate) message: String,
    pub(crate) source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What is known about the effect of a statement that failed. Every decision of the engine rests on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "mongo", feature = "local")),
    expect(dead_code, reason = "the memory store denies nobody")
)]
pub(crate) enum Fault {
    /// A document with that id stands: look again.
    Exists,
    /// Certainly not applied; the same statement may succeed later.
    Busy,
    /// Applied, about to be, or not; the same statement may succeed later.
    Unknown,
    /// Not applied: authentication or a privilege.
    Denied,
    /// Not applied: the store or the request is at fault.
    Invalid,
    /// Not applied, and not understood.
    Internal,
}

impl BackendError {
    pub(crate) fn new(fault: Fault, message: impl Into<String>) -> BackendError {
        BackendError { fault, message: message.into(), source: None }
    }

    /// The same statement may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self.fault {
            Fault::Exists | Fault::Busy | Fault::Unknown => true,
            Fault::Denied | Fault::Invalid | Fault::Internal => false,
        }
    }

    pub(crate) fn at(self, store: &StoreName) -> Error {
        let failure = Box::new(Failure { store: Some(store.clone()), message: self.message, source: self.source });
        match self.fault {
            Fault::Exists | Fault::Busy | Fault::Unknown => Error::Unavailable(failure),
            Fault::Denied => Error::Denied(failure),
            Fault::Invalid => Error::Invalid(failure),
            Fault::Internal => Error::Internal(failure),
        }
    }
}
