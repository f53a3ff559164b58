//! The fsck's half of the handshake: install, then look, drain, sweep, and be granted.

use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{Access, Backend, BackendError, Fault, Grant, Install, Record};
use crate::clock::Moment;
use crate::error::{Error, Locked, LossReason, Result};
use crate::lease::Hold;
use crate::lease::attempt::{Attempt, Tried};
use crate::lease::command::FsckRequest;
use crate::lease::dead::Watched;
use crate::lease::events::Event;
use crate::lease::rules::Rule;
use crate::lease::state::LeaseCell;
use crate::lease::status::{LeaseKind, LeaseState};
use crate::lease::supervisor::Supervisor;
use crate::lease::wait::{Waiting, held};

/// An installed fsck lease: its attempt, and the cell that is refreshed while it drains.
type Installed<B> = (Attempt<B>, Arc<LeaseCell>);

impl<B: Backend> Supervisor<B> {
    pub(crate) async fn acquire_fsck(self: &Rc<Self>, request: &FsckRequest) -> Result<Hold> {
        self.ready(Access::Write, request.wait).await?;
        let (mut attempt, cell) = self.install(request).await?;
        let drained = self.drain(&mut attempt, &cell, request).await;
        let granted = match drained {
            Ok(drained) => self.grant(&mut attempt, &cell, request, drained.generation, drained.give_up).await,
            Err(error) => Err(error),
        };
        if let Err(error) = granted {
            attempt.withdraw().await;
            if let Error::DrainTimeout(_) = error {
                self.chronicle("drain-timeout", &cell.terms.key.id, request.reason.clone());
            }
            return Err(error);
        }
        self.chronicle("granted", &cell.terms.key.id, request.reason.clone());
        self.tell(Event::Acquired { id: cell.terms.key.id.clone(), kind: LeaseKind::Fsck });
        Ok(attempt.succeed(cell))
    }

    /// Gets the lease document, waiting for another fsck as long as the request allows.
    async fn install(self: &Rc<Self>, request: &FsckRequest) -> Result<Installed<B>> {
        let mut waiting = Waiting::new(self, request.wait);
        loop {
            if let Some(refusal) = self.own_lease_in_the_way(LeaseKind::Fsck) {
                return Err(refusal);
            }
            if waiting.looks_first() && !request.force && !waiting.way_is_free(self).await? {
                continue;
            }
            if waiting.looks_first() && !waiting.writers_had_their_turn(self).await? {
                continue;
            }
            match self.try_install(request).await? {
                Tried::Done(installed) => return Ok(installed),
                Tried::Trouble(error) => waiting.trouble(self, error).await?,
                Tried::Held(fsck) if request.force && !self.is_departing(&fsck) => {
                    match self.try_replace(request, &fsck, waiting.is_over(self)).await? {
                        Tried::Done(installed) => return Ok(installed),
                        Tried::Trouble(error) => waiting.trouble(self, error).await?,
                        Tried::Held(fsck) => waiting.behind(self, &fsck).await?,
                    }
                }
                Tried::Held(fsck) => waiting.behind(self, &fsck).await?,
            }
        }
    }

    async fn try_install(self: &Rc<Self>, request: &FsckRequest) -> Result<Tried<Installed<B>, B::Pulse>> {
        let mut attempt = match self.open_fsck(request).await {
            Ok(attempt) => attempt,
            Err(error) => return Ok(Tried::Trouble(error)),
        };
        let sent = self.clock.now();
        let (lease, session) = attempt.leave_footprint();
        match self.call(self.backend.install(session, lease)).await {
            Ok(Install::Mine) => Ok(Tried::Done(self.installed(attempt, sent))),
            Ok(Install::Held(fsck)) => {
                attempt.left_nothing();
                Ok(Tried::Held(fsck))
            }
            // Another document stands that cannot be read as a lease, or two installs met: look again.
            Err(error) if error.fault == Fault::Exists => {
                attempt.withdraw().await;
                Ok(match self.call(self.backend.peek()).await {
                    Ok(Some(fsck)) => Tried::Held(Box::new(fsck)),
                    Ok(None) => Tried::Trouble(error),
                    Err(error) => Tried::Trouble(error),
                })
            }
            Err(error) => {
                attempt.failed(error.fault);
                attempt.withdraw().await;
                Ok(Tried::Trouble(error))
            }
        }
    }

    /// Replaces a dead fsck lease, after it was watched for its whole stale age.
    async fn try_replace(
        self: &Rc<Self>,
        request: &FsckRequest,
        fsck: &Record<B::Pulse>,
        waited_enough: bool,
    ) -> Result<Tried<Installed<B>, B::Pulse>> {
        let lease = self.info(fsck);
        if lease.state == LeaseState::Fresh && !lease.clock_behind {
            if waited_enough {
                return Err(Error::locked(self.backend.store(), Locked::FsckFresh { lease }));
            }
            return Ok(Tried::Held(Box::new(fsck.clone())));
        }
        if self.spares(fsck, request.peer_is_dead) {
            return Err(Error::locked(self.backend.store(), Locked::NotDead { leases: vec![lease] }));
        }
        let pulse = match self.watch_fsck(fsck).await? {
            Watched::Dead(pulse) => pulse,
            Watched::Moved(fsck) if waited_enough => return Err(held(self, self.info(&fsck))),
            Watched::Moved(fsck) => return Ok(Tried::Held(fsck)),
            Watched::Gone => {
                return Ok(Tried::Trouble(BackendError::new(Fault::Busy, "the fsck lease left while it was watched")));
            }
        };
        let mut attempt = match self.open_fsck(request).await {
            Ok(attempt) => attempt,
            Err(error) => return Ok(Tried::Trouble(error)),
        };
        let sent = self.clock.now();
        let (lease, session) = attempt.leave_footprint();
        match self.call(self.backend.replace(session, lease, &pulse)).await {
            Ok(true) => {
                self.chronicle("forced", &fsck.id, request.reason.clone());
                Ok(Tried::Done(self.installed(attempt, sent)))
            }
            Ok(false) => {
                attempt.left_nothing();
                Ok(Tried::Trouble(BackendError::new(Fault::Busy, "the fsck lease moved before it was replaced")))
            }
            Err(error) => {
                attempt.failed(error.fault);
                attempt.withdraw().await;
                Ok(Tried::Trouble(error))
            }
        }
    }

    async fn open_fsck(self: &Rc<Self>, request: &FsckRequest) -> Result<Attempt<B>, BackendError> {
        let lease = self.new_lease(LeaseKind::Fsck, request.label.as_ref(), request.reason.as_ref());
        Attempt::open(self, lease).await
    }

    fn installed(&self, mut attempt: Attempt<B>, sent: Moment) -> Installed<B> {
        attempt.confirmed();
        let terms = self.terms(attempt.lease.key.clone(), LeaseKind::Fsck);
        let cell = Arc::new(LeaseCell::new(terms, self.clock.clone(), sent, 0));
        attempt.keep(&cell);
        (attempt, cell)
    }

    /// Turns the phase to exclusive. Never skipped: it is what an fsck that was displaced meanwhile fails at.
    async fn grant(
        &self,
        attempt: &mut Attempt<B>,
        cell: &LeaseCell,
        request: &FsckRequest,
        mut generation: i64,
        give_up: Moment,
    ) -> Result<()> {
        let mut pause = self.timing.poll_initial;
        if !self.rules.hold(Rule::ConditionalGrant) {
            // Without the rule: as if the write had matched.
            cell.set_generation(generation);
            cell.confirm(self.clock.now());
            return Ok(());
        }
        loop {
            self.still_held(cell)?;
            let sent = self.clock.now();
            let (lease, session) = attempt.parts();
            let answer = self.call(self.backend.grant(session, &lease.key, generation, request.bump_generation)).await;
            match answer {
                Ok(Grant::Granted(generation)) => {
                    // An fsck whose own deadline passed before its grant gives up.
                    self.still_held(cell)?;
                    cell.set_generation(generation);
                    cell.confirm(sent);
                    return Ok(());
                }
                Ok(Grant::Displaced) => {
                    self.lose(cell, LossReason::Displaced);
                    self.still_held(cell)?;
                }
                Ok(Grant::GenerationMoved) => generation = self.look_own(attempt, cell, give_up).await?.0,
                // Applied or not: the same grant again answers either way.
                Err(error) if error.is_transient() && self.clock.now() < give_up => {
                    tracing::debug!(store = %self.backend.store(), error = error.message, "grant not confirmed");
                    self.pause(&mut pause).await;
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    pub(crate) fn still_held(&self, cell: &LeaseCell) -> Result<()> {
        cell.check().map_err(|why| cell.error(why))
    }
}
