//! The two watchers. The renewer refreshes every lease each half interval; the watchdog needs no store and
//! only watches deadlines.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use futures::StreamExt;

use crate::backend::{Answer, Backend, LeaseKey, REFRESH_CHUNK, RefreshLook};
use crate::clock::Moment;
use crate::error::{LossReason, Result};
use crate::lease::events::Event;
use crate::lease::rules::Rule;
use crate::lease::state::{Confirmation, LeaseCell, State};
use crate::lease::status::{LeaseKind, Phase};
use crate::lease::supervisor::Supervisor;
use crate::lease::watch::Arrivals;

/// How many refresh statements are under way at once: a server works on as many, and answers other clients in between.
const AT_ONCE: usize = 4;

/// How one round of refreshing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Every lease was confirmed or lost.
    Done,
    /// Some leases were found gone; the others were not confirmed by that and are due at once.
    Again,
    /// A call failed.
    Failed,
}

impl<B: Backend> Supervisor<B> {
    /// The renewer. Never ends.
    pub(crate) async fn renew_all(self: Rc<Self>) {
        let interval = self.timing.refresh_interval;
        let mut failed_pause = self.timing.poll_initial;
        let mut fruitless = 0;
        let mut arrivals = Arrivals::default();
        loop {
            let due = match self.first_due() {
                Some(due) => due,
                None => {
                    self.added.notified().await;
                    continue;
                }
            };
            tokio::select! {
                biased;
                () = self.sleep_until(due) => {}
                () = self.added.notified() => continue,
                // A busy store changes all the time: once in a while is soon enough.
                () = arrivals.next(&self) => self.sleep(self.timing.poll_initial).await,
            }
            // Everybody is refreshed in the same statement, so that a thousand leases cost one.
            let cells = self.living();
            match self.renew(&cells).await {
                Round::Done => {
                    failed_pause = self.timing.poll_initial;
                    fruitless = 0;
                }
                // Twice at once; then somebody removes leases as fast as we look, and we take a breath.
                Round::Again if fruitless < 2 => fruitless += 1,
                Round::Again | Round::Failed => {
                    let longest = interval / 8;
                    let pause = self.entropy.jitter(failed_pause.min(longest), 0.5);
                    failed_pause = (failed_pause * 2).min(longest);
                    self.sleep(pause).await;
                }
            }
        }
    }

    /// The watchdog. Never ends.
    pub(crate) async fn watch_deadlines(self: Rc<Self>) {
        loop {
            self.answer_measurers();
            let next = self
                .living()
                .iter()
                .filter(|cell| !matches!(cell.state(), State::Expired(_)) && !cell.terms.unlimited)
                .filter_map(|cell| cell.deadline())
                .min();
            match next {
                Some(deadline) => tokio::select! {
                    biased;
                    () = self.sleep_until(deadline) => {}
                    () = self.added_to_watch.notified() => continue,
                },
                None => {
                    self.added_to_watch.notified().await;
                    continue;
                }
            }
            for cell in self.living() {
                if let Some(why) = cell.expire() {
                    tracing::warn!(store = %cell.terms.store, lease = cell.terms.key.id, %why, "lease past its deadline");
                    self.tell(Event::Lost { id: cell.terms.key.id.clone(), kind: cell.terms.kind, why });
                }
            }
        }
    }

    /// `refresh_heartbeat` of one lease.
    pub(crate) async fn refresh_one(&self, key: &LeaseKey, force: bool) -> Result<()> {
        let Some(cell) = self.leases.borrow().get(key).map(|kept| kept.cell.clone()) else {
            return Err(crate::error::Error::internal(format!("the lease {} is no longer kept", key.id)));
        };
        let recently = self.clock.now().since(cell.last_sent()) < self.timing.refresh_interval / 2;
        if recently && !force {
            return cell.check().map_err(|why| cell.error(why));
        }
        let round = self.renew(std::slice::from_ref(&cell)).await;
        cell.check().map_err(|why| cell.error(why))?;
        match round {
            Round::Done => Ok(()),
            Round::Again | Round::Failed => Err(crate::error::Error::unavailable_at(
                self.backend.store(),
                format!(
                    "the heartbeat of {} was not confirmed; it is valid for another {}",
                    key.id,
                    crate::describe::duration(cell.remaining())
                ),
            )),
        }
    }

    /// When the next refresh is due: half an interval after the oldest confirmed one, a little earlier by
    /// chance so that a fleet does not march in step. At once for a lease past its deadline.
    fn first_due(&self) -> Option<Moment> {
        let half = self.timing.refresh_interval / 2;
        let oldest = self.living().iter().map(|cell| cell.last_sent()).min()?;
        Some(oldest + self.entropy.jitter(half, 0.9))
    }

    /// Whether a gate of this process holds a lease.
    pub(crate) fn has_open_gates(&self) -> bool {
        self.leases.borrow().values().any(|kept| kept.cell.terms.gated)
    }

    /// The leases that are still refreshed.
    fn living(&self) -> Vec<Arc<LeaseCell>> {
        let over = |cell: &LeaseCell| matches!(cell.state(), State::Lost(_) | State::Released);
        self.leases.borrow().values().map(|kept| &kept.cell).filter(|cell| !over(cell)).cloned().collect()
    }

    /// One round: refresh, then look for an fsck and another generation.
    async fn renew(&self, cells: &[Arc<LeaseCell>]) -> Round {
        let mut round = Round::Done;
        let mut matched = Vec::new();
        let turn = self.fencing.turn.lock().await;
        let refreshed: Vec<_> = futures::stream::iter(cells.chunks(REFRESH_CHUNK))
            .map(|chunk| self.refresh_chunk(chunk))
            .buffered(AT_ONCE)
            .collect()
            .await;
        drop(turn);
        for (chunk, keys, sent, refreshed) in refreshed {
            match refreshed {
                Ok(count) if count == keys.len() as u64 => {
                    for cell in chunk {
                        if self.confirmed(cell, sent) == Standing::NeedsLook {
                            matched.push((cell.clone(), sent));
                        }
                    }
                }
                Ok(_) => round = round.max(self.find_displaced(chunk, &keys, sent).await),
                Err(error) => {
                    tracing::debug!(store = %self.backend.store(), error = error.message, "refresh failed");
                    self.doubt(chunk);
                    round = Round::Failed;
                    if !self.rules.hold(Rule::OnlyMatched) {
                        self.find_displaced(chunk, &keys, sent).await;
                    }
                }
            }
        }
        match self.call_for(self.timing.refresh_limit(), self.backend.refresh_look()).await {
            Ok(look) => self.conclude(cells, &matched, &look),
            Err(error) => {
                tracing::debug!(store = %self.backend.store(), error = error.message, "look after a refresh failed");
                if !matched.is_empty() {
                    round = Round::Failed;
                }
            }
        }
        round
    }

    /// Refreshes some leases in one statement, with a stamp of its own.
    async fn refresh_chunk<'a>(
        &self,
        chunk: &'a [Arc<LeaseCell>],
    ) -> (&'a [Arc<LeaseCell>], Vec<LeaseKey>, Moment, Answer<u64>) {
        let keys: Vec<LeaseKey> = chunk.iter().map(|cell| cell.terms.key.clone()).collect();
        let sent = self.clock.now();
        let refreshed = self.call_for(self.timing.refresh_limit(), self.backend.refresh(&keys)).await;
        self.counts.borrow_mut().heartbeat(self.clock.now().since(sent), refreshed.is_ok());
        (chunk, keys, sent, refreshed)
    }

    /// A refresh of this lease matched. In time, that is all it needs; past its deadline it has to be looked
    /// at first.
    fn confirmed(&self, cell: &LeaseCell, sent: Moment) -> Standing {
        let in_time = !cell.remaining().is_zero() && !matches!(cell.state(), State::Expired(_));
        let writer = cell.terms.kind == LeaseKind::Writer;
        if !in_time && writer && self.rules.hold(Rule::Revalidate) {
            return Standing::NeedsLook;
        }
        self.confirm(cell, sent);
        Standing::Valid
    }

    fn confirm(&self, cell: &LeaseCell, sent: Moment) {
        if cell.confirm(sent) == Confirmation::Recovered {
            // The watchdog has given up on a lease past its deadline: it has one again.
            self.added_to_watch.notify_one();
            tracing::info!(store = %cell.terms.store, lease = cell.terms.key.id, "lease confirmed again");
            self.tell(Event::Recovered { id: cell.terms.key.id.clone(), kind: cell.terms.kind });
        }
    }

    /// Fewer leases were matched than sent: those that are gone are lost. Those that stand were probably
    /// refreshed, but a read is no renewal: they take part in the next round.
    async fn find_displaced(&self, chunk: &[Arc<LeaseCell>], keys: &[LeaseKey], sent: Moment) -> Round {
        match self.call_for(self.timing.refresh_limit(), self.backend.standing(keys)).await {
            Ok(standing) => {
                let standing: BTreeSet<LeaseKey> = standing.into_iter().collect();
                for cell in chunk {
                    if !standing.contains(&cell.terms.key) {
                        self.lose(cell, LossReason::Displaced);
                    } else if !self.rules.hold(Rule::OnlyMatched) {
                        self.confirm(cell, sent);
                    }
                }
                Round::Again
            }
            Err(_) => {
                self.doubt(chunk);
                Round::Failed
            }
        }
    }

    fn doubt(&self, cells: &[Arc<LeaseCell>]) {
        for cell in cells {
            if cell.doubt() {
                self.tell(Event::Doubtful { id: cell.terms.key.id.clone(), kind: cell.terms.kind });
            }
        }
    }

    /// What the look after a refresh means for each lease.
    fn conclude(&self, cells: &[Arc<LeaseCell>], matched: &[(Arc<LeaseCell>, Moment)], look: &RefreshLook) {
        self.fsck_in_the_way.send_replace(look.fsck.is_some());
        for cell in cells {
            let own_generation = cell.generation();
            let why = match (cell.terms.kind, &look.fsck) {
                (LeaseKind::Writer, Some((_, Some(Phase::Exclusive)))) => Some(LossReason::Displaced),
                (LeaseKind::Fsck, fsck) if !owned(fsck.as_ref(), &cell.terms.key) => Some(LossReason::Displaced),
                // An fsck that drains has no generation yet, and its own grant raises it under its feet.
                (LeaseKind::Fsck, _) => None,
                (LeaseKind::Writer, _) if look.generation != Some(own_generation) => Some(LossReason::Generation),
                (LeaseKind::Writer, _) => None,
            };
            if let Some(why) = why {
                self.lose(cell, why);
            }
        }
        for (cell, sent) in matched {
            // The handshake again: the own document stands, for a refresh matched it; now nobody may have
            // come in between.
            match look.fsck {
                Some(_) => self.lose(cell, LossReason::Displaced),
                None => self.confirm(cell, *sent),
            }
        }
    }
}

fn owned(fsck: Option<&(Option<String>, Option<Phase>)>, key: &LeaseKey) -> bool {
    fsck.is_some_and(|(owner, _)| owner.as_deref() == Some(key.owner.as_str()))
}

/// What a matched refresh means for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Valid,
    NeedsLook,
}

impl Round {
    fn max(self, other: Round) -> Round {
        match (self, other) {
            (Round::Failed, _) | (_, Round::Failed) => Round::Failed,
            (Round::Again, _) | (_, Round::Again) => Round::Again,
            (Round::Done, Round::Done) => Round::Done,
        }
    }
}
