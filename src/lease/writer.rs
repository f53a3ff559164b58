//! The writer's half of the handshake: register, then look.

use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{Access, Backend, BackendError, Fault, LeaseKey, NO_LAYOUT};
use crate::error::{Error, Result};
use crate::lease::Hold;
use crate::lease::attempt::{Attempt, Tried};
use crate::lease::command::WriterRequest;
use crate::lease::events::Event;
use crate::lease::rules::Rule;
use crate::lease::state::{LeaseCell, Terms};
use crate::lease::status::LeaseKind;
use crate::lease::supervisor::Supervisor;
use crate::lease::wait::Waiting;

impl<B: Backend> Supervisor<B> {
    pub(crate) async fn acquire_writer(self: &Rc<Self>, request: &WriterRequest) -> Result<Hold> {
        self.ready(Access::Write, request.wait).await?;
        let mut waiting = Waiting::new(self, request.wait);
        loop {
            if !request.gated
                && let Some(refusal) = self.own_lease_in_the_way(LeaseKind::Writer)
            {
                return Err(refusal);
            }
            if (waiting.looks_first() || !self.rules.hold(Rule::InsertThenCheck)) && !waiting.way_is_free(self).await? {
                continue;
            }
            match self.try_writer(request).await? {
                Tried::Done(hold) => return Ok(hold),
                Tried::Held(fsck) => waiting.behind(self, &fsck).await?,
                Tried::Trouble(error) => waiting.trouble(self, error).await?,
            }
        }
    }

    async fn try_writer(self: &Rc<Self>, request: &WriterRequest) -> Result<Tried<Hold, B::Pulse>> {
        let lease = self.new_lease(LeaseKind::Writer, request.label.as_ref(), request.reason.as_ref());
        let mut attempt = match Attempt::open(self, lease).await {
            Ok(attempt) => attempt,
            Err(error) => return Ok(Tried::Trouble(error)),
        };
        // Before the registration is sent: delay can only shorten the lease.
        let mut sent = self.clock.now();
        let (lease, session) = attempt.leave_footprint();
        match self.call(self.backend.register(session, lease)).await {
            Ok(()) => attempt.confirmed(),
            // A retried registration may find itself. The look decides.
            Err(error) if error.fault == Fault::Exists => {}
            Err(error) => {
                attempt.failed(error.fault);
                attempt.withdraw().await;
                return Ok(Tried::Trouble(error));
            }
        }
        let (lease, session) = attempt.parts();
        let key = lease.key.clone();
        let look = match self.call(self.backend.look_writer(session, &key)).await {
            Ok(look) => look,
            Err(error) => {
                attempt.withdraw().await;
                return Ok(Tried::Trouble(error));
            }
        };
        let Some(generation) = look.generation else {
            attempt.withdraw().await;
            return Err(self.no_layout());
        };
        if let Some(fsck) = look.fsck
            && self.rules.hold(Rule::InsertThenCheck)
        {
            attempt.withdraw().await;
            return Ok(Tried::Held(Box::new(fsck)));
        }
        if !self.rules.hold(Rule::GrantBeforeDeadline) {
            sent = self.clock.now();
        }
        let terms = Terms { gated: request.gated, ..self.terms(key, LeaseKind::Writer) };
        let too_late = self.clock.now() >= terms.deadline(sent);
        if !look.registered || too_late {
            attempt.withdraw().await;
            let what = if too_late {
                "the store answered too late to be granted a lease"
            } else {
                "the registration vanished"
            };
            return Ok(Tried::Trouble(BackendError::new(Fault::Unknown, what)));
        }
        attempt.confirmed();
        let cell = Arc::new(LeaseCell::new(terms, self.clock.clone(), sent, generation));
        attempt.keep(&cell);
        self.fsck_in_the_way.send_replace(false);
        self.tell(Event::Acquired { id: cell.terms.key.id.clone(), kind: LeaseKind::Writer });
        Ok(Tried::Done(attempt.succeed(cell)))
    }

    pub(crate) fn no_layout(&self) -> Error {
        Error::invalid_at(self.backend.store(), NO_LAYOUT)
    }

    /// What is the same for a lease's whole life.
    pub(crate) fn terms(&self, key: LeaseKey, kind: LeaseKind) -> Terms {
        let unlimited = self.backend.traits().knows_the_living;
        let namespace = self.backend.namespace();
        Terms {
            store: self.backend.store().clone(),
            key,
            kind,
            timing: self.timing,
            unlimited,
            gated: false,
            namespace,
        }
    }
}
