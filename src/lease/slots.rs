//! The fence documents of a lease, and which transaction raises which.
//!
//! A *slot* is one fence document. It belongs to one logical session at a time: a new transaction of a session makes
//! the server abort the older one, so nobody ever finds a slot locked, and a thousand concurrent transactions do not
//! collide. Slots are made by the supervisor alone, between refreshes, in a transaction that also writes the lease
//! document: made in users' transactions they would block the refresh of every lease of the process, and made beside
//! the lease they could outlive it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::{Backend, LeaseKey};
use crate::clock::Moment;
use crate::error::{Error, LossReason, Result};
use crate::lease::command::Reply;
use crate::lease::supervisor::Supervisor;

/// How many slots one transaction makes at least, and at most: one that makes more holds up the refresh for too long.
const SMALLEST: u64 = 4;
const LARGEST: u64 = 500;

/// After how long another session may have the slot of one that does not come again. A transaction lives a minute at
/// most unless the server was told otherwise; one that lives longer is in the way, and the server says so.
const IDLE: Duration = Duration::from_secs(120);

/// Which slots a lease has.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The next number: one that was tried and not confirmed is not used again.
    next: u64,
    free: Vec<u64>,
    taken: HashMap<Vec<u8>, Taken>,
}

#[derive(Debug, Clone, Copy)]
struct Taken {
    slot: u64,
    at: Moment,
}

impl Slots {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg_attr(not(any(feature = "mongo", test)), expect(dead_code, reason = "only a MongoDB store has transactions"))]
    /// The slot of this session, if it has one or one is free.
    pub(crate) fn take(&self, session: &[u8], now: Moment) -> Option<u64> {
        let mut known = self.known();
        if let Some(taken) = known.taken.get_mut(session) {
            taken.at = now;
            return Some(taken.slot);
        }
        let slot = match known.free.pop() {
            Some(slot) => slot,
            None => {
                let (idle, taken) = known.taken.iter().min_by_key(|(_, taken)| taken.at)?;
                if now.since(taken.at) < IDLE {
                    return None;
                }
                let (idle, slot) = (idle.clone(), taken.slot);
                known.taken.remove(&idle);
                slot
            }
        };
        known.taken.insert(session.to_owned(), Taken { slot, at: now });
        Some(slot)
    }

    /// Numbers for new slots: as many as are wanted, and some more the more there are.
    fn reserve(&self, wanted: u64) -> Range<u64> {
        let mut known = self.known();
        let first = known.next;
        let count = wanted.max(first.min(LARGEST / 8)).clamp(SMALLEST, LARGEST);
        known.next += count;
        first..known.next
    }

    fn add(&self, slots: Range<u64>) {
        self.known().free.extend(slots.rev());
    }
}

/// Who waits for slots, and what makes them.
pub(crate) struct Fencing<S> {
    waiting: RefCell<BTreeMap<LeaseKey, Vec<Reply<()>>>>,
    busy: Cell<bool>,
    /// Whose turn it is to write lease documents, refreshing or fencing; with the session that makes slots.
    pub(crate) turn: tokio::sync::Mutex<Option<S>>,
}

impl<S> Default for Fencing<S> {
    fn default() -> Fencing<S> {
        Fencing { waiting: RefCell::default(), busy: Cell::new(false), turn: tokio::sync::Mutex::new(None) }
    }
}

impl<B: Backend> Supervisor<B> {
    /// Makes slots for a lease; those that are asked for meanwhile are made together.
    pub(crate) fn make_slots(self: &Rc<Self>, key: LeaseKey, reply: Reply<()>) {
        self.fencing.waiting.borrow_mut().entry(key).or_default().push(reply);
        if !self.fencing.busy.replace(true) {
            self.spawn(async |this| this.make_all_slots().await);
        }
    }

    async fn make_all_slots(&self) {
        loop {
            let next = self.fencing.waiting.borrow_mut().pop_first();
            let Some((key, replies)) = next else { break };
            let made = self.make_slots_of(&key, replies.len() as u64).await;
            if made.is_err() {
                // Nothing begins after a transaction that was given up: its session goes, and aborts it.
                self.fencing.turn.lock().await.take();
            }
            for reply in replies {
                let _ = reply.send(match &made {
                    Ok(()) => Ok(()),
                    Err(error) => Err(error.again()),
                });
            }
        }
        self.fencing.busy.set(false);
    }

    async fn make_slots_of(&self, key: &LeaseKey, wanted: u64) -> Result<()> {
        let Some(cell) = self.leases.borrow().get(key).map(|kept| kept.cell.clone()) else {
            return Err(Error::internal(format!("the lease {} is no longer kept", key.id)));
        };
        // A transaction that is given up in the middle blocks the refresh until the next one of its session begins.
        let limit = self.timing.refresh_interval / 4;
        let mut pause = self.timing.poll_initial;
        loop {
            cell.check().map_err(|why| cell.error(why))?;
            let slots = cell.slots.reserve(wanted);
            let mut turn = self.fencing.turn.lock().await;
            // The refresh of every lease waits for this turn: all of it keeps within the one limit.
            let made = self.call_for(limit, async {
                let session = match &mut *turn {
                    Some(session) => session,
                    none => none.insert(self.backend.session().await?),
                };
                self.backend.make_slots(session, key, slots.clone()).await
            });
            let made = made.await;
            drop(turn);
            match made {
                Ok(true) => {
                    cell.slots.add(slots);
                    return Ok(());
                }
                Ok(false) => {
                    self.lose(&cell, LossReason::Displaced);
                }
                Err(error) if error.is_transient() => {
                    tracing::debug!(store = %self.backend.store(), error = error.message, "fence documents not made");
                    self.pause(&mut pause).await;
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::ORIGIN + Duration::from_secs(secs)
    }

    #[test]
    fn a_session_keeps_its_slot_and_shares_it_with_nobody() {
        let slots = Slots::default();
        assert_eq!(slots.take(b"a", at(0)), None, "none is made yet");
        let made = slots.reserve(2);
        assert_eq!(made, 0..SMALLEST);
        slots.add(made);
        let (a, b) = (slots.take(b"a", at(0)).unwrap(), slots.take(b"b", at(0)).unwrap());
        assert_ne!(a, b);
        assert_eq!(slots.take(b"a", at(1)), Some(a));
        assert_eq!(slots.reserve(1).start, SMALLEST, "no number is used twice");
    }

    #[test]
    fn the_slot_of_a_session_that_is_gone_is_used_again() {
        let slots = Slots::default();
        slots.add(0..1);
        assert_eq!(slots.take(b"a", at(0)), Some(0));
        assert_eq!(slots.take(b"b", at(119)), None);
        assert_eq!(slots.take(b"b", at(120)), Some(0));
        assert_eq!(slots.take(b"a", at(121)), None, "it has to take another");
    }
}
