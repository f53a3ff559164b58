//! How long before the deadline a command gets TERM and KILL.
//!
//! A lease that is refreshed every half refresh interval R and is valid for m − 1 intervals (m ≥ 3) has between
//! m − 1 and m − 1.5 of them left while all is well. The time for TERM has to lie below that, with room for refreshes that
//! fail and are tried again, and as much as possible has to be left for the command to end by itself.

use std::time::Duration;

/// The most that a command gets between TERM and KILL, before a deadline or after a loss. Longer would help few
/// commands, and end a command with a long lease well before its time.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// The most that is kept for dying: a process with much memory or many files takes some of it.
const DYING: Duration = Duration::from_millis(500);

/// When to act, counted back from the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leads {
    /// TERM when no more than this is left.
    pub(super) term: Duration,
    /// KILL when no more than this is left.
    pub(super) kill: Duration,
}

impl Leads {
    /// The leads for a lease that is valid for `window` after a refresh.
    ///
    /// TERM comes with a third of it left: for the shortest lease (2 R) that is 1⅓ R after the last refresh, when two
    /// have failed, never while refreshes arrive. KILL comes with a twelfth of it left.
    pub(super) fn of(window: Duration) -> Leads {
        Leads { term: (window / 3).min(GRACE), kill: (window / 12).min(DYING) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_six_seconds_leaves_one_and_a_half_to_end() {
        let leads = Leads::of(Duration::from_secs(6));
        assert_eq!(leads, Leads { term: Duration::from_secs(2), kill: Duration::from_millis(500) });
    }

    #[test]
    fn a_refreshed_lease_is_never_near_enough_for_term() {
        for multiplier in 3..50_u32 {
            let interval = Duration::from_secs(2);
            let leads = Leads::of(interval * (multiplier - 1));
            let least_left = interval * (multiplier - 1) - interval / 2;
            assert!(leads.term < least_left, "multiplier {multiplier}: {leads:?}");
            assert!(leads.kill < leads.term);
        }
    }

    #[test]
    fn a_long_lease_is_used_until_its_end() {
        let leads = Leads::of(Duration::from_secs(600));
        assert_eq!(leads, Leads { term: GRACE, kill: DYING });
    }
}
