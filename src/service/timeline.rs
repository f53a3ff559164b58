//! The last hour in ten-second slots: the worst that the store was in, and how many wrote.

use std::collections::VecDeque;
use std::time::Duration;

use super::watch::Seen;
use crate::StoreState;

/// How long a slot is.
pub(crate) const SLOT: Duration = Duration::from_secs(10);
/// How many slots an hour has.
pub(crate) const SLOTS: usize = 360;

/// What a store was in, the worst last: a slot shows its worst, so that a short drain is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    Open,
    Draining,
    Exclusive,
    Blocked,
    Away,
}

/// Ten seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// `None` if nobody looked.
    pub(crate) mark: Option<Mark>,
    /// The most writers at a time.
    pub(crate) writers: usize,
    /// The most of them that were stale or malformed.
    pub(crate) stuck: usize,
}

impl Slot {
    const UNSEEN: Slot = Slot { mark: None, writers: 0, stuck: 0 };
}

/// The slots of the last hour, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    slots: VecDeque<Slot>,
    /// The number of the slot after the last one.
    next: u64,
}

impl Timeline {
    /// Takes down what is known, so long after the watching began.
    pub(crate) fn note(&mut self, since_began: Duration, seen: &Seen) {
        let number = since_began.as_secs() / SLOT.as_secs();
        // After a long silence only the last hour is worth a slot.
        let missing = (number + 1).saturating_sub(self.next);
        for _ in 0..missing.min(SLOTS as u64) {
            if self.slots.len() == SLOTS {
                self.slots.pop_front();
            }
            self.slots.push_back(Slot::UNSEEN);
        }
        self.next = self.next.max(number + 1);
        let Some(slot) = self.slots.back_mut() else { return };
        slot.mark = slot.mark.max(mark(seen));
        if let Some(look) = seen.look.as_ref().filter(|_| seen.trouble.is_none()) {
            slot.writers = slot.writers.max(look.status.writers.len());
            slot.stuck = slot.stuck.max(look.writers.stale + look.writers.malformed);
        }
    }

    pub(crate) fn slots(&self) -> impl DoubleEndedIterator<Item = &Slot> + ExactSizeIterator {
        self.slots.iter()
    }
}

/// What the store is in, as far as is known.
pub(crate) fn mark(seen: &Seen) -> Option<Mark> {
    if seen.trouble.is_some() {
        return Some(Mark::Away);
    }
    seen.look.as_ref().map(|look| match look.status.state {
        StoreState::Open => Mark::Open,
        StoreState::Draining => Mark::Draining,
        StoreState::Exclusive => Mark::Exclusive,
        StoreState::Blocked => Mark::Blocked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::service::watch::Trouble;

    fn away() -> Seen {
        let trouble = Trouble { message: "gone".to_owned(), since: Moment::ORIGIN };
        Seen { trouble: Some(trouble), ..Seen::default() }
    }

    fn marks(timeline: &Timeline) -> Vec<Option<Mark>> {
        timeline.slots().map(|slot| slot.mark).collect()
    }

    #[test]
    fn a_slot_shows_its_worst_and_a_gap_is_a_gap() {
        let mut timeline = Timeline::default();
        let secs = Duration::from_secs;
        timeline.note(secs(3), &Seen::default());
        assert_eq!(marks(&timeline), [None]);
        timeline.note(secs(9), &away());
        timeline.note(secs(9), &Seen::default());
        assert_eq!(marks(&timeline), [Some(Mark::Away)]);
        timeline.note(secs(31), &away());
        assert_eq!(marks(&timeline), [Some(Mark::Away), None, None, Some(Mark::Away)]);
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut timeline = Timeline::default();
        for slot in 0..2 * SLOTS as u64 {
            timeline.note(SLOT * u32::try_from(slot).unwrap(), &away());
        }
        assert_eq!(timeline.slots().len(), SLOTS);
        timeline.note(Duration::from_secs(1 << 40), &away());
        assert_eq!(timeline.slots().len(), SLOTS);
        assert_eq!(timeline.slots().filter(|slot| slot.mark.is_some()).count(), 1);
    }
}
