//! Waiting for a store that cannot take anything: longer from time to time, visibly, and without an end. A batch never
//! fails for it.

use std::time::Duration;

use super::report::Paused;
use crate::clock::Moment;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// How long to wait after so many attempts that failed.
pub(super) fn backoff(attempts: u32) -> Duration {
    FIRST.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1))).min(LONGEST)
}

/// Whether ingestion is paused.
#[derive(Debug, Default)]
pub(super) struct Pause {
    standing: Option<Paused>,
    attempts: u32,
}

impl Pause {
    /// The pause, if it is not over yet.
    pub(super) fn at(&self, now: Moment) -> Option<&Paused> {
        self.standing.as_ref().filter(|paused| paused.until > now)
    }

    /// Begins a pause, or goes on with one.
    pub(super) fn begin(&mut self, now: Moment, why: String) -> &Paused {
        self.attempts = self.attempts.saturating_add(1);
        let since = self.standing.as_ref().map_or(now, |paused| paused.since);
        if self.attempts == 1 {
            tracing::warn!(why, "nothing is applied until the store can be written again");
        }
        self.standing.insert(Paused { why, since, until: now + backoff(self.attempts) })
    }

    /// The store took something.
    pub(super) fn end(&mut self) {
        if self.standing.take().is_some() {
            tracing::info!("the store can be written again");
        }
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_gets_longer_up_to_half_a_minute_and_never_ends_by_itself() {
        let (mut pause, mut now) = (Pause::default(), Moment::ORIGIN);
        let mut last = Duration::ZERO;
        for _ in 0..100 {
            let until = pause.begin(now, "full".to_owned()).until;
            assert!(until.since(now) >= last && until.since(now) <= LONGEST);
            assert!(pause.at(now).is_some() && pause.at(until).is_none());
            (last, now) = (until.since(now), until);
        }
        assert_eq!(last, LONGEST);
        assert_eq!(pause.begin(now, "full".to_owned()).since, Moment::ORIGIN);
        pause.end();
        assert_eq!(pause.begin(now, "full".to_owned()).until, now + FIRST);
    }
}
