//! Giving back: deletes by id and owner, repeated until the store has confirmed. Touches nobody else's
//! document, however often it is sent.

use std::cell::RefMut;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::backend::{Answer, Backend, FSCK_ID, LeaseKey, Record};
use crate::clock::{Moment, within};
use crate::error::Error;
use crate::lease::command::Reply;
use crate::lease::events::Event;
use crate::lease::rules::Rule;
use crate::lease::status::LeaseKind;
use crate::lease::supervisor::Supervisor;

/// A document on its way out.
pub(crate) struct Departure<S> {
    pub(crate) key: LeaseKey,
    pub(crate) session: S,
    /// The write that made it may still be under way.
    pub(crate) unsure: bool,
    /// It ends an exclusive phase: the writers are next.
    pub(crate) leaves_turn: bool,
}

/// Which fsck leases this supervisor is giving back, or has given back a short while ago, by owner.
///
/// All fsck leases have one `_id`, so an acquisition may meet the document of an earlier one of its own
/// process. That passes, and is nobody's lease. A look that was sent before the delete may be answered
/// after it, hence the while: an answer takes a call's limit at most, which is far below a stale age.
#[derive(Debug, Default)]
pub(crate) struct GivenBack(BTreeMap<String, Option<Moment>>);

impl GivenBack {
    fn begin(&mut self, key: &LeaseKey) {
        if key.id == FSCK_ID {
            self.0.insert(key.owner.clone(), None);
        }
    }

    /// The document has been gone since then; without a moment it stands, for the store refused to delete it.
    fn end(&mut self, key: &LeaseKey, gone: Option<Moment>) {
        if self.0.remove(&key.owner).is_some() && gone.is_some() {
            self.0.insert(key.owner.clone(), gone);
        }
    }

    fn forget(&mut self, before: Moment) {
        self.0.retain(|_, gone| gone.is_none_or(|gone| gone >= before));
    }
}

impl<B: Backend> Supervisor<B> {
    /// Releases a lease: it is no longer refreshed, and goes.
    pub(crate) fn release(self: &Rc<Self>, key: &LeaseKey, reply: Option<Reply<()>>) {
        let kept = self.leases.borrow_mut().remove(key);
        let Some(kept) = kept else {
            if let Some(reply) = reply {
                let _ = reply.send(Ok(()));
            }
            return;
        };
        kept.cell.released();
        let Some(session) = kept.session else { return };
        let (key, terms) = (key.clone(), kept.cell.terms.clone());
        // Whoever waits is told at the latest when the lease would look stale to others.
        // One that looks stale already has the time of a call.
        let until =
            (kept.cell.last_sent() + terms.timing.stale_after()).max(self.clock.now() + self.timing.call_limit());
        let id = key.id.clone();
        let (done, confirmed) = tokio::sync::oneshot::channel();
        let leaves_turn = terms.kind == LeaseKind::Fsck;
        self.depart(Departure { key, session, unsure: kept.unsure, leaves_turn }, async move |this, deleted| {
            if let Err(error) = deleted {
                let _ = done.send(Err(this.fail(error)));
                return;
            }
            let id = terms.key.id.clone();
            if terms.kind == LeaseKind::Fsck {
                this.chronicle("released", &id, None);
            }
            this.tell(Event::Released { id, kind: terms.kind });
            let _ = done.send(Ok(()));
        });
        let Some(reply) = reply else { return };
        self.spawn(async move |this| {
            let left = until.since(this.clock.now());
            let result = match within(&*this.clock, left, confirmed).await {
                Some(Ok(result)) => result,
                Some(Err(_)) => Err(Error::internal("the release ended without an answer")),
                None => Err(Error::unavailable_at(
                    this.backend.store(),
                    format!(
                        "the release of {id} is not confirmed; the lease looks stale from now on and blocks until it is cleared; this process keeps trying while it lives"
                    ),
                )),
            };
            let _ = reply.send(result);
        });
    }

    /// Deletes a document until the store has confirmed or refused, then runs `then` with that answer.
    pub(crate) fn depart<F>(self: &Rc<Self>, departure: Departure<B::Session>, then: F)
    where
        F: AsyncFnOnce(Rc<Self>, Answer<()>) + 'static,
    {
        self.pending.set(self.pending.get() + 1);
        self.given_back().begin(&departure.key);
        self.spawn(async move |this| {
            let Departure { key, mut session, unsure, leaves_turn } = departure;
            if leaves_turn {
                // Before the lease goes, so that whoever waits for that finds it. Without it writers are let in later.
                if let Err(error) = this.call(this.backend.leave_turn(this.timing.refresh_interval)).await {
                    tracing::debug!(store = %this.backend.store(), error = error.message, "no turn left for the writers");
                }
            }
            if !this.rules.hold(Rule::OneSession)
                && let Ok(another) = this.call(this.backend.session()).await
            {
                session = another;
            }
            let deleted = this.delete(&key, &mut session).await;
            let confirmed = deleted.is_ok();
            then(this.clone(), deleted).await;
            if unsure && !this.backend.traits().sessions_refuse_late {
                this.once_more_later(&key, &mut session).await;
            }
            let gone = confirmed.then(|| this.clock.now());
            this.given_back().end(&key, gone);
            this.settle_one();
        });
    }

    /// Whether an fsck document is one that this supervisor is giving back: in nobody's way for long.
    pub(crate) fn is_departing(&self, fsck: &Record<B::Pulse>) -> bool {
        fsck.owner.as_ref().is_some_and(|owner| self.given_back().0.contains_key(owner))
    }

    fn given_back(&self) -> RefMut<'_, GivenBack> {
        let mut given_back = self.given_back.borrow_mut();
        given_back.forget(self.clock.now() - self.timing.stale_after());
        given_back
    }

    /// The store cannot refuse the statement that made the document, should it still be under way: by one
    /// stale age later it has come or never will, and the delete is sent again.
    async fn once_more_later(&self, key: &LeaseKey, session: &mut B::Session) {
        if !self.hurry.get() {
            let hurried = self.hurried.notified();
            tokio::select! {
                biased;
                () = hurried => {}
                () = self.sleep(self.timing.stale_after()) => {}
            }
        }
        // What it says was said already.
        let _ = self.delete(key, session).await;
    }

    async fn delete(&self, key: &LeaseKey, session: &mut B::Session) -> Answer<()> {
        let mut pause = self.timing.poll_initial;
        loop {
            match self.call(self.backend.release(session, key)).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_transient() => {
                    tracing::debug!(store = %self.backend.store(), lease = key.id, error = error.message, "release not confirmed");
                    self.pause(&mut pause).await;
                }
                Err(error) => {
                    tracing::error!(
                        store = %self.backend.store(), lease = key.id, error = error.message,
                        "the lease cannot be released; it will look stale and has to be cleared"
                    );
                    return Err(error);
                }
            }
        }
    }
}
