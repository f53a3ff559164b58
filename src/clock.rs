//! The only place that reads a clock.
//!
//! A lease's deadline is measured on a clock that counts the time the machine slept (`CLOCK_BOOTTIME` on
//! Linux); Rust's `Instant` does not, and a laptop that slept for an hour would believe in its leases.
//! Server time never comes from here: only a store's own clock judges age.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;

/// A point in time on one [`Clock`], as the time since that clock's origin. Moments of two clocks have
/// nothing to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The origin of the clock.
    pub const ORIGIN: Moment = Moment(Duration::ZERO);

    /// The time that passed from `earlier` to `self`; zero if `earlier` is the later one.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn from_nanos(nanos: u64) -> Moment {
        Moment(Duration::from_nanos(nanos))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_sub(duration))
    }
}

/// What tells a coordinator the time and lets it sleep.
///
/// Programs use [`SystemClock`]; tests that must not depend on real time use [`ManualClock`].
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Time that never steps back and counts the machine's sleep.
    fn now(&self) -> Moment;

    /// Time that never steps back and stands still while the machine sleeps. Only its difference to
    /// [`Clock::now`] is used, to tell a suspended machine from a slow network.
    fn awake(&self) -> Moment;

    /// Completes once [`Clock::now`] has reached `moment`. Dropping the future forgets it.
    fn sleep_until(&self, moment: Moment) -> BoxFuture<'static, ()>;
}

/// The machine's wall clock, to be shown to people. It can be anything: nothing decides by it.
#[cfg(any(feature = "local", feature = "service"))]
#[expect(clippy::disallowed_methods, reason = "the one home of clocks")]
pub(crate) fn wall() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// The machine's clock. Its sleeps need a tokio runtime with time.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// How long a sleep trusts tokio's timer, which stands still while the machine sleeps, before it looks at
/// the clock again: what a suspended machine's deadline may be noticed late by a watcher.
const LONGEST_NAP: Duration = Duration::from_millis(250);

fn read(clock: rustix::time::ClockId) -> Moment {
    let time = rustix::time::clock_gettime(clock);
    let secs = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Moment(Duration::new(secs, nanos))
}

impl Clock for SystemClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        read(rustix::time::ClockId::Boottime)
    }

    /// On macOS the monotonic clock counts sleep.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn now(&self) -> Moment {
        read(rustix::time::ClockId::Monotonic)
    }

    fn awake(&self) -> Moment {
        read(rustix::time::ClockId::Monotonic)
    }

    fn sleep_until(&self, moment: Moment) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let left = moment.since(SystemClock.now());
                if left.is_zero() {
                    return;
                }
                #[expect(clippy::disallowed_methods, reason = "the one home of sleeping")]
                tokio::time::sleep(left.min(LONGEST_NAP)).await;
            }
        })
    }
}

/// A clock that stands still until a test moves it.
///
/// ```
/// use std::time::Duration;
/// use lockhouse::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let start = clock.now();
/// clock.advance(Duration::from_secs(5));
/// clock.suspend(Duration::from_secs(3600));
/// assert_eq!(clock.now().since(start), Duration::from_secs(3605));
/// assert_eq!(clock.awake().since(start), Duration::from_secs(5));
/// ```
#[derive(Clone, Default)]
pub struct ManualClock(Arc<Mutex<Manual>>);

#[derive(Default)]
struct Manual {
    now: Duration,
    asleep: Duration,
    tickets: u64,
    sleepers: BTreeMap<Bed, Waker>,
}

/// When a sleeper wants to be woken, and its ticket: two may want the same moment.
type Bed = (Duration, u64);

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.lock().now).finish()
    }
}

impl ManualClock {
    /// A clock at its origin.
    pub fn new() -> Self {
        ManualClock::default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Manual> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets time pass and wakes whoever slept until then.
    pub fn advance(&self, by: Duration) {
        let to = self.lock().now.saturating_add(by);
        self.advance_to(Moment(to));
    }

    /// Lets time pass until `moment`; nothing happens if that is in the past.
    pub fn advance_to(&self, moment: Moment) {
        let due = {
            let mut manual = self.lock();
            manual.now = manual.now.max(moment.0);
            let now = manual.now;
            let later = manual.sleepers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut manual.sleepers, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    /// Lets the machine sleep: [`Clock::now`] jumps, [`Clock::awake`] does not.
    pub fn suspend(&self, by: Duration) {
        self.lock().asleep += by;
        self.advance(by);
    }

    /// When the next sleeper wants to be woken.
    pub fn next_wake(&self) -> Option<Moment> {
        self.lock().sleepers.keys().next().map(|(until, _)| Moment(*until))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.lock().now)
    }

    fn awake(&self) -> Moment {
        let manual = self.lock();
        Moment(manual.now - manual.asleep)
    }

    fn sleep_until(&self, moment: Moment) -> BoxFuture<'static, ()> {
        let sleep = ManualSleep { clock: self.clone(), until: moment.0, bed: None };
        Box::pin(sleep)
    }
}

struct ManualSleep {
    clock: ManualClock,
    until: Duration,
    bed: Option<Bed>,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut manual = clock.lock();
        if manual.now >= self.until {
            return Poll::Ready(());
        }
        let bed = self.bed.unwrap_or_else(|| {
            manual.tickets += 1;
            (self.until, manual.tickets)
        });
        self.bed = Some(bed);
        manual.sleepers.insert(bed, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        if let Some(bed) = &self.bed {
            self.clock.lock().sleepers.remove(bed);
        }
    }
}

/// Runs `future` for at most `limit`; `None` if it was not done by then (it is dropped).
pub(crate) async fn within<T>(clock: &dyn Clock, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let limit = clock.sleep_until(clock.now() + limit);
    tokio::select! {
        biased;
        value = future => Some(value),
        () = limit => None,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_manual_sleeper_wakes_at_its_moment_and_not_before() {
        let clock = ManualClock::new();
        let mut sleep = clock.sleep_until(clock.now() + Duration::from_secs(2));
        assert!((&mut sleep).now_or_never().is_none());
        clock.advance(Duration::from_millis(1999));
        assert!((&mut sleep).now_or_never().is_none());
        clock.advance(Duration::from_millis(1));
        assert!((&mut sleep).now_or_never().is_some());
    }

    #[test]
    fn the_machines_clocks_run_forward() {
        let (now, awake) = (SystemClock.now(), SystemClock.awake());
        assert!(now > Moment::ORIGIN && awake > Moment::ORIGIN);
        assert!(SystemClock.now() >= now && SystemClock.awake() >= awake);
    }
}
