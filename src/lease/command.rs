//! What a coordinator asks of its supervisor. Each command carries where the answer goes; an answer that
//! nobody waits for any more makes the supervisor finish or withdraw.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::backend::{HistoryLine, Init, LeaseKey};
use crate::error::Result;
use crate::lease::Hold;
use crate::lease::dead::Cleared;
use crate::lease::drain::DrainProgress;
use crate::lease::gate::GateParts;
use crate::lease::measures::Measures;
use crate::lease::status::{HistoryEntry, Status};

pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

/// How a writer lease is to be acquired.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriterRequest {
    pub(crate) wait: Duration,
    pub(crate) label: Option<String>,
    pub(crate) reason: Option<String>,
    /// It is a gate's: it closes by itself, so nobody of this process waits for it for ever, nor it for anybody.
    pub(crate) gated: bool,
}

/// How the fsck lease is to be acquired.
#[derive(Debug, Clone)]
pub(crate) struct FsckRequest {
    pub(crate) wait: Duration,
    pub(crate) label: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) force: bool,
    pub(crate) peer_is_dead: bool,
    pub(crate) drain_budget: Duration,
    pub(crate) bump_generation: bool,
    pub(crate) progress: Option<mpsc::UnboundedSender<DrainProgress>>,
}

/// Which leases are to be cleared.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClearRequest {
    /// All that look dead if empty.
    pub(crate) ids: BTreeSet<String>,
    pub(crate) peer_is_dead: bool,
    pub(crate) dry_run: bool,
}

#[derive(Debug)]
pub(crate) enum Command {
    Init(Reply<Init>),
    Writer(WriterRequest, Reply<Hold>),
    Fsck(FsckRequest, Reply<Hold>),
    Clear(ClearRequest, Reply<Cleared>),
    Prune(ClearRequest, Reply<Cleared>),
    Status(Reply<Status>),
    Measure(Reply<Measures>),
    History(Reply<Vec<HistoryEntry>>),
    Record(HistoryLine, Reply<()>),
    Refresh {
        key: LeaseKey,
        force: bool,
        reply: Reply<()>,
    },
    /// Of the files that a lease consists of.
    Descriptors(LeaseKey, Reply<Vec<OwnedFd>>),
    /// A gate to be kept.
    Gate(GateParts),
    /// After a while, why a gate has not opened.
    WhyClosed {
        after: Duration,
        reply: Reply<()>,
    },
    /// Fence documents for transactions under a lease.
    #[cfg_attr(not(feature = "mongo"), expect(dead_code, reason = "only a MongoDB store has transactions"))]
    Slots(LeaseKey, Reply<()>),
    Release(LeaseKey, Option<Reply<()>>),
    /// Gives every lease back and ends, when all is confirmed or the patience is over.
    Shutdown {
        patience: Option<Duration>,
        reply: Option<oneshot::Sender<()>>,
    },
}
