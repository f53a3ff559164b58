//! The guards in a holder's hand. Dropping one hands its release to the supervisor.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::backend::LeaseKey;
use crate::coordinator::Coordinator;
use crate::error::{Error, Result};
use crate::lease::command::Command;
use crate::lease::state::LeaseCell;
use crate::lease::status::LeaseKind;
use crate::store_url::StoreName;
use crate::timing::LeaseTiming;

/// A granted lease on its way to, or in, a holder's hand: wherever it is dropped, it is released.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) cell: Arc<LeaseCell>,
    commands: mpsc::UnboundedSender<Command>,
    handed_back: bool,
    pid: u32,
}

impl Hold {
    pub(crate) fn new(cell: Arc<LeaseCell>, commands: mpsc::UnboundedSender<Command>) -> Hold {
        Hold { cell, commands, handed_back: false, pid: std::process::id() }
    }

    /// Takes the release into the caller's own hands.
    pub(crate) fn into_key(mut self) -> LeaseKey {
        self.handed_back = true;
        self.cell.terms.key.clone()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // In a forked child nobody listens, and the lease is the parent's.
        if !self.handed_back && std::process::id() == self.pid {
            // A supervisor that is gone has released everything on its way out.
            let _ = self.commands.send(Command::Release(self.cell.terms.key.clone(), None));
        }
    }
}

/// What a writer lease and an fsck lease have in common.
///
/// # Cancellation
///
/// Every future of a lease may be dropped at any time; the supervisor finishes what it began.
#[derive(Debug)]
pub struct Lease {
    hold: Hold,
    /// The supervisor lives as long as one of its leases.
    coordinator: Coordinator,
}

impl Lease {
    #[cfg(test)]
    pub(crate) fn cell(&self) -> &Arc<LeaseCell> {
        &self.hold.cell
    }

    /// The store's name.
    pub fn database(&self) -> &StoreName {
        &self.hold.cell.terms.store
    }

    /// The lease's id: `lease/<uuid>` for a writer, `lease/fsck` for the fsck lease.
    pub fn identifier(&self) -> &str {
        &self.hold.cell.terms.key.id
    }

    /// The random id of this acquisition; every update and delete names it.
    pub fn owner(&self) -> &str {
        &self.hold.cell.terms.key.owner
    }

    /// Writer or fsck.
    pub fn kind(&self) -> LeaseKind {
        self.hold.cell.terms.kind
    }

    /// The timing that the lease was acquired with.
    pub fn timing(&self) -> LeaseTiming {
        self.hold.cell.terms.timing
    }

    /// The generation seen by a writer when it acquired, or the one that an fsck raised. To be stored beside
    /// the data and compared: it only grows.
    pub fn generation(&self) -> i64 {
        self.hold.cell.generation()
    }

    /// Whether the holder may go on. Costs a clock read; needs neither the store nor the supervisor.
    ///
    /// # Errors
    ///
    /// `LeaseLost` with the reason. It is retryable for a deadline: the supervisor tries to get the lease
    /// confirmed again, and `check` succeeds again if nobody came in between.
    pub fn check(&self) -> Result<()> {
        self.hold.cell.check().map_err(|why| self.hold.cell.error(why))
    }

    /// How long the lease is valid without another confirmed refresh; zero if it is not. Give a long write a
    /// time limit below it. On a local store, where the kernel knows who lives, [`Duration::MAX`].
    pub fn remaining(&self) -> Duration {
        self.hold.cell.remaining()
    }

    /// Completes with the `LeaseLost` error as soon as the lease is no longer valid, at its deadline or
    /// earlier. After a loss by deadline it may be called again once `check` succeeds.
    pub async fn lost(&self) -> Error {
        let why = self.hold.cell.lost().await;
        self.hold.cell.error(why)
    }

    /// A token that is cancelled when [`Lease::lost`] completes: for work that takes a token. A lease that
    /// comes back after its deadline has a new one.
    pub fn token(&self) -> CancellationToken {
        self.hold.cell.token()
    }

    /// Refreshes the heartbeat now. The supervisor does so by itself; this is for a holder that wants to know
    /// before a long step. Without `force` nothing is sent within half a refresh interval of the last one.
    ///
    /// # Errors
    ///
    /// `LeaseLost` if the lease is over, `Unavailable` if the store did not confirm.
    pub async fn refresh_heartbeat(&self, force: bool) -> Result<()> {
        let key = self.hold.cell.terms.key.clone();
        self.coordinator.ask(|reply| Command::Refresh { key, force, reply }).await
    }

    #[cfg(feature = "mongo")]
    pub(crate) fn parts(&self) -> (&LeaseCell, &mpsc::UnboundedSender<Command>) {
        (&self.hold.cell, &self.hold.commands)
    }

    /// Descriptors of the locked files that a lease on a local store consists of; none on another store. The
    /// kernel frees the lease when they, and all their duplicates, are closed: a command that inherits them
    /// keeps the lease when its starter is killed. They are closed on execution until somebody says otherwise.
    ///
    /// # Errors
    ///
    /// `Unavailable` if there are too many open files.
    pub async fn descriptors(&self) -> Result<Vec<OwnedFd>> {
        let key = self.hold.cell.terms.key.clone();
        self.coordinator.ask(|reply| Command::Descriptors(key, reply)).await
    }

    /// Stops refreshing and deletes the lease's document, retrying until the store has confirmed. Touches
    /// nobody else's document.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store has not confirmed within the stale age: the text says until when the lease
    /// looks fresh. The supervisor goes on trying while the process lives.
    ///
    /// # Cancellation
    ///
    /// Dropping the future does not undo the release.
    async fn release(mut self) -> Result<()> {
        self.hold.handed_back = true;
        let key = self.hold.cell.terms.key.clone();
        let (reply, answer) = oneshot::channel();
        self.coordinator.send(Command::Release(key, Some(reply)))?;
        self.coordinator.answer(answer).await
    }
}

/// A writer lease: any number are held at once, none beside an fsck. Released when dropped.
#[must_use = "a lease that is dropped is released at once"]
#[derive(Debug)]
pub struct WriterLease(Lease);

/// The fsck lease: held alone. Released when dropped.
#[must_use = "a lease that is dropped is released at once"]
#[derive(Debug)]
pub struct FsckLease(Lease);

macro_rules! guard {
    ($guard:ident) => {
        impl $guard {
            pub(crate) fn new(hold: Hold, coordinator: Coordinator) -> Self {
                $guard(Lease { hold, coordinator })
            }

            /// Stops refreshing and deletes the lease's document, retrying until the store has confirmed.
            /// Touches nobody else's document.
            ///
            /// # Errors
            ///
            /// `Unavailable` if the store has not confirmed within the stale age: the text says until when
            /// the lease looks fresh. The supervisor goes on trying while the process lives.
            ///
            /// # Cancellation
            ///
            /// Dropping the future does not undo the release.
            pub async fn release(self) -> Result<()> {
                self.0.release().await
            }
        }

        impl Deref for $guard {
            type Target = Lease;

            fn deref(&self) -> &Lease {
                &self.0
            }
        }
    };
}

guard!(WriterLease);
guard!(FsckLease);
