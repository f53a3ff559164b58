//! What a look at a store shows: the leases as people and programs see them. Looking takes no lease and
//! writes nothing.
//!
//! The JSON form of these types is a contract; README.md lists it field by field.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use crate::describe;
use crate::holder::Holder;
use crate::store_url::StoreName;

/// The shared and the exclusive lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaseKind {
    /// Held by any number of processes at once.
    Writer,
    /// Held by one process alone once every writer has gone.
    Fsck,
}

impl fmt::Display for LeaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeaseKind::Writer => "writer",
            LeaseKind::Fsck => "fsck",
        })
    }
}

/// How a lease looked by the store's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LeaseState {
    /// Younger than its stale age.
    Fresh,
    /// Not younger than its stale age. Nobody steals it; `clear` and `prune` remove it once it is dead.
    Stale,
    /// Its document cannot be a lease that somebody refreshes. It blocks like any other.
    Malformed,
}

impl fmt::Display for LeaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeaseState::Fresh => "fresh",
            LeaseState::Stale => "stale",
            LeaseState::Malformed => "malformed",
        })
    }
}

/// How far an fsck is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Phase {
    /// Installed, and waiting for the writers that were there before it.
    Draining,
    /// Alone with the store.
    Exclusive,
}

impl Phase {
    /// The phase as documents and people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Draining => "draining",
            Phase::Exclusive => "exclusive",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One lease as a look at the store showed it. What the store or the lease does not have is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// `lease/<uuid>` for a writer, `lease/fsck` for the fsck lease.
    pub id: String,
    /// Writer or fsck.
    pub kind: LeaseKind,
    /// The random id of the acquisition.
    pub owner: Option<String>,
    /// By the store's own clock.
    pub state: LeaseState,
    /// Server time of the acquisition.
    pub acquired: Option<Timestamp>,
    /// Server time of the last refresh.
    pub heartbeat: Option<Timestamp>,
    /// Age of the heartbeat by the server's clock when it was read; never negative.
    #[serde(rename = "age_ms", serialize_with = "millis")]
    pub age: Option<Duration>,
    /// The holder's refresh interval.
    #[serde(rename = "refresh_interval_ms", serialize_with = "millis")]
    pub refresh_interval: Option<Duration>,
    /// The age from which this observer calls the lease stale.
    #[serde(rename = "stale_after_ms", serialize_with = "millis")]
    pub stale_after: Option<Duration>,
    /// The heartbeat lies in the future of the server's clock, which has been set back since.
    pub clock_behind: bool,
    /// For the fsck lease.
    pub phase: Option<Phase>,
    /// What the job said it is for.
    pub reason: Option<String>,
    /// The lease of another program that shares the collection; it may live without refreshing.
    pub peer: bool,
    /// On a local store: the process that took the lease is gone, and one that inherited it lives.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inherited: bool,
    /// Who holds it.
    pub holder: Option<Holder>,
}

impl fmt::Display for LeaseInfo {
    /// One line for a message: who, for what, since when, and how old the last sign of life is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Some(holder) => write!(f, "{holder}")?,
            None if self.peer => f.write_str("a peer")?,
            None => f.write_str("an unknown holder")?,
        }
        if let Some(reason) = &self.reason {
            write!(f, " for \"{}\"", describe::brief(reason))?;
        }
        write!(f, ", {}", describe::printable(&self.id))?;
        if let Some(acquired) = self.acquired {
            write!(f, ", since {acquired:.0}")?;
        }
        if let Some(phase) = self.phase {
            write!(f, ", {phase}")?;
        }
        if self.inherited {
            f.write_str(", kept by a process that inherited it")?;
        }
        write!(f, ", {}", self.state)?;
        if let Some(age) = self.age {
            write!(f, " (last heartbeat {} ago)", describe::duration(age))?;
        }
        Ok(())
    }
}

/// What one look at the whole store showed.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The version of the JSON form.
    pub schema: u32,
    /// The store's name.
    pub store: StoreName,
    /// The bytes of a local store's path in base64, if they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_bytes: Option<String>,
    /// `mongodb`, `local` or `memory`.
    pub backend: &'static str,
    /// The store's own clock when it was looked at.
    pub now: Timestamp,
    /// Raised by each exclusive phase; `None` before `init`.
    pub generation: Option<i64>,
    /// All of it in one word.
    pub state: StoreState,
    /// The fsck lease.
    pub fsck: Option<LeaseInfo>,
    /// The writer leases, oldest heartbeat first.
    pub writers: Vec<LeaseInfo>,
    /// The elected owner of a local store.
    pub owner: Option<serde_json::Value>,
    /// The spool of a local store.
    pub spool: Option<serde_json::Value>,
}

impl Status {
    /// The leases that will not go away without a person: stale and malformed ones.
    pub fn needing_a_person(&self) -> impl Iterator<Item = &LeaseInfo> {
        self.fsck.iter().chain(&self.writers).filter(|lease| lease.state != LeaseState::Fresh)
    }
}

/// A store's state in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StoreState {
    /// No fsck lease: writers come and go.
    Open,
    /// An fsck waits for writers to leave.
    Draining,
    /// An fsck has the store alone.
    Exclusive,
    /// A stale or malformed fsck lease keeps everybody out.
    Blocked,
}

impl fmt::Display for StoreState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreState::Open => "open",
            StoreState::Draining => "draining",
            StoreState::Exclusive => "exclusive",
            StoreState::Blocked => "blocked",
        })
    }
}

pub(crate) fn millis<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
        None => serializer.serialize_none(),
    }
}

impl Serialize for StoreName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One line of a store's audit trail.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// The store's own clock.
    pub at: Timestamp,
    /// What was done: `granted`, `released`, `drain-timeout`, `forced`, `cleared`, `pruned`.
    pub what: String,
    /// The lease it was done to.
    pub lease: Option<String>,
    /// Who did it.
    pub holder: Option<Holder>,
    /// What for; for a failed job, how it ended.
    pub reason: Option<String>,
}

pub(crate) fn as_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    millis(&Some(*duration), serializer)
}
