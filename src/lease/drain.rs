//! The drain: an fsck waits for the writers of its first look to leave.
//!
//! One that registered later must find the fsck document and withdraw; waiting for those too would let
//! polling writers starve the fsck.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use crate::backend::{Backend, Changes, Detail, FsckLook, Life, Record};
use crate::clock::Moment;
use crate::error::{DrainTimeout, Error, Locked, LossReason, Result};
use crate::lease::attempt::Attempt;
use crate::lease::command::FsckRequest;
use crate::lease::events::Event;
use crate::lease::measures::DrainMeasures;
use crate::lease::pulse::PulseWatch;
use crate::lease::rules::Rule;
use crate::lease::state::LeaseCell;
use crate::lease::status::{LeaseInfo, LeaseState, as_millis};
use crate::lease::supervisor::Supervisor;
use crate::lease::watch::Watch;

/// Who a draining fsck waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DrainProgress {
    /// The writers of the first look that are still there, with their state and age at the last look.
    pub waiting_for: Vec<LeaseInfo>,
    /// How many of them are stale or malformed: they will not leave by themselves.
    pub stale: usize,
    /// How many writers came after the fsck and had to withdraw.
    pub turned_away: usize,
    /// All writers have left, but a fenced transaction is still open.
    pub waiting_for_fences: bool,
    /// Time since the fsck lease was installed.
    #[serde(rename = "elapsed_ms", serialize_with = "as_millis")]
    pub elapsed: Duration,
    /// How long the drain may take.
    #[serde(rename = "budget_ms", serialize_with = "as_millis")]
    pub budget: Duration,
}

/// A drain that came to its end.
pub(crate) struct Drained {
    pub(crate) generation: i64,
    /// When the budget is spent.
    pub(crate) give_up: Moment,
}

/// What a drain remembers between looks.
struct Drain<P> {
    began: Moment,
    give_up: Moment,
    /// The writers of the first look, as they were seen last.
    first: BTreeMap<String, LeaseInfo>,
    watch: PulseWatch<P>,
    turned_away: BTreeSet<String>,
    /// Fence documents of others stand.
    fences: bool,
    /// How long the last look took.
    looked_for: Duration,
    pause: Duration,
    changes: Option<Changes>,
}

/// How long a drain that nobody tells of a departure looks at its first pace. It is one program, the writers that left
/// wait for its end, and most drains are over by then.
const EAGER: Duration = Duration::from_secs(30);
/// Its pauses are so many times as long as a look takes, at least.
const IDLE_SHARE: u32 = 4;

/// From how many writers on most looks only count them.
#[cfg(not(test))]
const CROWD: usize = 64;
#[cfg(test)]
const CROWD: usize = 2;

/// A writer that is waited for, as a report names it.
struct Listed {
    id: String,
    stale: bool,
}

/// One writer that has not left.
struct Left<'a, P> {
    record: &'a Record<P>,
    /// Not refreshing by the server's clock, or by ours.
    stale: bool,
    unmoved: Duration,
    judged_by: Duration,
}

impl<B: Backend> Supervisor<B> {
    /// Waits until no writer of the first look is left, nor a fence of anybody else.
    pub(crate) async fn drain(
        self: &Rc<Self>,
        attempt: &mut Attempt<B>,
        cell: &LeaseCell,
        request: &FsckRequest,
    ) -> Result<Drained> {
        let _counted = self.count_drain();
        let began = self.clock.now();
        let give_up = began + request.drain_budget;
        let (mut generation, mut look) = self.look(attempt, cell, give_up, Detail::Full).await?;
        let first = look.writers.iter().map(|record| (record.id.clone(), self.info(record))).collect();
        let (watch, pause) = (PulseWatch::new(), self.timing.poll_initial);
        let turned_away = BTreeSet::new();
        let looked_for = self.clock.now().since(began);
        let mut drain =
            Drain { began, give_up, first, watch, turned_away, fences: false, looked_for, pause, changes: None };
        loop {
            let replied = self.clock.now();
            self.note(&mut drain, &look, replied);
            let left = self.left(&drain, &look, replied);
            self.report(&drain, &listed(&left), request, replied);
            let sweep = look.foreign_fences && self.rules.hold(Rule::SweepFences);
            if left.is_empty() && !sweep {
                return Ok(Drained { generation, give_up });
            }
            if left.is_empty() {
                self.sweep(cell).await?;
            } else {
                self.deal_with_stale(&drain, &left, request).await?;
            }
            if self.clock.now() >= give_up {
                let writers = left.iter().filter_map(|left| drain.first.get(&left.record.id)).cloned().collect();
                let store = self.backend.store().clone();
                return Err(DrainTimeout { store, budget: request.drain_budget, writers }.into());
            }
            let listed = listed(&left);
            self.rest(&mut drain, give_up).await;
            self.count_down(attempt, cell, &mut drain, listed, request, replied).await?;
            let asked = self.clock.now();
            (generation, look) = self.look(attempt, cell, give_up, Detail::Lean).await?;
            drain.looked_for = self.clock.now().since(asked);
        }
    }

    /// Sleeps until the next look is due, or something has changed.
    async fn rest(&self, drain: &mut Drain<B::Pulse>, at_most: Moment) {
        self.nap(&mut drain.pause, &mut drain.changes, at_most).await;
        let told = self.watch == Watch::Never || drain.changes.as_ref().is_some_and(Changes::are_told);
        if !told && self.clock.now().since(drain.began) < EAGER {
            drain.pause = drain.pause.min((drain.looked_for * IDLE_SHARE).max(self.timing.poll_initial));
        }
    }

    /// While a crowd leaves, looks only who is still there: a look at all of their documents costs the server and us
    /// many times that. Ends when so few are left that a whole look is as cheap, or when one is due, for it alone shows
    /// who is stale; every verdict rests on one.
    async fn count_down(
        &self,
        attempt: &mut Attempt<B>,
        cell: &LeaseCell,
        drain: &mut Drain<B::Pulse>,
        mut listed: Vec<Listed>,
        request: &FsckRequest,
        looked: Moment,
    ) -> Result<()> {
        let due = (looked + self.timing.refresh_interval / 2).min(drain.give_up);
        while listed.len() >= CROWD && self.clock.now() < due {
            self.still_held(cell)?;
            let (lease, session) = attempt.parts();
            let asked = self.clock.now();
            match self.call(self.backend.writer_ids(session, &lease.key)).await {
                Ok(standing) => listed.retain(|writer| standing.contains(&writer.id)),
                // The whole look meets the same trouble, and deals with it.
                Err(_) => return Ok(()),
            }
            let replied = self.clock.now();
            drain.looked_for = replied.since(asked);
            self.report(drain, &listed, request, replied);
            if listed.len() >= CROWD {
                self.rest(drain, due).await;
            }
        }
        Ok(())
    }

    /// The generation by a new look, which also shows that the own document stands.
    pub(crate) async fn look_own(
        &self,
        attempt: &mut Attempt<B>,
        cell: &LeaseCell,
        give_up: Moment,
    ) -> Result<(i64, FsckLook<B::Pulse>)> {
        self.look(attempt, cell, give_up, Detail::Lean).await
    }

    async fn look(
        &self,
        attempt: &mut Attempt<B>,
        cell: &LeaseCell,
        give_up: Moment,
        detail: Detail,
    ) -> Result<(i64, FsckLook<B::Pulse>)> {
        let mut pause = self.timing.poll_initial;
        loop {
            self.still_held(cell)?;
            let (lease, session) = attempt.parts();
            match self.call(self.backend.look_fsck(session, &lease.key, detail)).await {
                Ok(look) => {
                    let owner = look.fsck.as_ref().and_then(|fsck| fsck.owner.as_ref());
                    if owner != Some(&cell.terms.key.owner) {
                        self.lose(cell, LossReason::Displaced);
                        self.still_held(cell)?;
                    }
                    let Some(generation) = look.generation else {
                        return Err(self.no_layout());
                    };
                    return Ok((generation, look));
                }
                Err(error) if error.is_transient() && self.clock.now() < give_up => {
                    tracing::debug!(store = %self.backend.store(), error = error.message, "drain look failed");
                    self.pause(&mut pause).await;
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    fn note(&self, drain: &mut Drain<B::Pulse>, look: &FsckLook<B::Pulse>, replied: Moment) {
        for record in &look.writers {
            match drain.first.get_mut(&record.id) {
                Some(info) => {
                    let seen = self.info(record);
                    info.state = seen.state;
                    info.heartbeat = seen.heartbeat;
                    info.age = seen.age;
                    info.clock_behind = seen.clock_behind;
                }
                None if drain.turned_away.contains(&record.id) => {}
                None => {
                    drain.turned_away.insert(record.id.clone());
                }
            }
        }
        drain.fences = look.foreign_fences;
        let first = &drain.first;
        drain.watch.observe(look.writers.iter().filter(|record| first.contains_key(&record.id)), replied);
    }

    /// The writers that are waited for.
    fn left<'a>(&self, drain: &Drain<B::Pulse>, look: &'a FsckLook<B::Pulse>, now: Moment) -> Vec<Left<'a, B::Pulse>> {
        let waited_for =
            |record: &&Record<B::Pulse>| drain.first.contains_key(&record.id) || !self.rules.hold(Rule::FirstLook);
        let left = look.writers.iter().filter(waited_for).map(|record| {
            let judged_by = self.judge(record);
            let unmoved = drain.watch.unmoved(&record.id, now);
            // Where the store knows who lives, nobody has to move.
            let stands_still = record.life == Life::Unknown && unmoved >= judged_by;
            let stale = stands_still || self.state_of(record) != LeaseState::Fresh;
            Left { record, stale, unmoved, judged_by }
        });
        left.collect()
    }

    /// Stale writers: without `force` they end the drain, with it the dead among them are removed.
    async fn deal_with_stale(
        &self,
        drain: &Drain<B::Pulse>,
        left: &[Left<'_, B::Pulse>],
        request: &FsckRequest,
    ) -> Result<()> {
        let (spared, to_take): (Vec<_>, Vec<_>) = left
            .iter()
            .filter(|left| left.stale)
            .partition(|left| !request.force || self.spares(left.record, request.peer_is_dead));
        for left in to_take {
            let enough = self.watch_length(left.judged_by, left.record);
            if left.unmoved >= enough
                && let Some(pulse) = drain.watch.pulse(&left.record.id)
                && let Err(error) = self.take(&left.record.id, pulse).await
                && !error.is_transient()
            {
                return Err(self.fail(error));
            }
        }
        // Nobody lives that could still leave, and each has had two of its intervals to show a sign of life.
        let nobody_lives = left.iter().all(|left| left.stale) && spared.len() == left.len();
        if nobody_lives
            && spared
                .iter()
                .all(|left| self.needs_no_watch(left.record) || left.unmoved >= self.interval_of(left.record) * 2)
        {
            let writers: Vec<LeaseInfo> =
                spared.iter().filter_map(|left| drain.first.get(&left.record.id)).cloned().collect();
            let store = self.backend.store();
            return Err(match request.force {
                false => Error::locked(store, Locked::StaleWriters { writers }),
                true => Error::locked(store, Locked::NotDead { leases: writers }),
            });
        }
        Ok(())
    }

    /// Deletes the fence documents of others, which waits for their open transactions. A call that fails is
    /// repeated by the drain, under its budget.
    async fn sweep(&self, cell: &LeaseCell) -> Result<()> {
        match self.call(self.backend.sweep_fences(&cell.terms.key)).await {
            Err(error) if !error.is_transient() => Err(self.fail(error)),
            _ => Ok(()),
        }
    }

    fn report(&self, drain: &Drain<B::Pulse>, listed: &[Listed], request: &FsckRequest, now: Moment) {
        let (elapsed, budget) = (now.since(drain.began), drain.give_up.since(drain.began));
        let stale = listed.iter().filter(|writer| writer.stale).count();
        let (waiting_for, turned_away) = (listed.len(), drain.turned_away.len());
        let seen = DrainMeasures { waiting_for, stale, turned_away, elapsed, budget };
        let news = self.counts.borrow_mut().drain(drain.began, seen);
        if news {
            self.tell(Event::Draining { waiting_for, stale, turned_away, elapsed, budget });
        }
        let Some(listener) = &request.progress else {
            return;
        };
        let progress = DrainProgress {
            waiting_for: listed.iter().filter_map(|writer| drain.first.get(&writer.id)).cloned().collect(),
            stale,
            turned_away,
            waiting_for_fences: listed.is_empty() && drain.fences,
            elapsed,
            budget,
        };
        // Nobody has to listen.
        let _ = listener.send(progress);
    }
}

fn listed<P>(left: &[Left<'_, P>]) -> Vec<Listed> {
    left.iter().map(|left| Listed { id: left.record.id.clone(), stale: left.stale }).collect()
}
