//! What a write of the owner is allowed by: a writer lease through the process's gate, or the fsck lease of a process
//! around this one.

use std::time::Duration;

use crate::backend::local::lock::Wanted;
use crate::backend::local::path::StorePath;
use crate::backend::local::presence;
use crate::backend::{FSCK_ID, Life};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, LeaseLost, LossReason, Result};
use crate::lease::status::LeaseKind;
use crate::lease::{WriteGuard, WriterGate};

/// How often it is looked whether the fsck around this process is still there.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How long taking a lease may take while nothing is in the way.
const AT_ONCE: Duration = Duration::from_millis(500);

/// Where permits come from.
#[derive(Debug, Clone)]
pub(super) enum Permits {
    Gate(WriterGate),
    Fsck(EnclosingFsck),
}

/// The fsck lease of a process around this one.
#[derive(Debug, Clone)]
pub(super) struct EnclosingFsck {
    pub(super) store: StorePath,
    pub(super) owner: String,
}

/// Held for as long as the file is open for writing.
#[derive(Debug)]
pub(super) enum Permit {
    Gate(WriteGuard),
    Fsck(EnclosingFsck),
}

impl Permits {
    /// Waits for as long as an fsck is in the way.
    pub(super) async fn enter(&self) -> Result<Permit> {
        match self {
            Permits::Gate(gate) => gate.enter().await.map(Permit::Gate),
            Permits::Fsck(fsck) => {
                fsck.check()?;
                Ok(Permit::Fsck(fsck.clone()))
            }
        }
    }

    /// Only if nothing is in the way.
    pub(super) async fn try_enter(&self) -> Option<Permit> {
        match self {
            Permits::Gate(gate) => gate.enter_timeout(AT_ONCE).await.ok().map(Permit::Gate),
            Permits::Fsck(_) => self.enter().await.ok(),
        }
    }
}

impl Permit {
    /// Whether a write may go on.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Permit::Gate(guard) => guard.check(),
            Permit::Fsck(fsck) => fsck.check(),
        }
    }

    /// Completes when an fsck waits for this permit to be given back.
    pub(super) async fn closing(&self) {
        match self {
            Permit::Gate(guard) => guard.closing().await,
            Permit::Fsck(_) => std::future::pending().await,
        }
    }

    /// Completes when it no longer allows anything.
    pub(super) async fn lost(&self) -> Error {
        match self {
            Permit::Gate(guard) => guard.lost().await,
            Permit::Fsck(fsck) => loop {
                SystemClock.sleep_until(SystemClock.now() + LOOK_AGAIN).await;
                if let Err(error) = fsck.check() {
                    return error;
                }
            },
        }
    }
}

impl EnclosingFsck {
    fn check(&self) -> Result<()> {
        let found = presence::record(FSCK_ID, &self.store.fsck(), Wanted::Content);
        let stands = found.is_some_and(|fsck| {
            matches!(fsck.life, Life::Lives | Life::Inherited) && fsck.owner.as_deref() == Some(&self.owner)
        });
        if stands {
            return Ok(());
        }
        let (store, identifier) = (self.store.display(), FSCK_ID.to_owned());
        Err(LeaseLost { store, identifier, kind: LeaseKind::Fsck, why: LossReason::Displaced }.into())
    }
}
