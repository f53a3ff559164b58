//! What a store in the process keeps.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use uuid::Uuid;

use crate::backend::{FSCK_ID, LeaseKey, Life, NewLease, Ours, Record};
use crate::lease::status::{HistoryEntry, Phase};

/// Everything the store keeps.
#[derive(Debug, Default, Clone)]
pub(crate) struct State {
    pub(crate) leases: BTreeMap<String, Doc>,
    pub(crate) generation: Option<i64>,
    /// Fence documents: their id, and the id and owner of the lease they belong to.
    pub(crate) fences: BTreeMap<String, LeaseKey>,
    /// Until when the writers' turn lasts, in milliseconds of server time.
    pub(super) turn: Option<i64>,
    pub(super) history: Vec<(Uuid, HistoryEntry)>,
    /// The last statement number of each session.
    pub(super) sessions: HashMap<u64, u64>,
    pub(super) next_session: u64,
    pub(super) shift_ms: i64,
    pub(super) cut_off: bool,
}

/// One lease document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Doc {
    pub(crate) owner: Option<String>,
    /// Server time in milliseconds.
    pub(crate) heartbeat: Option<i64>,
    pub(crate) beats: i64,
    /// `None` on a peer's.
    pub(crate) ours: Option<Ours>,
}

/// What moves when a holder lives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MemoryPulse(pub(super) Option<String>, Option<i64>, i64);

impl Doc {
    pub(super) fn pulse(&self) -> MemoryPulse {
        MemoryPulse(self.owner.clone(), self.heartbeat, self.beats)
    }

    pub(super) fn record(&self, id: &str, now: i64) -> Record<MemoryPulse> {
        Record {
            id: id.to_owned(),
            owner: self.owner.clone(),
            pulse: self.pulse(),
            heartbeat: self.heartbeat.map(timestamp),
            age_ms: self.heartbeat.map(|heartbeat| now - heartbeat),
            life: Life::Unknown,
            malformed: self.owner.is_none() || self.heartbeat.is_none(),
            ours: self.ours.clone(),
        }
    }

    pub(super) fn new(lease: &NewLease, phase: Option<Phase>, now: i64) -> Doc {
        Doc {
            owner: Some(lease.key.owner.clone()),
            heartbeat: Some(now),
            beats: 1,
            ours: Some(Ours {
                acquired: Some(timestamp(now)),
                refresh_interval: Some(lease.refresh_interval),
                stale_after: Some(lease.stale_after),
                phase,
                reason: lease.reason.clone(),
                holder: Some(lease.holder.clone()),
            }),
        }
    }

    pub(super) fn beat(&mut self, now: i64) {
        self.heartbeat = Some(now);
        self.beats += 1;
    }
}

pub(super) fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
impl State {
    /// Another server goes on with what it has; its clock is its own, and sessions know nothing of the lost one.
    pub(crate) fn fall_back_to(&mut self, then: State) {
        *self = State { shift_ms: self.shift_ms, cut_off: self.cut_off, next_session: self.next_session, ..then };
    }
}

impl State {
    pub(super) fn owned(&mut self, key: &LeaseKey) -> Option<&mut Doc> {
        self.leases.get_mut(&key.id).filter(|doc| doc.owner.as_ref() == Some(&key.owner))
    }

    pub(super) fn records(&self, now: i64) -> Vec<Record<MemoryPulse>> {
        self.leases.iter().map(|(id, doc)| doc.record(id, now)).collect()
    }

    pub(super) fn has_fences(&self, id: &str, owner: &str) -> bool {
        self.fences.values().any(|lease| is_of(lease, id, owner))
    }

    pub(super) fn delete_fences(&mut self, id: &str, owner: &str) {
        self.fences.retain(|_, lease| !is_of(lease, id, owner));
    }
}

/// Whether a fence belongs to a lease. All fsck leases have one id, so theirs belong to an owner too.
fn is_of(fenced: &LeaseKey, id: &str, owner: &str) -> bool {
    fenced.id == id && (id != FSCK_ID || fenced.owner == owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_fsck_takes_only_its_own_fences_with_it_and_a_writer_all_of_its_id() {
        let key = |id: &str, owner: &str| LeaseKey { id: id.to_owned(), owner: owner.to_owned() };
        let mut state = State::default();
        for (fence, lease) in [("a", key(FSCK_ID, "old")), ("b", key(FSCK_ID, "new")), ("c", key("lease/1", "x"))] {
            state.fences.insert(fence.to_owned(), lease);
        }
        assert!(state.has_fences(FSCK_ID, "old") && !state.has_fences(FSCK_ID, "other"));
        state.delete_fences(FSCK_ID, "old");
        assert_eq!(state.fences.keys().collect::<Vec<_>>(), ["b", "c"]);
        state.delete_fences("lease/1", "whoever replaced x");
        assert_eq!(state.fences.keys().collect::<Vec<_>>(), ["b"]);
    }
}
