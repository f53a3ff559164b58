//! What may be done to the dead. A lease is dead when one observer saw the same pulse from the reply of one
//! look to the sending of its delete, for the lease's own stale age, on the observer's own clock: no clock
//! step, fail-over or skew can make a living lease look so, for its holder has stopped by then.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use crate::backend::{Access, Answer, Backend, FSCK_ID, Life, Record};
use crate::error::{Error, Locked, Result};
use crate::lease::command::ClearRequest;
use crate::lease::events::Event;
use crate::lease::pulse::PulseWatch;
use crate::lease::rules::Rule;
use crate::lease::status::{LeaseInfo, LeaseState};
use crate::lease::supervisor::Supervisor;

/// What a clearing verb did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cleared {
    /// The leases that were removed, or with a dry run those that would be watched and then removed.
    pub cleared: Vec<LeaseInfo>,
    /// The leases that looked dead and were spared: they moved while they were watched, or they are a
    /// peer's.
    pub spared: Vec<LeaseInfo>,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// How the watch of one lease ended.
pub(crate) enum Watched<P> {
    Dead(P),
    Moved(Box<Record<P>>),
    Gone,
}

/// Which leases a verb is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Fsck,
    Writers,
}

impl<B: Backend> Supervisor<B> {
    pub(crate) async fn clear(self: &Rc<Self>, request: &ClearRequest) -> Result<Cleared> {
        self.take_dead(Scope::Fsck, request).await
    }

    pub(crate) async fn prune(self: &Rc<Self>, request: &ClearRequest) -> Result<Cleared> {
        self.take_dead(Scope::Writers, request).await
    }

    async fn take_dead(self: &Rc<Self>, scope: Scope, request: &ClearRequest) -> Result<Cleared> {
        if !request.dry_run {
            self.ready(Access::Remove, Duration::ZERO).await?;
        }
        let named = |record: &Record<B::Pulse>| {
            request.ids.contains(&record.id) || record.owner.as_ref().is_some_and(|owner| request.ids.contains(owner))
        };
        let in_scope = |record: &Record<B::Pulse>| match (request.ids.is_empty(), scope) {
            (false, _) => named(record),
            (true, Scope::Fsck) => record.id == FSCK_ID,
            (true, Scope::Writers) => record.id != FSCK_ID,
        };
        // A single fsck lease is asked for by name, so a refusal has to say why.
        let asked_for = !request.ids.is_empty() || scope == Scope::Fsck;

        let mut records: Vec<Record<B::Pulse>> = self.look_at_leases().await?.into_iter().filter(in_scope).collect();
        let mut replied = self.clock.now();
        let mut result = Cleared { dry_run: request.dry_run, ..Cleared::default() };
        let mut suspects: BTreeMap<String, LeaseInfo> = BTreeMap::new();
        for record in &records {
            let info = self.info(record);
            if info.state == LeaseState::Fresh && !info.clock_behind {
                if asked_for && record.id == FSCK_ID {
                    return Err(Error::locked(self.backend.store(), Locked::FsckFresh { lease: info }));
                }
                if asked_for {
                    result.spared.push(info);
                }
            } else if self.spares(record, request.peer_is_dead) {
                result.spared.push(info);
            } else {
                suspects.insert(record.id.clone(), info);
            }
        }
        if request.dry_run {
            result.cleared = suspects.into_values().collect();
            return Ok(result);
        }
        if !suspects.is_empty() {
            let at_most = records.iter().filter(|r| suspects.contains_key(&r.id)).map(|r| self.judge(r)).max();
            // Those that the store knows to be dead need no watching.
            let watched = suspects
                .iter()
                .filter(|(id, _)| records.iter().any(|record| record.id == **id && !self.needs_no_watch(record)));
            let leases: Vec<LeaseInfo> = watched.map(|(_, info)| info.clone()).collect();
            if !leases.is_empty() {
                self.tell(Event::Watching { leases, at_most: at_most.unwrap_or_default() });
            }
        }
        let mut watch = PulseWatch::new();
        let mut unanswered: BTreeSet<String> = BTreeSet::new();
        while !suspects.is_empty() {
            for (id, info) in std::mem::take(&mut suspects) {
                let Some(record) = records.iter().find(|record| record.id == id) else {
                    if unanswered.contains(&id) {
                        result.cleared.push(info);
                    }
                    continue;
                };
                let moved = watch.pulse(&id).is_some_and(|pulse| *pulse != record.pulse);
                watch.observe([record], replied);
                if moved {
                    let info = self.info(record);
                    if asked_for || info.peer {
                        result.spared.push(info);
                    }
                    continue;
                }
                let enough = self.watch_length(self.judge(record), record);
                if watch.unmoved(&id, self.clock.now()) < enough {
                    suspects.insert(id, info);
                    continue;
                }
                match self.take(&id, &record.pulse).await {
                    Ok(true) => {
                        self.chronicle(if scope == Scope::Fsck { "cleared" } else { "pruned" }, &id, None);
                        result.cleared.push(info);
                    }
                    // It moved or went at the last moment, or the answer was lost: the next look tells.
                    Ok(false) => drop(suspects.insert(id, info)),
                    Err(error) if error.is_transient() => {
                        unanswered.insert(id.clone());
                        suspects.insert(id, info);
                    }
                    Err(error) => return Err(self.fail(error)),
                }
            }
            if suspects.is_empty() {
                break;
            }
            let longest_nap = self.timing.refresh_interval / 2;
            let due = records
                .iter()
                .filter(|record| suspects.contains_key(&record.id))
                .map(|record| {
                    self.watch_length(self.judge(record), record)
                        .saturating_sub(watch.unmoved(&record.id, self.clock.now()))
                })
                .min();
            let nap =
                due.unwrap_or_default().clamp(self.timing.poll_initial, longest_nap.max(self.timing.poll_initial));
            self.sleep(nap).await;
            records = self.look_at_leases().await?.into_iter().filter(in_scope).collect();
            replied = self.clock.now();
        }
        if !result.spared.is_empty() && result.cleared.is_empty() {
            return Err(Error::locked(self.backend.store(), Locked::NotDead { leases: result.spared }));
        }
        Ok(result)
    }

    /// Watches the fsck lease until it is dead, moves or goes.
    pub(crate) async fn watch_fsck(&self, fsck: &Record<B::Pulse>) -> Result<Watched<B::Pulse>> {
        let replied = self.clock.now();
        let mut watch = PulseWatch::new();
        watch.observe([fsck], replied);
        let enough = self.watch_length(self.judge(fsck), fsck);
        self.tell(Event::Watching { leases: vec![self.info(fsck)], at_most: enough });
        loop {
            let left = enough.saturating_sub(watch.unmoved(&fsck.id, self.clock.now()));
            if left.is_zero() {
                return Ok(Watched::Dead(fsck.pulse.clone()));
            }
            self.sleep(left.min(self.timing.refresh_interval / 2)).await;
            let seen = self.retry(self.timing.stale_after(), async || self.backend.peek().await).await?;
            match seen {
                None => return Ok(Watched::Gone),
                Some(seen) if seen.pulse != fsck.pulse => return Ok(Watched::Moved(Box::new(seen))),
                Some(_) => {}
            }
        }
    }

    /// Removes a lease that was watched, on condition of exactly the pulse that was watched.
    pub(crate) async fn take(&self, id: &str, pulse: &B::Pulse) -> Answer<bool> {
        if self.rules.hold(Rule::ExactPulse) {
            return self.call(self.backend.remove(id, pulse)).await;
        }
        // Without the rule: whatever pulse it has now.
        let look = self.call(self.backend.look()).await?;
        match look.leases.iter().find(|record| record.id == id) {
            Some(record) => self.call(self.backend.remove(id, &record.pulse)).await,
            None => Ok(false),
        }
    }

    /// How long a lease has to be watched before it is dead.
    pub(crate) fn watch_length(&self, judged_by: Duration, record: &Record<B::Pulse>) -> Duration {
        if self.needs_no_watch(record) {
            return Duration::ZERO;
        }
        if self.rules.hold(Rule::WholeWatch) { judged_by } else { self.interval_of(record) * 2 }
    }

    /// Whether the store itself knows that nobody who could show a sign of life is behind a lease.
    pub(crate) fn needs_no_watch(&self, record: &Record<B::Pulse>) -> bool {
        record.life == Life::Dead || (record.malformed && self.backend.traits().knows_the_living)
    }

    /// Whether a lease that looks dead is spared because it is a peer's, which may live without refreshing.
    pub(crate) fn spares(&self, record: &Record<B::Pulse>, peer_is_dead: bool) -> bool {
        let peer = record.ours.is_none() && !record.malformed && record.life == Life::Unknown;
        peer && !peer_is_dead && self.rules.hold(Rule::SparePeers)
    }

    async fn look_at_leases(&self) -> Result<Vec<Record<B::Pulse>>> {
        let look = self.retry(self.timing.stale_after(), async || self.backend.look().await).await?;
        Ok(look.leases)
    }
}
