//! A store that is open for writing, by whichever way: as its owner, through the spool, or under an enclosing fsck.
//!
//! Below an enclosing fsck it is written under that one's lease. Below an enclosing `run` it is written as anywhere, but
//! nobody waits for an fsck that waits for that `run`: what is handed over then is `Pending`, and safe.

use std::time::Duration;

use lockhouse::clock::{Clock, SystemClock};
use lockhouse::owner::{BatchResult, OnPoison, Store};
use lockhouse::records::BatchOutcome;
use lockhouse::spool::NewBatch;
use lockhouse::{Coordinator, LeaseInfo, LeaseKind, Pending, StoreName};

use super::super::args::Global;
use super::super::console::Console;
use super::super::exit::Failure;
use super::super::{Context, owner, store};

/// How often it is looked whether an fsck waits for the `run` around this process.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// The longest that opening waits for an owner that is not ready.
const LONGEST_START: Duration = Duration::from_secs(60);

/// The lease on the same store under which this process runs.
pub(crate) enum Around {
    Nothing,
    /// An fsck, by its owner's name.
    Fsck(String),
    /// A writer: what runs under it is not to wait for an fsck.
    Run(Coordinator, Box<LeaseInfo>),
}

/// Looks what is around this process.
pub(crate) async fn around(global: &Global, console: &Console) -> Result<Around, Failure> {
    if store::enclosing().is_empty() {
        return Ok(Around::Nothing);
    }
    let connected = store::open(global, console, None).await?;
    Ok(match connected.lease_around().await? {
        None => Around::Nothing,
        Some(LeaseInfo { kind: LeaseKind::Fsck, owner: Some(owner), .. }) => Around::Fsck(owner),
        Some(lease) => Around::Run(connected.coordinator, Box::new(lease)),
    })
}

impl Around {
    /// Completes when waiting would be waiting for oneself.
    async fn fsck_in_the_way(&self) {
        let Around::Run(coordinator, _) = self else { return std::future::pending().await };
        loop {
            // One that cannot be asked now is asked again.
            if let Ok(status) = coordinator.status().await
                && status.fsck.is_some()
            {
                return;
            }
            SystemClock.sleep_until(SystemClock.now() + LOOK_AGAIN).await;
        }
    }
}

/// What the store is opened with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Builds {
    /// What this build is called, if not by its version.
    pub(crate) build: Option<String>,
    /// What `status` calls the lease.
    pub(crate) label: String,
    pub(crate) on_poison: OnPoison,
}

impl Builds {
    pub(crate) fn labelled(label: impl Into<String>) -> Builds {
        Builds { label: label.into(), ..Builds::default() }
    }
}

/// A store that is open for writing. To be closed.
pub(crate) struct Writing {
    pub(crate) store: Store,
    around: Around,
}

impl Writing {
    /// Opens it; makes it where there is none. A signal ends that at once: nothing is held yet.
    pub(crate) async fn open(context: &mut Context, builds: Builds, wait: Duration) -> Result<Writing, Failure> {
        let (global, console) = (context.global.clone(), context.console.clone());
        let opening = async {
            let path = owner::path(&global)?;
            let around = around(&global, &console).await?;
            let build = builds.build.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
            let mut opening = Store::open(&path).build(build).label(builds.label).on_poison(builds.on_poison);
            for kind in &global.allow_filesystem {
                opening = opening.allow_file_system(kind);
            }
            #[cfg(feature = "service")]
            if let Some(beside) = &context.beside {
                let connected = store::open(&global, &console, None).await?;
                beside.connected(&connected.coordinator);
                opening = opening.coordinator(&connected.coordinator);
            }
            if let Around::Fsck(owner) = &around {
                opening = opening.under_fsck(owner);
            }
            let store = opening.start_wait(wait.min(LONGEST_START)).await?;
            Ok(Writing { store, around })
        };
        tokio::select! {
            biased;
            signal = context.signals.interrupted() => Err(Failure::interrupted(signal)),
            opened = opening => opened,
        }
    }

    /// As [`Writing::open`], if there is one: a name that is mistyped makes none.
    pub(crate) async fn open_existing(
        context: &mut Context,
        builds: Builds,
        wait: Duration,
    ) -> Result<Writing, Failure> {
        drop(super::read_only(&context.global)?);
        Writing::open(context, builds, wait).await
    }

    pub(crate) fn name(&self) -> &StoreName {
        self.store.name()
    }

    /// Hands a batch over, and waits so long for what becomes of it; `None`: not at all.
    ///
    /// # Errors
    ///
    /// Those of handing over; what became of the batch is none. `Ok(Err(…))`: it is not known yet, and why.
    pub(crate) async fn deliver(
        &self,
        batch: NewBatch,
        wait: Option<Duration>,
    ) -> Result<Result<BatchOutcome, Pending>, Failure> {
        let delivered = self.store.deliver(batch).await?;
        match (delivered.outcome, wait) {
            (Some(outcome), _) => Ok(Ok(outcome)),
            (None, Some(wait)) => self.outcome(&delivered.id, wait).await,
            (None, None) => Ok(Err(self.pending(&delivered.id, "nobody waited for it".to_owned()))),
        }
    }

    /// Waits for what becomes of a batch.
    pub(crate) async fn outcome(&self, id: &str, wait: Duration) -> Result<Result<BatchOutcome, Pending>, Failure> {
        let give_up = SystemClock.now() + wait;
        let why = tokio::select! {
            biased;
            result = self.store.await_batch(id) => match result? {
                BatchResult::Known(outcome) => return Ok(Ok(outcome)),
                _ => return Err(Failure::Invalid {
                    store: self.name().clone(),
                    message: format!(
                        "batch {id} waits nowhere, and the ledger does not know it: it was never handed over, or \
                         more than a week ago; look whether the id is the right one"
                    ),
                }),
            },
            () = self.around.fsck_in_the_way() => {
                "an fsck waits for the `lockhouse run` around this command, and it is applied when both have ended"
                    .to_owned()
            }
            () = SystemClock.sleep_until(give_up) => {
                let waited = lockhouse::describe::duration(wait);
                format!("it was not applied within {waited} (the owner: {})", self.store.status())
            }
        };
        Ok(Err(self.pending(id, why)))
    }

    fn pending(&self, id: &str, why: String) -> Pending {
        Pending { store: self.name().clone(), batch_id: id.to_owned(), why }
    }

    /// Closes it: an owner applies what waits in the spool, and gives the store back. A signal ends that at once.
    pub(crate) async fn close(self, context: &mut Context) {
        tokio::select! {
            biased;
            // Whatever is under way goes on with the next owner.
            _ = context.signals.interrupted() => {}
            // It cannot fail.
            _ = self.store.close() => {}
        }
    }
}
