//! What a supervisor counts as it goes, for whoever watches it from outside.
//!
//! Nothing here is shared: the counts live on the supervisor's thread, and a snapshot is an answer of the watchdog. So
//! counting costs no atomic, and whoever gets a snapshot knows that the supervisor and its watchdog both go round.
//! Only what holds leases lives in a snapshot: a [`HeldLease`] compares its deadline with the clock at each question,
//! also when the supervisor hangs.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Backend;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, LossReason, Result};
use crate::lease::Hold;
use crate::lease::command::Reply;
use crate::lease::events::Event;
use crate::lease::gate::Shared;
use crate::lease::state::{LeaseCell, State};
use crate::lease::status::LeaseKind;
use crate::lease::supervisor::Supervisor;

/// The upper bounds of the classes of a [`Latency`], in seconds: from a call to a server next door to a drain that
/// used up its ten minutes. What is above the last is counted by `count` alone.
pub const LATENCY_BOUNDS: [f64; 17] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];

/// How long something took, each time.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Latency {
    /// How often.
    pub count: u64,
    /// How long in all.
    pub sum: Duration,
    /// How often at most as long as each of [`LATENCY_BOUNDS`].
    pub within: [u64; LATENCY_BOUNDS.len()],
}

impl Latency {
    fn note(&mut self, took: Duration) {
        self.count += 1;
        self.sum += took;
        for (within, bound) in self.within.iter_mut().zip(LATENCY_BOUNDS) {
            *within += u64::from(took.as_secs_f64() <= bound);
        }
    }
}

/// How an acquisition ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AcquireOutcome {
    /// With a lease.
    Granted,
    /// With an error of this kind.
    Failed(ErrorKind),
    /// Nobody waited for it any more.
    Withdrawn,
}

/// A lease of this coordinator.
#[derive(Debug, Clone)]
pub struct HeldLease(Arc<LeaseCell>);

impl HeldLease {
    /// `lease/<uuid>` or `lease/fsck`.
    pub fn id(&self) -> &str {
        &self.0.terms.key.id
    }

    /// Writer or fsck.
    pub fn kind(&self) -> LeaseKind {
        self.0.terms.kind
    }

    /// How long it is valid, as of now, without another refresh. `None` for a lease without a deadline, which the
    /// kernel keeps.
    pub fn remaining(&self) -> Option<Duration> {
        (!self.0.terms.unlimited).then(|| self.0.remaining())
    }

    /// Whether its holder may go on, as of now.
    ///
    /// # Errors
    ///
    /// `LeaseLost` with the reason.
    pub fn check(&self) -> Result<()> {
        self.0.check().map_err(|why| self.0.error(why))
    }

    /// It was given back since the snapshot, and nobody needs it to be valid.
    pub fn is_released(&self) -> bool {
        self.0.state() == State::Released
    }
}

/// A drain of this coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainMeasures {
    /// The writers of the first look that are still there.
    pub waiting_for: usize,
    /// How many of them are stale or malformed.
    pub stale: usize,
    /// How many writers came after the fsck and had to withdraw.
    pub turned_away: usize,
    /// Time since the fsck lease was installed.
    pub elapsed: Duration,
    /// How long the drain may take.
    pub budget: Duration,
}

/// All gates of a coordinator together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateMeasures {
    /// How often somebody got in. Derived from what a gate keeps anyway, thirty bits of it: true as long as nobody
    /// lets a thousand million entries pass between two snapshots.
    pub entries: u64,
    /// How many entries had to wait for a gate to open.
    pub waits: u64,
    /// How often one closed.
    pub closings: u64,
    /// How many guards are inside.
    pub inside: u64,
}

/// What a coordinator has done so far, and what it does now. Counts begin with the coordinator.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Measures {
    /// Its leases; also those that are lost and not yet given back.
    pub leases: Vec<HeldLease>,
    /// The refreshes that were answered, one for up to a thousand leases.
    pub heartbeats: Latency,
    /// The refreshes that failed.
    pub heartbeat_failures: u64,
    /// The leases lost, by why. One that came back after its deadline counts too.
    pub losses: Vec<(LossReason, u64)>,
    /// The acquisitions that ended, how, and how long they took.
    pub acquired: Vec<(LeaseKind, AcquireOutcome, Latency)>,
    /// The acquisitions that go on, and for how long.
    pub acquiring: Vec<(LeaseKind, Duration)>,
    /// The drains that ended, however they did.
    pub drains: Latency,
    /// The drain that goes on.
    pub draining: Option<DrainMeasures>,
    /// Its gates.
    pub gates: GateMeasures,
}

/// The counts of one supervisor.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    heartbeats: Latency,
    heartbeat_failures: u64,
    losses: Vec<(LossReason, u64)>,
    acquired: Vec<(LeaseKind, AcquireOutcome, Latency)>,
    acquiring: Vec<(LeaseKind, Moment)>,
    drains: Latency,
    draining: Option<Draining>,
    gates: GateMeasures,
    /// The gates that are kept, with the entries of each that were counted already.
    kept_gates: Vec<(std::sync::Weak<Shared>, u64)>,
}

#[derive(Debug)]
struct Draining {
    began: Moment,
    seen: DrainMeasures,
}

impl Counts {
    fn snapshot(&mut self, leases: Vec<HeldLease>, now: Moment) -> Measures {
        self.count_entries();
        Measures {
            leases,
            heartbeats: self.heartbeats.clone(),
            heartbeat_failures: self.heartbeat_failures,
            losses: self.losses.clone(),
            acquired: self.acquired.clone(),
            acquiring: self.acquiring.iter().map(|(kind, began)| (*kind, now.since(*began))).collect(),
            drains: self.drains.clone(),
            draining: self
                .draining
                .as_ref()
                .map(|draining| DrainMeasures { elapsed: now.since(draining.began), ..draining.seen.clone() }),
            gates: self.gates.clone(),
        }
    }

    pub(crate) fn heartbeat(&mut self, took: Duration, answered: bool) {
        if answered {
            self.heartbeats.note(took);
        } else {
            self.heartbeat_failures += 1;
        }
    }

    /// What an event means for the counts.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Lost { why, .. } => match self.losses.iter_mut().find(|(known, _)| known == why) {
                Some((_, count)) => *count += 1,
                None => self.losses.push((*why, 1)),
            },
            Event::GateClosing { .. } => self.gates.closings += 1,
            _ => {}
        }
    }

    fn acquired(&mut self, kind: LeaseKind, outcome: AcquireOutcome, took: Duration) {
        let known = self.acquired.iter().position(|(of, how, _)| (*of, *how) == (kind, outcome));
        let known = known.unwrap_or_else(|| {
            self.acquired.push((kind, outcome, Latency::default()));
            self.acquired.len() - 1
        });
        self.acquired[known].2.note(took);
    }

    /// A drain looked. `true` if that brought news.
    pub(crate) fn drain(&mut self, began: Moment, seen: DrainMeasures) -> bool {
        let numbers = |seen: &DrainMeasures| (seen.waiting_for, seen.stale, seen.turned_away);
        let before = self.draining.replace(Draining { began, seen: seen.clone() });
        before.is_none_or(|before| numbers(&before.seen) != numbers(&seen))
    }

    fn drained(&mut self, took: Duration) {
        self.draining = None;
        self.drains.note(took);
    }

    pub(crate) fn gate(&mut self, gate: &Arc<Shared>) {
        self.kept_gates.push((Arc::downgrade(gate), gate.word.seen().entries()));
    }

    /// An entry had to wait.
    pub(crate) fn gate_wait(&mut self) {
        self.gates.waits += 1;
    }

    /// Also when a gate is kept no longer: its last entries are counted then or never.
    pub(crate) fn count_entries(&mut self) {
        let gates = &mut self.gates;
        gates.inside = 0;
        self.kept_gates.retain_mut(|(gate, counted)| {
            let Some(gate) = gate.upgrade() else { return false };
            let seen = gate.word.seen();
            gates.entries += seen.entries_since(*counted);
            gates.inside += seen.inside();
            *counted = seen.entries();
            true
        });
    }
}

/// Something that goes on. Its end is counted, also when it is dropped before it comes.
struct Ongoing<B: Backend, F: FnOnce(&mut Counts, Duration)> {
    supervisor: Weak<Supervisor<B>>,
    began: Moment,
    end: Option<F>,
}

impl<B: Backend, F: FnOnce(&mut Counts, Duration)> Drop for Ongoing<B, F> {
    fn drop(&mut self) {
        if let Some((supervisor, end)) = self.supervisor.upgrade().zip(self.end.take()) {
            let took = supervisor.clock.now().since(self.began);
            end(&mut supervisor.counts.borrow_mut(), took);
        }
    }
}

impl<B: Backend> Supervisor<B> {
    /// Runs an acquisition and counts how it ends.
    pub(crate) async fn measured(
        self: &Rc<Self>,
        kind: LeaseKind,
        acquiring: impl Future<Output = Result<Hold>>,
    ) -> Result<Hold> {
        let began = self.clock.now();
        self.counts.borrow_mut().acquiring.push((kind, began));
        let outcome = std::cell::Cell::new(AcquireOutcome::Withdrawn);
        let end = |counts: &mut Counts, took| {
            if let Some(at) = counts.acquiring.iter().position(|going_on| *going_on == (kind, began)) {
                counts.acquiring.swap_remove(at);
            }
            counts.acquired(kind, outcome.get(), took);
        };
        let _counted = Ongoing { supervisor: Rc::downgrade(self), began, end: Some(end) };
        let acquired = acquiring.await;
        outcome.set(match &acquired {
            Ok(_) => AcquireOutcome::Granted,
            Err(error) => AcquireOutcome::Failed(Error::kind(error)),
        });
        acquired
    }

    /// To be kept for as long as a drain goes on.
    pub(crate) fn count_drain(self: &Rc<Self>) -> impl Drop + use<B> {
        let (supervisor, began) = (Rc::downgrade(self), self.clock.now());
        Ongoing { supervisor, began, end: Some(Counts::drained) }
    }

    /// A snapshot is taken by the watchdog in its next round.
    pub(crate) fn measure(&self, reply: Reply<Measures>) {
        self.to_measure.borrow_mut().push(reply);
        self.added_to_watch.notify_one();
    }

    pub(crate) fn answer_measurers(&self) {
        for reply in self.to_measure.take() {
            let leases = self.leases.borrow().values().map(|kept| HeldLease(kept.cell.clone())).collect();
            let measures = self.counts.borrow_mut().snapshot(leases, self.clock.now());
            // Whoever asked may have gone.
            let _ = reply.send(Ok(measures));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_within_every_bound_above_it() {
        let mut latency = Latency::default();
        for millis in [1, 3, 700_000] {
            latency.note(Duration::from_millis(millis));
        }
        assert_eq!(latency.count, 3);
        assert_eq!(latency.sum, Duration::from_millis(700_004));
        assert_eq!(latency.within[..4], [1, 1, 2, 2]);
        assert_eq!(latency.within.last(), Some(&2), "the longest is above all bounds");
        assert!(LATENCY_BOUNDS.is_sorted());
    }

    #[test]
    fn entries_are_counted_once_and_over_the_wrap() {
        let gate = Arc::new(Shared::closed(
            #[cfg(feature = "mongo")]
            tokio::sync::mpsc::unbounded_channel().0,
        ));
        let mut counts = Counts::default();
        counts.gate(&gate);
        gate.word.open();
        for _ in 0..3 {
            assert!(gate.word.enter());
        }
        counts.count_entries();
        counts.count_entries();
        assert_eq!((counts.gates.entries, counts.gates.inside), (3, 3));
        drop(gate);
        counts.count_entries();
        assert_eq!((counts.gates.entries, counts.gates.inside), (3, 0));
    }
}
