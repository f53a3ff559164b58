//! Which rows of the ledger are old enough to be forgotten.
//!
//! The rows have times of a wall clock, which can jump by years. So a row counts as old only if its time is a week back
//! *and* it cannot have been written in the last week of this owner's life, by a clock that never steps: for each hour
//! of that week the earliest time that was written in it is kept.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::clock::Moment;

const HOUR: Duration = Duration::from_secs(3600);
/// How long the ledger knows what became of a batch.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// When what was written, by both clocks.
#[derive(Debug)]
pub(super) struct Aging {
    begun: Moment,
    /// The beginning of each hour in which something was written, and the earliest time that it has.
    hours: VecDeque<(Moment, Timestamp)>,
    next: Moment,
}

impl Aging {
    pub(super) fn new(now: Moment) -> Aging {
        Aging { begun: now, hours: VecDeque::new(), next: now + KEPT }
    }

    /// Something of this time was written to the ledger.
    pub(super) fn wrote(&mut self, now: Moment, at: Timestamp) {
        match self.hours.back_mut() {
            Some((begun, earliest)) if now.since(*begun) < HOUR => *earliest = at.min(*earliest),
            _ => self.hours.push_back((now, at)),
        }
        while self.hours.front().is_some_and(|(begun, _)| now.since(*begun) > KEPT + HOUR) {
            self.hours.pop_front();
        }
    }

    /// Rows from before this time may be forgotten. `None`: not now.
    pub(super) fn due(&mut self, now: Moment, wall: Timestamp) -> Option<Timestamp> {
        if now < self.next || now.since(self.begun) < KEPT {
            return None;
        }
        self.next = now + HOUR;
        let week_ago = wall.checked_sub(SignedDuration::try_from(KEPT).ok()?).ok()?;
        let recent = self.hours.iter().filter(|(begun, _)| now.since(*begun) < KEPT + HOUR);
        recent.map(|(_, earliest)| *earliest).chain([week_ago]).min()
    }

    /// When rows may be forgotten next.
    pub(super) fn next(&self) -> Moment {
        self.next
    }

    /// It was not done: soon again.
    pub(super) fn again(&mut self, at: Moment) {
        self.next = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(days: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + days * 86_400).unwrap()
    }

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn nothing_is_forgotten_in_the_first_week_of_an_owner_whatever_the_wall_clock_says() {
        let mut aging = Aging::new(Moment::ORIGIN);
        assert_eq!(aging.due(Moment::ORIGIN + DAY * 6, wall(4000)), None);
        assert_eq!(aging.due(Moment::ORIGIN + DAY * 7, wall(7)), Some(wall(0)));
        assert_eq!(aging.due(Moment::ORIGIN + DAY * 7, wall(7)), None, "once an hour");
        assert!(aging.due(Moment::ORIGIN + DAY * 8, wall(8)).is_some());
    }

    #[test]
    fn a_clock_that_jumps_makes_nothing_old() {
        let mut aging = Aging::new(Moment::ORIGIN);
        let day = |days: u32| Moment::ORIGIN + DAY * days;
        aging.wrote(day(5), wall(5));
        aging.wrote(day(9), wall(9));
        // A year passes for the wall clock alone.
        assert_eq!(aging.due(day(10), wall(375)), Some(wall(5)));
        aging.wrote(day(10), wall(375));
        assert_eq!(aging.due(day(13), wall(378)), Some(wall(9)));
        // And back again.
        aging.wrote(day(14), wall(14));
        assert_eq!(aging.due(day(15), wall(380)), Some(wall(9)));
        assert_eq!(aging.due(day(17), wall(382)), Some(wall(14)));
        assert_eq!(aging.due(day(30), wall(30)), Some(wall(23)));
    }
}
