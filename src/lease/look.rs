//! Looking: how a lease document is judged and shown.

use std::time::Duration;

use crate::backend::{Access, Backend, Init, Life, Record};
use crate::error::Result;
use crate::lease::status::{HistoryEntry, LeaseInfo, LeaseKind, LeaseState, Phase, Status, StoreState};
use crate::lease::supervisor::Supervisor;
use crate::timing::PEER_STALE_AFTER;

/// The version of the JSON form of everything.
const SCHEMA: u32 = 1;

impl<B: Backend> Supervisor<B> {
    pub(crate) async fn init(&self) -> Result<Init> {
        self.ready(Access::Init, Duration::ZERO).await?;
        self.retry(self.timing.refresh_interval, async || self.backend.init().await).await
    }

    pub(crate) async fn history(&self) -> Result<Vec<HistoryEntry>> {
        self.retry(self.timing.refresh_interval, async || self.backend.history().await).await
    }

    pub(crate) async fn status(&self) -> Result<Status> {
        let look = self.retry(self.timing.refresh_interval, async || self.backend.look().await).await?;
        // The files of holders that the kernel knows to be gone are in nobody's way.
        let leases = look.leases.iter().filter(|record| record.life != Life::Dead).map(|record| self.info(record));
        let (fsck, mut writers): (Vec<_>, Vec<_>) = leases.partition(|lease| lease.kind == LeaseKind::Fsck);
        writers.sort_by(|a, b| b.age.cmp(&a.age).then_with(|| a.id.cmp(&b.id)));
        let fsck = fsck.into_iter().next();
        Ok(Status {
            schema: SCHEMA,
            store: self.backend.store().clone(),
            store_bytes: self.backend.store().bytes_if_not_text(),
            backend: self.backend.traits().name,
            now: look.now,
            generation: look.generation,
            state: store_state(fsck.as_ref(), &writers),
            fsck,
            writers,
            owner: None,
            spool: None,
        })
    }

    /// The stale age by which a lease is judged.
    pub(crate) fn judge(&self, record: &Record<B::Pulse>) -> Duration {
        let own = match &record.ours {
            Some(ours) => ours.stale_after,
            None => Some(PEER_STALE_AFTER),
        };
        self.timing.judge(own)
    }

    /// The refresh interval of a lease, as far as it can be believed.
    pub(crate) fn interval_of(&self, record: &Record<B::Pulse>) -> Duration {
        let own = record.ours.as_ref().and_then(|ours| ours.refresh_interval);
        own.map_or(self.timing.refresh_interval, |own| own.min(self.judge(record)))
    }

    pub(crate) fn state_of(&self, record: &Record<B::Pulse>) -> LeaseState {
        match record.age_ms {
            _ if record.malformed => LeaseState::Malformed,
            _ if matches!(record.life, Life::Lives | Life::Inherited) => LeaseState::Fresh,
            _ if record.life == Life::Dead => LeaseState::Stale,
            Some(age) if age_of(age) < self.judge(record) => LeaseState::Fresh,
            Some(_) => LeaseState::Stale,
            None => LeaseState::Malformed,
        }
    }

    pub(crate) fn info(&self, record: &Record<B::Pulse>) -> LeaseInfo {
        let ours = record.ours.clone();
        // Where the store knows who lives, ages mean nothing and there are no peers.
        let by_age = record.life == Life::Unknown;
        let peer = ours.is_none() && !record.malformed && by_age;
        let ours = ours.unwrap_or_default();
        LeaseInfo {
            id: record.id.clone(),
            kind: record.kind(),
            owner: record.owner.clone(),
            state: self.state_of(record),
            acquired: ours.acquired,
            heartbeat: record.heartbeat,
            age: record.age_ms.map(age_of),
            refresh_interval: ours.refresh_interval,
            stale_after: by_age.then(|| self.judge(record)),
            clock_behind: record.age_ms.is_some_and(|age| age < 0),
            phase: ours.phase,
            reason: ours.reason,
            peer,
            inherited: record.life == Life::Inherited,
            holder: ours.holder,
        }
    }
}

fn age_of(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

fn store_state(fsck: Option<&LeaseInfo>, writers: &[LeaseInfo]) -> StoreState {
    match fsck {
        None => StoreState::Open,
        Some(fsck) if fsck.state != LeaseState::Fresh => StoreState::Blocked,
        Some(fsck) => match fsck.phase {
            Some(Phase::Exclusive) => StoreState::Exclusive,
            Some(Phase::Draining) => StoreState::Draining,
            // A peer does not say: it has the store alone once no writer is left.
            None if writers.is_empty() => StoreState::Exclusive,
            None => StoreState::Draining,
        },
    }
}
