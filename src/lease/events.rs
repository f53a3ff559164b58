//! What happens to the leases of one coordinator, as a stream.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::error::LossReason;
use crate::lease::status::{LeaseInfo, LeaseKind};

/// How many events a slow listener may be behind before it misses some.
pub(crate) const EVENTS_KEPT: usize = 1024;

/// Something that happened to a lease of this coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Event {
    /// Granted.
    Acquired {
        /// The lease's id.
        id: String,
        /// Writer or fsck.
        kind: LeaseKind,
    },
    /// A refresh failed; the lease is valid until its deadline.
    Doubtful {
        /// The lease's id.
        id: String,
        /// Writer or fsck.
        kind: LeaseKind,
    },
    /// A refresh was confirmed after a doubt or a loss by deadline.
    Recovered {
        /// The lease's id.
        id: String,
        /// Writer or fsck.
        kind: LeaseKind,
    },
    /// No longer valid. After `Deadline` and `Suspended` a `Recovered` may follow.
    Lost {
        /// The lease's id.
        id: String,
        /// Writer or fsck.
        kind: LeaseKind,
        /// Why.
        why: LossReason,
    },
    /// Given back, and gone from the store.
    Released {
        /// The lease's id.
        id: String,
        /// Writer or fsck.
        kind: LeaseKind,
    },
    /// A gate lets in, under this lease.
    GateOpened {
        /// The lease's id.
        id: String,
    },
    /// A gate lets nobody in any more, and waits for the guards inside.
    GateClosing {
        /// The lease's id.
        id: String,
        /// How many guards are inside.
        inside: u64,
    },
    /// A gate has nobody inside any more, and gives its lease back.
    GateClosed {
        /// The lease's id.
        id: String,
    },
    /// An acquisition waits behind another lease. A stale one will not go away by itself.
    Waiting {
        /// The lease in the way.
        behind: Box<LeaseInfo>,
    },
    /// A drain of this coordinator looked, and found other numbers than before.
    Draining {
        /// The writers of the first look that are still there.
        waiting_for: usize,
        /// How many of them are stale or malformed: they will not leave by themselves.
        stale: usize,
        /// How many writers came after the fsck and had to withdraw.
        turned_away: usize,
        /// Time since the fsck lease was installed.
        #[serde(rename = "elapsed_ms", serialize_with = "crate::lease::status::as_millis")]
        elapsed: Duration,
        /// How long the drain may take.
        #[serde(rename = "budget_ms", serialize_with = "crate::lease::status::as_millis")]
        budget: Duration,
    },
    /// A verb watches leases that look dead before it believes so.
    Watching {
        /// The leases watched.
        leases: Vec<LeaseInfo>,
        /// How long in all, if none of them moves.
        #[serde(rename = "for_ms", serialize_with = "crate::lease::status::as_millis")]
        at_most: Duration,
    },
}

/// Events from now on. A listener that falls more than [`EVENTS_KEPT`] behind misses the oldest.
pub(crate) fn stream(receiver: broadcast::Receiver<Event>) -> BoxStream<'static, Event> {
    stream::unfold(receiver, |mut receiver| async {
        loop {
            match receiver.recv().await {
                Ok(event) => return Some((event, receiver)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    })
    .boxed()
}
