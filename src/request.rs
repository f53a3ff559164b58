//! The verbs of a coordinator before they are awaited: their options, and how they are asked of the
//! supervisor.

use std::future::IntoFuture;
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use tokio::sync::mpsc;

use crate::coordinator::{Coordinator, check_text};
use crate::error::Result;
use crate::lease::command::{ClearRequest, Command, FsckRequest, Reply, WriterRequest};
use crate::lease::{Cleared, DrainProgress, FsckLease, WriterLease};

/// An acquisition of a writer lease; await it.
#[must_use = "nothing is acquired until it is awaited"]
#[derive(Debug)]
pub struct AcquireWriter {
    pub(crate) coordinator: Coordinator,
    pub(crate) request: WriterRequest,
}

impl AcquireWriter {
    /// How long to wait in all while an fsck holds the store. Zero, the default, tries once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request.wait = wait;
        self
    }

    /// What `status` shows for this lease, instead of the coordinator's label.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.request.label = Some(label.into());
        self
    }

    /// What the lease is for.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.request.reason = Some(reason.into());
        self
    }
}

impl IntoFuture for AcquireWriter {
    type Output = Result<WriterLease>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    ///
    /// `StoreLocked` (`FsckHeld`) naming the fsck when the wait is over; `Invalid` if the store has no layout
    /// or this coordinator holds the fsck lease itself; `Unavailable`; `Denied`.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            check_text("label", self.request.label.as_deref())?;
            check_text("reason", self.request.reason.as_deref())?;
            let hold = self.coordinator.ask(|reply| Command::Writer(self.request, reply)).await?;
            Ok(WriterLease::new(hold, self.coordinator))
        })
    }
}

/// An acquisition of the fsck lease; await it.
#[must_use = "nothing is acquired until it is awaited"]
#[derive(Debug)]
pub struct AcquireFsck {
    pub(crate) coordinator: Coordinator,
    pub(crate) request: FsckRequest,
}

impl AcquireFsck {
    /// How long to wait in all for another fsck to go. Zero, the default, tries once. The drain has its own
    /// budget.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request.wait = wait;
        self
    }

    /// The administrator's word that the owners of leases that look dead are dead: a dead fsck lease is
    /// replaced, dead writers are removed. One that lives after all is spared, and drained.
    pub fn force(mut self, force: bool) -> Self {
        self.request.force = force;
        self
    }

    /// With `force`: the word goes for peers too, whose leases may live without refreshing.
    pub fn peer_is_dead(mut self, dead: bool) -> Self {
        self.request.peer_is_dead = dead;
        self
    }

    /// How long the writers may take to leave; 10 minutes unless said otherwise.
    pub fn drain_budget(mut self, budget: Duration) -> Self {
        self.request.drain_budget = budget;
        self
    }

    /// What the job is; `status`, refusals and the history show it.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.request.reason = Some(reason.into());
        self
    }

    /// What `status` shows for this lease, instead of the coordinator's label.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.request.label = Some(label.into());
        self
    }

    /// Whether the exclusive phase raises the generation, which ends leases that slept through it. On unless
    /// the job changes nothing.
    pub fn bump_generation(mut self, bump: bool) -> Self {
        self.request.bump_generation = bump;
        self
    }

    /// Who the drain waits for, while this acquisition is awaited. One item per look that changed something,
    /// and the last at the end; it never holds the drain up.
    pub fn progress(&mut self) -> impl Stream<Item = DrainProgress> + Send + Unpin + use<> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.request.progress = Some(sender);
        futures::stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|item| (item, receiver)) })
            .boxed()
    }
}

impl IntoFuture for AcquireFsck {
    type Output = Result<FsckLease>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    ///
    /// `StoreLocked`: `FsckHeld` when the wait is over, `StaleWriters` without `force`, `FsckFresh` with it.
    /// `DrainTimeout` naming who was left. `LeaseLost` if it was displaced, or its own deadline passed, before
    /// the grant. `Invalid`, `Unavailable`, `Denied`. After an error no fsck lease stands.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            check_text("label", self.request.label.as_deref())?;
            check_text("reason", self.request.reason.as_deref())?;
            let hold = self.coordinator.ask(|reply| Command::Fsck(self.request, reply)).await?;
            Ok(FsckLease::new(hold, self.coordinator))
        })
    }
}

/// A clearing of dead leases; await it.
#[must_use = "nothing is cleared until it is awaited"]
#[derive(Debug)]
pub struct Clear {
    pub(crate) coordinator: Coordinator,
    pub(crate) request: ClearRequest,
    pub(crate) verb: fn(ClearRequest, Reply<Cleared>) -> Command,
}

impl Clear {
    /// Only the leases with these ids.
    pub fn ids<I: Into<String>>(mut self, ids: impl IntoIterator<Item = I>) -> Self {
        self.request.ids = ids.into_iter().map(Into::into).collect();
        self
    }

    /// A person's word that the peers whose leases look dead are dead: a peer's lease may live without
    /// refreshing.
    pub fn peer_is_dead(mut self, dead: bool) -> Self {
        self.request.peer_is_dead = dead;
        self
    }

    /// Only says what looks dead, without watching it and without a write.
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.request.dry_run = dry_run;
        self
    }
}

impl IntoFuture for Clear {
    type Output = Result<Cleared>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Watches each lease that looks dead for its whole stale age, so it takes that long.
    ///
    /// # Errors
    ///
    /// `StoreLocked`: `FsckFresh` if the fsck lease is fresh, `NotDead` if what was to be cleared was spared.
    /// `Denied`, `Unavailable`.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.coordinator.ask(|reply| (self.verb)(self.request, reply)).await })
    }
}
