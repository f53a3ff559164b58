//! One lease as its holder and the supervisor share it: its deadline, its state, its cancellation token.
//!
//! ```text
//! Held ──(refresh failing)──▶ Doubtful ──(a refresh matched before the deadline)──▶ Held
//!                                │ deadline passed: check() fails, the token is cancelled
//!                                ▼
//!                             Expired ──(the handshake again)──▶ Held, with a new token
//!                                └──(gone, an fsck, another generation)──▶ Lost (final)      Released
//! ```
//!
//! `check` needs no supervisor: it compares a clock with an atomic. So a holder stops in time even when the
//! thread that refreshes is hung or gone.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backend::{LeaseKey, Namespace};
use crate::clock::{Clock, Moment};
use crate::error::{Error, LeaseLost, LossReason};
use crate::lease::slots::Slots;
use crate::lease::status::LeaseKind;
use crate::store_url::StoreName;
use crate::timing::LeaseTiming;

/// Where a lease is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Held,
    Doubtful,
    Expired(LossReason),
    Lost(LossReason),
    Released,
}

/// What is the same for a lease's whole life.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) store: StoreName,
    pub(crate) key: LeaseKey,
    pub(crate) kind: LeaseKind,
    pub(crate) timing: LeaseTiming,
    /// The store itself knows when the holder is gone: the lease has no deadline.
    pub(crate) unlimited: bool,
    /// It is a gate's.
    pub(crate) gated: bool,
    /// Where its fence documents are. `None`: the store has no transactions.
    #[cfg_attr(not(feature = "mongo"), expect(dead_code, reason = "only a MongoDB store has transactions"))]
    pub(crate) namespace: Option<Arc<Namespace>>,
}

impl Terms {
    /// Until when a lease is believed that was written or refreshed at `sent`.
    pub(crate) fn deadline(&self, sent: Moment) -> Moment {
        if self.unlimited { Moment::from_nanos(u64::MAX) } else { sent + self.timing.valid_for() }
    }
}

/// The last confirmed refresh: when it was sent, and how long the machine had slept by then.
#[derive(Debug, Clone, Copy)]
struct Confirmed {
    sent: Moment,
    slept: Duration,
}

/// A lease shared between its holder and its supervisor.
#[derive(Debug)]
pub(crate) struct LeaseCell {
    pub(crate) terms: Terms,
    clock: Arc<dyn Clock>,
    /// Nanoseconds on the clock; [`INVALID`] once the lease is lost or released. Else it only grows.
    deadline: AtomicU64,
    generation: AtomicI64,
    state: watch::Sender<State>,
    confirmed: Mutex<Confirmed>,
    token: Mutex<CancellationToken>,
    pub(crate) slots: Slots,
}

const INVALID: u64 = 0;

/// What a confirmation changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// It was held all the time.
    Steady,
    /// It had been doubtful or expired.
    Recovered,
    /// It came too late to matter: the deadline it brings has passed, or the lease is over.
    TooLate,
}

impl LeaseCell {
    /// A lease that is held from a write that was sent at `sent`.
    pub(crate) fn new(terms: Terms, clock: Arc<dyn Clock>, sent: Moment, generation: i64) -> LeaseCell {
        let deadline = terms.deadline(sent);
        LeaseCell {
            deadline: AtomicU64::new(deadline.as_nanos()),
            generation: AtomicI64::new(generation),
            state: watch::Sender::new(State::Held),
            confirmed: Mutex::new(Confirmed { sent, slept: slept(&*clock) }),
            token: Mutex::new(CancellationToken::new()),
            slots: Slots::default(),
            terms,
            clock,
        }
    }

    pub(crate) fn state(&self) -> State {
        *self.state.borrow()
    }

    pub(crate) fn generation(&self) -> i64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn set_generation(&self, generation: i64) {
        self.generation.store(generation, Ordering::Release);
    }

    /// How long the lease is valid without another refresh; zero if it is not.
    pub(crate) fn remaining(&self) -> Duration {
        match self.deadline() {
            None => Duration::ZERO,
            Some(_) if self.terms.unlimited => Duration::MAX,
            Some(deadline) => deadline.since(self.clock.now()),
        }
    }

    /// `None` once the lease is over.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match self.deadline.load(Ordering::Acquire) {
            INVALID => None,
            nanos => Some(Moment::from_nanos(nanos)),
        }
    }

    /// What the lease's clock shows.
    #[cfg_attr(not(feature = "mongo"), expect(dead_code, reason = "only a MongoDB store has transactions"))]
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// When the last confirmed refresh was sent.
    pub(crate) fn last_sent(&self) -> Moment {
        self.confirmed().sent
    }

    /// Whether the holder may go on.
    pub(crate) fn check(&self) -> Result<(), LossReason> {
        if !self.remaining().is_zero() && !matches!(self.state(), State::Expired(_)) {
            return Ok(());
        }
        Err(match self.state() {
            State::Lost(why) | State::Expired(why) => why,
            State::Released => LossReason::Released,
            State::Held | State::Doubtful => self.why_expired(),
        })
    }

    /// The error for a lease that is over, for a holder.
    pub(crate) fn error(&self, why: LossReason) -> Error {
        let terms = &self.terms;
        LeaseLost { store: terms.store.clone(), identifier: terms.key.id.clone(), kind: terms.kind, why }.into()
    }

    /// The token of the present period of validity: cancelled when that ends.
    pub(crate) fn token(&self) -> CancellationToken {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Completes when the lease is no longer valid. Woken by the supervisor's watchdog.
    pub(crate) async fn lost(&self) -> LossReason {
        let mut state = self.state.subscribe();
        loop {
            if let Err(why) = self.check() {
                return why;
            }
            if state.changed().await.is_err() {
                return LossReason::Supervisor;
            }
        }
    }

    /// A refresh that was sent at `sent` matched. An expired lease is held again: the caller has looked for
    /// an fsck and another generation before it says so.
    pub(crate) fn confirm(&self, sent: Moment) -> Confirmation {
        let deadline = self.terms.deadline(sent);
        if self.deadline().is_none() || deadline <= self.clock.now() {
            return Confirmation::TooLate;
        }
        // The order matters: a token for the new period first, then the deadline, then the state, so that
        // nobody who saw a valid lease finds a cancelled token in his hand.
        let before = self.state();
        if matches!(before, State::Expired(_)) {
            *self.token.lock().unwrap_or_else(PoisonError::into_inner) = CancellationToken::new();
        }
        *self.confirmed() = Confirmed { sent, slept: slept(&*self.clock) };
        self.deadline.fetch_max(deadline.as_nanos(), Ordering::AcqRel);
        self.state.send_if_modified(|state| {
            let over = matches!(state, State::Lost(_) | State::Released);
            !over && std::mem::replace(state, State::Held) != State::Held
        });
        match before {
            State::Held => Confirmation::Steady,
            State::Doubtful | State::Expired(_) => Confirmation::Recovered,
            State::Lost(_) | State::Released => Confirmation::TooLate,
        }
    }

    /// A refresh failed. `true` if the lease was not in doubt before.
    pub(crate) fn doubt(&self) -> bool {
        self.state.send_if_modified(|state| {
            let held = *state == State::Held;
            if held {
                *state = State::Doubtful;
            }
            held
        })
    }

    /// Notices a deadline that has passed. `Some` if it was not noticed before.
    pub(crate) fn expire(&self) -> Option<LossReason> {
        if !matches!(self.state(), State::Held | State::Doubtful) || !self.remaining().is_zero() {
            return None;
        }
        let why = self.why_expired();
        self.token().cancel();
        self.state.send_replace(State::Expired(why));
        Some(why)
    }

    /// Ends the lease for good. `true` if it was not over before.
    pub(crate) fn lose(&self, why: LossReason) -> bool {
        self.end(State::Lost(why))
    }

    /// The holder gave it back.
    pub(crate) fn released(&self) -> bool {
        self.end(State::Released)
    }

    fn end(&self, end: State) -> bool {
        if matches!(self.state(), State::Lost(_) | State::Released) {
            return false;
        }
        self.deadline.store(INVALID, Ordering::Release);
        self.token().cancel();
        self.state.send_replace(end);
        true
    }

    fn confirmed(&self) -> std::sync::MutexGuard<'_, Confirmed> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn why_expired(&self) -> LossReason {
        let confirmed = *self.confirmed();
        let slept = slept(&*self.clock).saturating_sub(confirmed.slept);
        if slept * 2 > self.clock.now().since(confirmed.sent) { LossReason::Suspended } else { LossReason::Deadline }
    }
}

/// How long the machine has slept since it booted.
fn slept(clock: &dyn Clock) -> Duration {
    clock.now().since(clock.awake())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn lease() -> (ManualClock, LeaseCell) {
        let clock = ManualClock::new();
        let terms = Terms {
            store: StoreName::new("test"),
            key: LeaseKey { id: "lease/1".to_owned(), owner: "me".to_owned() },
            kind: LeaseKind::Writer,
            timing: LeaseTiming::default(),
            unlimited: false,
            gated: false,
            namespace: None,
        };
        let cell = LeaseCell::new(terms, Arc::new(clock.clone()), clock.now(), 7);
        (clock, cell)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_lease_is_valid_until_one_interval_before_it_is_stale() {
        let (clock, lease) = lease();
        clock.advance(secs(6) - Duration::from_nanos(1));
        assert_eq!(lease.check(), Ok(()));
        clock.advance(Duration::from_nanos(1));
        assert_eq!(lease.check(), Err(LossReason::Deadline));
        assert!(!lease.token().is_cancelled(), "nobody has noticed yet");
        assert_eq!(lease.expire(), Some(LossReason::Deadline));
        assert!(lease.token().is_cancelled());
    }

    #[test]
    fn a_machine_that_slept_is_told_from_a_slow_network() {
        let (clock, lease) = lease();
        clock.suspend(secs(3600));
        assert_eq!(lease.check(), Err(LossReason::Suspended));
        assert_eq!(lease.expire(), Some(LossReason::Suspended));
    }

    #[test]
    fn a_confirmation_counts_from_when_it_was_sent_and_never_moves_back() {
        let (clock, lease) = lease();
        clock.advance(secs(5));
        assert_eq!(lease.confirm(clock.now() - secs(3)), Confirmation::Steady);
        assert_eq!(lease.remaining(), secs(3));
        assert_eq!(lease.confirm(clock.now() - secs(4)), Confirmation::Steady);
        assert_eq!(lease.remaining(), secs(3));
        clock.advance(secs(2));
        assert_eq!(lease.confirm(clock.now() - secs(6)), Confirmation::TooLate, "what it brings has passed");
    }

    #[test]
    fn an_expired_lease_that_is_confirmed_has_a_token_of_its_own() {
        let (clock, lease) = lease();
        assert!(lease.doubt());
        assert!(!lease.doubt());
        clock.advance(secs(7));
        lease.expire();
        let old = lease.token();
        assert_eq!(lease.confirm(clock.now()), Confirmation::Recovered);
        assert_eq!(lease.check(), Ok(()));
        assert!(old.is_cancelled() && !lease.token().is_cancelled());
    }

    #[test]
    fn what_is_lost_stays_lost() {
        let (clock, lease) = lease();
        assert!(lease.lose(LossReason::Displaced));
        assert!(!lease.lose(LossReason::Generation));
        assert_eq!(lease.confirm(clock.now()), Confirmation::TooLate);
        assert_eq!(lease.check(), Err(LossReason::Displaced));
        assert!(!lease.released());
        assert!(lease.token().is_cancelled());
    }
}
