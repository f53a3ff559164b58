//! How often a lease is refreshed, when it counts as stale, and how a drain polls.
//!
//! The numbers and their meanings are those of the Python library httk-store, so that both sides of a
//! shared store judge each other alike. Nothing here reads a clock.

use std::time::Duration;

use crate::error::{Error, Result};

/// The longest stale age that may be used on a collection shared with httk-store, whose every process
/// judges every lease by its own fixed eight seconds: a holder of ours that trusted a longer age would
/// still be writing while the peer already counts it as dead.
pub const PEER_STALE_AFTER: Duration = Duration::from_secs(8);

/// The bounds within which the stale age that a lease document names is believed.
pub(crate) const BELIEVABLE_STALE_AFTER: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

/// The timing of a lease. All durations are wall durations; validity is checked when a coordinator is built.
///
/// ```
/// use std::time::Duration;
/// use lockhouse::LeaseTiming;
///
/// let timing = LeaseTiming { refresh_interval: Duration::from_secs(1), ..LeaseTiming::default() };
/// assert_eq!(timing.stale_after(), Duration::from_secs(4));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTiming {
    /// The longest normal time between two heartbeats. Refreshes are sent every half of it.
    pub refresh_interval: Duration,
    /// After how many refresh intervals without a heartbeat a lease is stale. At least 3.
    pub stale_multiplier: u32,
    /// The first sleep of a poller (a drain, a waiter). Where the store tells nobody of what changes, as a standalone
    /// MongoDB does not, a drain keeps to it for its first 30 seconds, unless a look takes more than a quarter of it.
    pub poll_initial: Duration,
    /// The longest sleep of a poller.
    pub poll_max: Duration,
}

impl Default for LeaseTiming {
    /// 2 s × 4, polls from 20 ms to 250 ms: the numbers of httk-store.
    fn default() -> Self {
        LeaseTiming {
            refresh_interval: Duration::from_secs(2),
            stale_multiplier: 4,
            poll_initial: Duration::from_millis(20),
            poll_max: Duration::from_millis(250),
        }
    }
}

impl LeaseTiming {
    /// 5 s × 5: a lease with this timing outlives the crash of a replica set's primary.
    ///
    /// After such a crash the first confirmed refresh takes 10 to 11 s (the default election timeout is
    /// 10 s). With [`LeaseTiming::default`] the deadline is 6 s away, so every holder would stop.
    pub fn for_failover() -> Self {
        LeaseTiming { refresh_interval: Duration::from_secs(5), stale_multiplier: 5, ..LeaseTiming::default() }
    }

    /// The age from which a heartbeat is stale: `refresh_interval × stale_multiplier`.
    pub fn stale_after(&self) -> Duration {
        self.refresh_interval.saturating_mul(self.stale_multiplier)
    }

    /// How long a lease is valid from the instant before its last confirmed refresh was sent:
    /// one refresh interval less than the stale age, so that a holder has stopped before anybody may call
    /// its lease stale.
    pub fn valid_for(&self) -> Duration {
        self.stale_after().saturating_sub(self.refresh_interval)
    }

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// `Invalid`, naming the numbers: when one is zero, `stale_multiplier` is below 3, `poll_initial` is
    /// above `poll_max`, or the stale age is outside 1 s to 1 h (others would not believe it).
    pub fn validate(&self) -> Result<()> {
        let wrong = if self.refresh_interval.is_zero() {
            "the refresh interval is zero".to_owned()
        } else if self.poll_initial.is_zero() {
            "poll_initial is zero".to_owned()
        } else if self.stale_multiplier < 3 {
            format!(
                "the stale multiplier is {}; it must be 3 or more, so that two refreshes can fail before a holder has to stop",
                self.stale_multiplier
            )
        } else if self.poll_initial > self.poll_max {
            format!("poll_initial ({:?}) is longer than poll_max ({:?})", self.poll_initial, self.poll_max)
        } else if !BELIEVABLE_STALE_AFTER.contains(&self.stale_after()) {
            format!(
                "the stale age is {:?} ({:?} × {}); it must be between 1 s and 1 h",
                self.stale_after(),
                self.refresh_interval,
                self.stale_multiplier
            )
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!("bad lease timing: {wrong}")))
    }

    /// The time limit of one refresh call: half an interval, so that two attempts fit before the deadline
    /// even after the whole interval was spent waiting for the first.
    pub(crate) fn refresh_limit(&self) -> Duration {
        self.refresh_interval / 2
    }

    /// The time limit of every other call: below the refresh interval.
    pub(crate) fn call_limit(&self) -> Duration {
        self.refresh_interval * 3 / 4
    }

    /// The stale age by which a lease is judged: its own or the observer's, whichever is longer; the
    /// observer's when the lease names none that can be believed.
    pub(crate) fn judge(&self, own: Option<Duration>) -> Duration {
        own.filter(|own| BELIEVABLE_STALE_AFTER.contains(own))
            .map_or(self.stale_after(), |own| own.max(self.stale_after()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_peer() {
        let timing = LeaseTiming::default();
        assert_eq!(timing.stale_after(), PEER_STALE_AFTER);
        assert_eq!(timing.valid_for(), Duration::from_secs(6));
        assert_eq!(LeaseTiming::for_failover().stale_after(), Duration::from_secs(25));
    }

    #[test]
    fn bad_numbers_are_named() {
        let bad = |change: fn(&mut LeaseTiming)| {
            let mut timing = LeaseTiming::default();
            change(&mut timing);
            timing.validate().unwrap_err().to_string()
        };
        assert!(bad(|t| t.refresh_interval = Duration::ZERO).contains("refresh interval is zero"));
        assert!(bad(|t| t.stale_multiplier = 2).contains("is 2"));
        assert!(bad(|t| t.poll_initial = Duration::from_secs(1)).contains("250ms"));
        assert!(bad(|t| t.refresh_interval = Duration::from_secs(3600)).contains("1 h"));
        assert!(bad(|t| t.refresh_interval = Duration::MAX).contains("1 h"));
    }

    #[test]
    fn a_lease_is_judged_by_the_longer_age_and_an_unbelievable_one_is_ignored() {
        let timing = LeaseTiming::default();
        let secs = Duration::from_secs;
        assert_eq!(timing.judge(Some(secs(25))), secs(25));
        assert_eq!(timing.judge(Some(secs(2))), secs(8));
        assert_eq!(timing.judge(Some(secs(999_999))), secs(8));
        assert_eq!(timing.judge(None), secs(8));
    }
}
