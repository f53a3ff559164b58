//! How an acquisition waits behind an fsck lease: jittered polls, at most the time it was given in all.

use std::time::Duration;

use crate::backend::{Backend, BackendError, Changes, Fault, Record};
use crate::clock::Moment;
use crate::error::{Error, Locked, Result};
use crate::lease::events::Event;
use crate::lease::status::{LeaseInfo, LeaseState};
use crate::lease::supervisor::Supervisor;

/// How much of the writers' turn is enough, where they poll at a usual pace.
const ENOUGH: Duration = Duration::from_secs(1);

/// An acquisition's patience.
pub(crate) struct Waiting {
    give_up: Moment,
    /// Trouble with the store is no contention: even an acquisition that does not wait gets over a short one.
    give_up_on_trouble: Moment,
    waits: bool,
    pause: Duration,
    told: Option<(Option<String>, LeaseState)>,
    changes: Option<Changes>,
    /// The writers have had their turn since the last fsck was seen.
    let_in: bool,
}

impl Waiting {
    pub(crate) fn new<B: Backend>(supervisor: &Supervisor<B>, wait: Duration) -> Waiting {
        let now = supervisor.clock.now();
        Waiting {
            give_up: now + wait,
            give_up_on_trouble: now + wait.max(supervisor.timing.refresh_interval),
            waits: !wait.is_zero(),
            pause: supervisor.timing.poll_initial,
            told: None,
            changes: None,
            let_in: false,
        }
    }

    /// Whether to look before each attempt: one that waits must not disturb an fsck by registering.
    pub(crate) fn looks_first(&self) -> bool {
        self.waits
    }

    /// Looks for an fsck in the way. `false` after a sleep behind one: look again.
    pub(crate) async fn way_is_free<B: Backend>(&mut self, supervisor: &Supervisor<B>) -> Result<bool> {
        match supervisor.call(supervisor.backend.peek()).await {
            Ok(None) => return Ok(true),
            Ok(Some(fsck)) => self.behind(supervisor, &fsck).await?,
            Err(error) => self.trouble(supervisor, error).await?,
        }
        Ok(false)
    }

    /// Whether the writers have had the turn that an exclusive phase leaves them. `false` after a sleep: look again.
    ///
    /// Without it, fscks that follow one another would keep every writer out. It lasts a second, or four of the longest
    /// pauses between polls if they are longer, and one refresh interval at most, whatever is stored; and it costs no acquisition its success: one whose patience ends with it goes ahead.
    pub(crate) async fn writers_had_their_turn<B: Backend>(&mut self, supervisor: &Supervisor<B>) -> Result<bool> {
        if self.let_in || self.is_over(supervisor) {
            return Ok(true);
        }
        match supervisor.call(supervisor.backend.turn()).await {
            Ok(left) => {
                self.let_in = true;
                // By then each writer that waits has looked several times.
                let enough = (supervisor.timing.poll_max * 4).max(ENOUGH).min(supervisor.timing.refresh_interval);
                let left = left.min(enough);
                if left.is_zero() {
                    return Ok(true);
                }
                supervisor.sleep_until((supervisor.clock.now() + left).min(self.give_up)).await;
                // Waiting for others has cost no patience with the store.
                let patience = supervisor.clock.now() + supervisor.timing.refresh_interval;
                self.give_up_on_trouble = self.give_up_on_trouble.max(patience);
            }
            Err(error) => self.trouble(supervisor, error).await?,
        }
        Ok(false)
    }

    /// An fsck lease is in the way: says so once, and sleeps, or gives up.
    pub(crate) async fn behind<B: Backend>(
        &mut self,
        supervisor: &Supervisor<B>,
        record: &Record<B::Pulse>,
    ) -> Result<()> {
        if supervisor.is_departing(record) {
            let error = BackendError::new(Fault::Busy, "an earlier lease of this process is still being given back");
            return self.trouble(supervisor, error).await;
        }
        self.let_in = false;
        let lease = supervisor.info(record);
        let seen = (lease.owner.clone(), lease.state);
        if supervisor.clock.now() >= self.give_up {
            return Err(held(supervisor, lease));
        }
        if self.told.as_ref() != Some(&seen) {
            self.told = Some(seen);
            supervisor.tell(Event::Waiting { behind: Box::new(lease) });
        }
        self.sleep(supervisor, self.give_up).await;
        Ok(())
    }

    /// A passing trouble: sleeps, or gives up.
    pub(crate) async fn trouble<B: Backend>(&mut self, supervisor: &Supervisor<B>, error: BackendError) -> Result<()> {
        if !error.is_transient() || supervisor.clock.now() >= self.give_up_on_trouble {
            return Err(supervisor.fail(error));
        }
        tracing::debug!(error = error.message, "trying again");
        self.sleep(supervisor, self.give_up_on_trouble).await;
        Ok(())
    }

    pub(crate) fn is_over<B: Backend>(&self, supervisor: &Supervisor<B>) -> bool {
        supervisor.clock.now() >= self.give_up
    }

    async fn sleep<B: Backend>(&mut self, supervisor: &Supervisor<B>, at_most: Moment) {
        supervisor.nap(&mut self.pause, &mut self.changes, at_most).await;
    }
}

/// The refusal that names the fsck lease in the way.
pub(crate) fn held<B: Backend>(supervisor: &Supervisor<B>, lease: LeaseInfo) -> Error {
    let stale = lease.state != LeaseState::Fresh;
    Error::locked(supervisor.backend.store(), Locked::FsckHeld { lease, stale })
}
