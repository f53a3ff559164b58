//! One attempt to acquire: what it may have left in the store, and the certainty that it takes it back.
//!
//! An attempt that is dropped at any await, by an error or because nobody waits any more, withdraws: the
//! supervisor sends the delete through the attempt's own session until it is confirmed.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::backend::{Answer, Backend, BackendError, Fault, NewLease};
use crate::lease::Hold;
use crate::lease::release::Departure;
use crate::lease::state::LeaseCell;
use crate::lease::supervisor::Supervisor;

/// What an attempt may have left in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Footprint {
    /// Certainly nothing.
    None,
    /// A document that was confirmed.
    Confirmed,
    /// A document, or one that is still under way.
    Unsure,
}

/// One attempt to acquire a lease.
pub(crate) struct Attempt<B: Backend> {
    supervisor: Rc<Supervisor<B>>,
    pub(crate) lease: NewLease,
    session: Option<B::Session>,
    footprint: Footprint,
}

/// How a single attempt ended.
pub(crate) enum Tried<T, P> {
    Done(T),
    /// An fsck lease is in the way.
    Held(Box<crate::backend::Record<P>>),
    /// A passing trouble; worth another attempt.
    Trouble(BackendError),
}

impl<B: Backend> Attempt<B> {
    pub(crate) async fn open(supervisor: &Rc<Supervisor<B>>, lease: NewLease) -> Answer<Attempt<B>> {
        let session = supervisor.call(supervisor.backend.session()).await?;
        Ok(Attempt { supervisor: supervisor.clone(), lease, session: Some(session), footprint: Footprint::None })
    }

    /// The session, to send the attempt's document: from now on the store may have it.
    pub(crate) fn leave_footprint(&mut self) -> (&NewLease, &mut B::Session) {
        self.footprint = Footprint::Unsure;
        self.parts()
    }

    pub(crate) fn parts(&mut self) -> (&NewLease, &mut B::Session) {
        let session = self.session.as_mut().expect("the session is there until the attempt ends");
        (&self.lease, session)
    }

    /// The document is confirmed.
    pub(crate) fn confirmed(&mut self) {
        self.footprint = Footprint::Confirmed;
    }

    /// The write failed. What was certainly not applied left nothing.
    pub(crate) fn failed(&mut self, fault: Fault) {
        match fault {
            Fault::Busy | Fault::Denied | Fault::Invalid | Fault::Internal => self.footprint = Footprint::None,
            Fault::Exists | Fault::Unknown => {}
        }
    }

    /// Certainly nothing was left.
    pub(crate) fn left_nothing(&mut self) {
        self.footprint = Footprint::None;
    }

    /// Takes the attempt's document back, and waits a moment for the confirmation: whoever is told of a
    /// refusal should find the store without it.
    pub(crate) async fn withdraw(mut self) {
        let limit = self.supervisor.timing.call_limit();
        let supervisor = self.supervisor.clone();
        if let Some(confirmed) = self.begin_withdrawal() {
            let _ = crate::clock::within(&*supervisor.clock, limit, confirmed).await;
        }
    }

    fn begin_withdrawal(&mut self) -> Option<oneshot::Receiver<()>> {
        let session = self.session.take()?;
        let kept = self.supervisor.leases.borrow_mut().remove(&self.lease.key);
        if let Some(kept) = kept {
            kept.cell.released();
        }
        if self.footprint == Footprint::None {
            return None;
        }
        let (confirmed, wait) = oneshot::channel();
        let key = self.lease.key.clone();
        let unsure = self.footprint == Footprint::Unsure;
        self.supervisor.depart(Departure { key, session, unsure, leaves_turn: false }, async move |_, _| {
            let _ = confirmed.send(());
        });
        Some(wait)
    }

    /// Puts the attempt's lease into care while the attempt goes on: it is refreshed from now on.
    pub(crate) fn keep(&self, cell: &Arc<LeaseCell>) {
        self.supervisor.keep(cell.clone());
    }

    /// The attempt succeeded: hands the session over to whoever releases the lease later.
    pub(crate) fn succeed(mut self, cell: Arc<LeaseCell>) -> Hold {
        let mut leases = self.supervisor.leases.borrow_mut();
        if let Some(kept) = leases.get_mut(&cell.terms.key) {
            kept.session = self.session.take();
            kept.unsure = self.footprint == Footprint::Unsure;
        }
        drop(leases);
        self.supervisor.hold(cell)
    }
}

impl<B: Backend> Drop for Attempt<B> {
    fn drop(&mut self) {
        drop(self.begin_withdrawal());
    }
}
