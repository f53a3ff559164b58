//! Following an owner, and becoming the next.
//!
//! A follower keeps a `watch` connection, which the kernel closes the moment the owner is gone. The lock may be freed
//! a moment later, so it is tried every millisecond then, and every 100 ms at all other times: the connection only
//! makes it quick. An owner that gives the store back ends the connection right before it unlocks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::candidate::Candidate;
use super::control::watch_store;
use super::lock::OwnerLock;
use crate::backend::local::path::StorePath;
use crate::clock::{Clock, Moment, SystemClock};
use crate::entropy::Entropy;
use crate::error::{Error, Result};

/// How often the lock is tried.
const POLL: Duration = Duration::from_millis(100);
/// How often it is tried right after an owner's end, and for how long.
const HASTE: Duration = Duration::from_millis(1);
const HASTE_LASTS: Duration = Duration::from_millis(100);
/// How long a candidate rests whose promotion failed, at first and at most.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// The shortest rest, as a share of the whole one: candidates that failed together come back apart.
const JITTER: f64 = 0.5;

/// A follower of a store's owner.
#[derive(Debug)]
pub struct Takeover {
    candidate: Candidate,
    clock: Arc<dyn Clock>,
    rest: Duration,
    not_before: Option<Moment>,
    gone: watch::Sender<u64>,
    /// The instance of the owner whose end was told last: one that drains is told of twice.
    last: Option<String>,
}

impl Takeover {
    /// Follows the owner of the store at `path`.
    ///
    /// # Errors
    ///
    /// As [`Candidate::new`].
    pub fn new(path: impl AsRef<Path>, build: impl Into<String>) -> Result<Takeover> {
        Ok(Takeover::of(Candidate::new(path, build)?))
    }

    /// Follows with this candidate.
    pub fn of(candidate: Candidate) -> Takeover {
        Takeover {
            candidate,
            clock: Arc::new(SystemClock),
            rest: Duration::ZERO,
            not_before: None,
            gone: watch::Sender::new(0),
            last: None,
        }
    }

    /// The candidate.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// How many owners were seen to go. The receiver is told the moment one is gone or drains, before anybody has the
    /// lock; only while [`Takeover::elected`] is awaited.
    pub fn owners_gone(&self) -> watch::Receiver<u64> {
        self.gone.subscribe()
    }

    /// Completes when this process is the owner. After [`Takeover::failed`] it rests first.
    ///
    /// # Errors
    ///
    /// As [`Candidate::elect`], but for `Unavailable`, which is waited out.
    ///
    /// # Cancellation
    ///
    /// May be dropped at any time, and called again: nothing is held before it completes.
    pub async fn elected(&mut self) -> Result<OwnerLock> {
        if let Some(rested) = self.not_before.take() {
            // Taken back if nobody waits to the end.
            self.not_before = Some(rested);
            self.clock.sleep_until(rested).await;
            self.not_before = None;
        }
        let mut end = Box::pin(owner_ends(&self.candidate.store, &*self.clock));
        let mut haste_until = Moment::ORIGIN;
        loop {
            match self.candidate.elect() {
                Ok(Some(owner)) => return Ok(owner),
                Ok(None) => {}
                Err(Error::Unavailable(error)) => tracing::debug!(%error, "the lock cannot be tried now"),
                Err(error) => return Err(error),
            }
            let now = self.clock.now();
            let pause = if now < haste_until { HASTE } else { POLL };
            tokio::select! {
                biased;
                instance = &mut end => {
                    if self.last.as_ref() != Some(&instance) {
                        self.last = Some(instance);
                        self.gone.send_modify(|gone| *gone += 1);
                    }
                    haste_until = self.clock.now() + HASTE_LASTS;
                    end.set(owner_ends(&self.candidate.store, &*self.clock));
                }
                () = self.clock.sleep_until(now + pause) => {}
            }
        }
    }

    /// The promotion failed: the lock has been given back, and the next try rests first, from one second, with some
    /// chance, doubling up to thirty.
    pub fn failed(&mut self) {
        self.rest = (self.rest * 2).clamp(REST, LONGEST_REST);
        self.not_before = Some(self.clock.now() + Entropy::system().jitter(self.rest, JITTER));
    }

    /// The promotion succeeded: the next rest is a short one again.
    pub fn succeeded(&mut self) {
        self.rest = Duration::ZERO;
        self.not_before = None;
    }
}

/// Completes with its instance when an owner that could be watched ends. Tries to watch over and over.
async fn owner_ends(store: &StorePath, clock: &dyn Clock) -> String {
    loop {
        match watch_store(store).await {
            Ok(mut watch) => {
                watch.ended().await;
                return watch.state().instance.clone();
            }
            Err(error) => tracing::trace!(%error, "the owner cannot be watched"),
        }
        clock.sleep_until(clock.now() + POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_that_fails_rests_longer_and_longer() {
        let directory = tempfile::tempdir().unwrap();
        let mut takeover = Takeover::new(directory.path().join("p"), "b").unwrap();
        for whole in [1, 2, 4, 8, 16, 30, 30] {
            let before = takeover.clock.now();
            takeover.failed();
            let rest = takeover.not_before.unwrap().since(before);
            let whole = Duration::from_secs(whole);
            assert!(rest >= whole.mul_f64(JITTER) && rest <= whole + Duration::from_secs(1), "{rest:?} of {whole:?}");
        }
        takeover.succeeded();
        assert!(takeover.not_before.is_none());
        takeover.failed();
        assert_eq!(takeover.rest, REST);
    }
}
