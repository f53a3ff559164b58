//! The one error of this crate: a kind that says what to do, the details as data, the cause printed once.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::describe;
use crate::lease::status::{LeaseInfo, LeaseKind};
use crate::store_url::StoreName;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong. Its text names the store, never a password, and ends with the next step where there is
/// one; [`Error::kind`] tells a program what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An fsck lease or a writer prevents the requested operation.
    #[error(transparent)]
    StoreLocked(Box<StoreLocked>),
    /// The writers did not leave within the drain budget.
    #[error(transparent)]
    DrainTimeout(Box<DrainTimeout>),
    /// A lease is no longer held.
    #[error(transparent)]
    LeaseLost(Box<LeaseLost>),
    /// The store cannot be reached, or has no primary.
    #[error(transparent)]
    Unavailable(Box<Failure>),
    /// Authentication failed, or a privilege is missing.
    #[error(transparent)]
    Denied(Box<Failure>),
    /// A bad option, an unusable store, a malformed document, or waiting for oneself.
    #[error(transparent)]
    Invalid(Box<Failure>),
    /// What the store keeps its records in has another version than this build knows.
    #[cfg(feature = "local")]
    #[error(transparent)]
    CatalogVersion(Box<CatalogVersion>),
    /// The owner of a record store refused what was to be written.
    #[cfg(feature = "local")]
    #[error(transparent)]
    Refused(Box<Refused>),
    /// A batch is, or may be, published, and what becomes of it is not known yet.
    #[error(transparent)]
    Pending(Box<Pending>),
    /// Anything else.
    #[error(transparent)]
    Internal(Box<Failure>),
}

/// What the caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Wait, or ask the holder that the error names. Exit code 75.
    StoreLocked,
    /// Wait longer, or ask the writers that the error names to leave. Exit code 76.
    DrainTimeout,
    /// Stop writing. Exit code 80.
    LeaseLost,
    /// Try again later. Exit code 69.
    Unavailable,
    /// Get the privilege that the error names. Exit code 77.
    Denied,
    /// Mend what the error names. Exit code 78.
    Invalid,
    /// Ask later what became of the batch that the error names; do not send the same again under another id. Exit
    /// code 79.
    Pending,
    /// Report it. Exit code 70.
    Internal,
}

impl Error {
    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::StoreLocked(_) => ErrorKind::StoreLocked,
            Error::DrainTimeout(_) => ErrorKind::DrainTimeout,
            Error::LeaseLost(_) => ErrorKind::LeaseLost,
            Error::Unavailable(_) => ErrorKind::Unavailable,
            Error::Denied(_) => ErrorKind::Denied,
            Error::Invalid(_) => ErrorKind::Invalid,
            #[cfg(feature = "local")]
            Error::CatalogVersion(_) | Error::Refused(_) => ErrorKind::Invalid,
            Error::Pending(_) => ErrorKind::Pending,
            Error::Internal(_) => ErrorKind::Internal,
        }
    }

    /// Whether the same call may succeed later without anybody changing anything: the store was held or out
    /// of reach, or the lease passed its deadline and may be confirmed again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::StoreLocked(locked) => match &locked.cause {
                Locked::FsckHeld { stale, .. } => !stale,
                Locked::StaleWriters { .. } => false,
                Locked::FsckFresh { .. } | Locked::NotDead { .. } => true,
                #[cfg(feature = "local")]
                Locked::Owned { .. } => true,
            },
            Error::DrainTimeout(_) | Error::Unavailable(_) => true,
            Error::LeaseLost(lost) => {
                matches!(lost.why, LossReason::Deadline | LossReason::Suspended)
            }
            // What was published once is applied once; the same call would publish another batch.
            Error::Pending(_) => false,
            Error::Denied(_) | Error::Invalid(_) | Error::Internal(_) => false,
            #[cfg(feature = "local")]
            Error::CatalogVersion(_) | Error::Refused(_) => false,
        }
    }

    /// The same error for somebody else who waited for the same thing. The cause stays with the first.
    pub(crate) fn again(&self) -> Error {
        let again = |failure: &Failure| {
            let cause = failure.source.as_ref().map(|source| format!(": {source}")).unwrap_or_default();
            Box::new(Failure {
                store: failure.store.clone(),
                message: format!("{}{cause}", failure.message),
                source: None,
            })
        };
        match self {
            Error::StoreLocked(locked) => Error::StoreLocked(locked.clone()),
            Error::DrainTimeout(timeout) => Error::DrainTimeout(timeout.clone()),
            Error::LeaseLost(lost) => Error::LeaseLost(lost.clone()),
            Error::Unavailable(failure) => Error::Unavailable(again(failure)),
            Error::Denied(failure) => Error::Denied(again(failure)),
            Error::Invalid(failure) => Error::Invalid(again(failure)),
            #[cfg(feature = "local")]
            Error::CatalogVersion(version) => Error::CatalogVersion(version.clone()),
            #[cfg(feature = "local")]
            Error::Refused(refused) => Error::Refused(refused.clone()),
            Error::Pending(pending) => Error::Pending(pending.clone()),
            Error::Internal(failure) => Error::Internal(again(failure)),
        }
    }

    pub(crate) fn locked(store: &StoreName, cause: Locked) -> Error {
        Error::StoreLocked(Box::new(StoreLocked { store: store.clone(), cause }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid(Box::new(Failure { store: None, message: message.into(), source: None }))
    }

    #[cfg(feature = "local")]
    pub(crate) fn refused(store: &StoreName, refusal: crate::records::Refusal) -> Error {
        Error::Refused(Box::new(Refused { store: store.clone(), refusal }))
    }

    pub(crate) fn invalid_at(store: &StoreName, message: impl Into<String>) -> Error {
        Error::Invalid(Box::new(Failure { store: Some(store.clone()), message: message.into(), source: None }))
    }

    pub(crate) fn unavailable_at(store: &StoreName, message: impl Into<String>) -> Error {
        Error::Unavailable(Box::new(Failure { store: Some(store.clone()), message: message.into(), source: None }))
    }

    pub(crate) fn internal(message: impl Into<String>) -> Error {
        Error::Internal(Box::new(Failure { store: None, message: message.into(), source: None }))
    }
}

/// The details of `Unavailable`, `Denied`, `Invalid` and `Internal`.
#[derive(Debug)]
pub struct Failure {
    /// The store, where the failure belongs to one.
    pub store: Option<StoreName>,
    /// What happened and what to do next.
    pub message: String,
    pub(crate) source: Option<Source>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.store {
            Some(store) => write!(f, "store {store}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The details of [`Error::StoreLocked`].
#[derive(Debug, Clone)]
pub struct StoreLocked {
    /// The store.
    pub store: StoreName,
    /// Who prevents what.
    pub cause: Locked,
}

/// Who prevents what.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Locked {
    /// An fsck lease stands. A stale one blocks until somebody clears it.
    FsckHeld {
        /// The fsck lease.
        lease: LeaseInfo,
        /// Whether it was stale by the server's clock.
        stale: bool,
    },
    /// Writers that were there before the fsck no longer refresh, and nobody said that they are dead.
    StaleWriters {
        /// The stale and malformed writers.
        writers: Vec<LeaseInfo>,
    },
    /// The fsck lease that was to be replaced or cleared is fresh.
    FsckFresh {
        /// The fsck lease.
        lease: LeaseInfo,
    },
    /// What was to be cleared is not known to be dead: it moved while it was watched, or it is a peer's
    /// and nobody said that the peer is dead.
    NotDead {
        /// The leases that were spared.
        leases: Vec<LeaseInfo>,
    },
    /// Another process owns the local store.
    #[cfg(feature = "local")]
    Owned {
        /// The owner, as far as it has said who it is.
        state: crate::owner::Ownership,
    },
}

impl fmt::Display for StoreLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = &self.store;
        match &self.cause {
            Locked::FsckHeld { lease, stale: false } => write!(
                f,
                "store {store} is held by an fsck: {lease}; wait for it with --wait 60s, or look at it with `lockhouse status`"
            ),
            Locked::FsckHeld { lease, stale: true } => write!(
                f,
                "store {store} is blocked by a stale fsck lease: {lease}; if its process is dead, type `lockhouse clear`"
            ),
            Locked::StaleWriters { writers } => write!(
                f,
                "store {store} has {} that no longer refresh: {}; if their processes are dead, type `lockhouse prune`, or give fsck --force",
                count(writers.len(), "writer"),
                list(writers)
            ),
            Locked::FsckFresh { lease } => write!(
                f,
                "store {store}: the fsck lease is fresh and stays: {lease}; only a dead one is cleared or replaced"
            ),
            Locked::NotDead { leases } if leases.iter().any(|lease| lease.peer) => write!(
                f,
                "store {store}: not cleared, for a peer's lease may live without refreshing: {}; if its process is dead, add --peer-is-dead",
                list(leases)
            ),
            Locked::NotDead { leases } => {
                write!(
                    f,
                    "store {store}: not cleared, for it is not dead: {}; look again with `lockhouse status`",
                    list(leases)
                )
            }
            #[cfg(feature = "local")]
            Locked::Owned { state } => write!(
                f,
                "store {store} is owned by another process: {state}; wait until it ends, or look at it with `lockhouse owner status`"
            ),
        }
    }
}

impl std::error::Error for StoreLocked {}

/// The details of [`Error::DrainTimeout`].
#[derive(Debug, Clone)]
pub struct DrainTimeout {
    /// The store.
    pub store: StoreName,
    /// How long fsck was ready to wait.
    pub budget: Duration,
    /// The writers that had not left. Empty if it was a fenced transaction that did not end.
    pub writers: Vec<LeaseInfo>,
}

impl fmt::Display for DrainTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (store, budget) = (&self.store, describe::duration(self.budget));
        if self.writers.is_empty() {
            return write!(
                f,
                "store {store}: a fenced transaction was still open after the drain budget of {budget}; the fsck lease was given back"
            );
        }
        write!(
            f,
            "store {store}: {} did not leave within the drain budget of {budget}: {}; the fsck lease was given back, try again with a longer --drain-budget",
            count(self.writers.len(), "writer"),
            list(&self.writers)
        )
    }
}

impl std::error::Error for DrainTimeout {}

/// The details of [`Error::LeaseLost`].
#[derive(Debug, Clone)]
pub struct LeaseLost {
    /// The store.
    pub store: StoreName,
    /// The lease's id: `lease/<uuid>` or `lease/fsck`; `owner` for the ownership of a local store.
    pub identifier: String,
    /// Writer or fsck; an owner is a writer.
    pub kind: LeaseKind,
    /// Why it is no longer held.
    pub why: LossReason,
}

/// Why a lease is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LossReason {
    /// Somebody removed or replaced it, or an fsck passed over it.
    Displaced,
    /// No refresh was confirmed before the deadline. The supervisor still tries; the lease may come back.
    Deadline,
    /// As `Deadline`, and the machine slept for most of that time.
    Suspended,
    /// The store is at another generation: an exclusive phase came and went.
    Generation,
    /// The supervisor's thread ended, by a panic or a shutdown.
    Supervisor,
    /// It was released.
    Released,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LossReason::Displaced => "it was removed or replaced, or an fsck passed over it",
            LossReason::Deadline => "no refresh was confirmed before its deadline",
            LossReason::Suspended => "the machine slept past its deadline",
            LossReason::Generation => "an exclusive phase came and went",
            LossReason::Supervisor => "the thread that keeps it alive has ended",
            LossReason::Released => "it was released",
        })
    }
}

/// The details of [`Error::CatalogVersion`].
#[cfg(feature = "local")]
#[derive(Debug, Clone)]
pub struct CatalogVersion {
    /// The store.
    pub store: StoreName,
    /// The version that the store has: that of its owner.
    pub owner: u32,
    /// The version that this build knows.
    pub build: u32,
}

#[cfg(feature = "local")]
impl fmt::Display for CatalogVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CatalogVersion { store, owner, build } = self;
        let next = if owner > build {
            "use a build of lockhouse that is at least as new as the store's owner"
        } else {
            "it becomes readable when a build as new as this one has owned the store"
        };
        write!(f, "store {store}: its records have catalog version {owner}, and this build knows {build}; {next}")
    }
}

#[cfg(feature = "local")]
impl std::error::Error for CatalogVersion {}

/// The details of [`Error::Refused`].
#[cfg(feature = "local")]
#[derive(Debug, Clone)]
pub struct Refused {
    /// The store.
    pub store: StoreName,
    /// What is refused, and why.
    pub refusal: crate::records::Refusal,
}

#[cfg(feature = "local")]
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store {}: {}; nothing of it is stored", self.store, self.refusal)
    }
}

#[cfg(feature = "local")]
impl std::error::Error for Refused {}

/// The id of what the owner of a local store holds.
#[cfg(feature = "local")]
pub(crate) const OWNER_ID: &str = "owner";

impl fmt::Display for LeaseLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "local")]
        if self.identifier == OWNER_ID {
            let why = match self.why {
                LossReason::Displaced => "its P.lock or P.leases was removed or replaced",
                LossReason::Supervisor => "it is a fork of the owner",
                why => return write!(f, "store {}: no longer owned by this process: {why}; stop writing", self.store),
            };
            return write!(f, "store {}: no longer owned by this process: {why}; stop writing", self.store);
        }
        write!(
            f,
            "store {}: the {} lease {} was lost: {}; stop writing",
            self.store, self.kind, self.identifier, self.why
        )
    }
}

impl std::error::Error for LeaseLost {}

/// The details of [`Error::Pending`].
#[derive(Debug, Clone)]
pub struct Pending {
    /// The store.
    pub store: StoreName,
    /// The batch whose outcome is to be asked for.
    pub batch_id: String,
    /// Why it is not known yet.
    pub why: String,
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "store {}: batch {} is pending: {}; before anything is sent again, ask for its outcome: `lockhouse records \
             await {}`",
            self.store, self.batch_id, self.why, self.batch_id
        )
    }
}

impl std::error::Error for Pending {}

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// At most five by name: a message is read by a person.
fn list(leases: &[LeaseInfo]) -> String {
    const NAMED: usize = 5;
    let mut text: Vec<String> = leases.iter().take(NAMED).map(ToString::to_string).collect();
    if leases.len() > NAMED {
        text.push(format!("and {} more", leases.len() - NAMED));
    }
    text.join("; ")
}

macro_rules! boxed {
    ($($detail:ident),*) => {
        $(impl From<$detail> for Error {
            fn from(detail: $detail) -> Error {
                Error::$detail(Box::new(detail))
            }
        })*
    };
}

boxed!(StoreLocked, DrainTimeout, LeaseLost, Pending);
#[cfg(feature = "local")]
boxed!(CatalogVersion, Refused);
