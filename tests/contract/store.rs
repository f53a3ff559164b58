//! A store of each kind, and the few things that a test does to one from outside.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use lockhouse::clock::{Clock, Moment, SystemClock};
use lockhouse::{Coordinator, CoordinatorBuilder, Error, Lease, LeaseTiming, Locked, LossReason, MemoryStore, Status};
use tokio::sync::watch;

#[cfg(feature = "mongo")]
use crate::support::database::{self, TestDatabase};
use crate::support::poll::eventually;
#[cfg(feature = "mongo")]
use crate::support::proxy::Proxy;

/// Short, and long enough for a machine that is busy with other tests.
pub(crate) const TIMING: LeaseTiming = LeaseTiming {
    refresh_interval: Duration::from_secs(1),
    stale_multiplier: 3,
    poll_initial: Duration::from_millis(5),
    poll_max: Duration::from_millis(50),
};

/// For what should happen at once, on a machine that is busy with other tests.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

pub(crate) struct Store(Kind);

enum Kind {
    Memory(MemoryStore),
    #[cfg(feature = "local")]
    Local(tempfile::TempDir),
    #[cfg(feature = "mongo")]
    Mongo(TestDatabase),
}

impl Store {
    #[cfg(feature = "local")]
    pub(crate) fn local() -> Store {
        Store(Kind::Local(tempfile::tempdir().unwrap()))
    }

    pub(crate) fn memory() -> Store {
        Store(Kind::Memory(MemoryStore::new()))
    }

    #[cfg(feature = "mongo")]
    pub(crate) fn replica_set() -> Store {
        Store(Kind::Mongo(database::database()))
    }

    #[cfg(feature = "mongo")]
    pub(crate) fn standalone() -> Store {
        Store(Kind::Mongo(database::standalone_database()))
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.0, Kind::Memory(_))
    }

    pub(crate) fn builder(&self) -> CoordinatorBuilder {
        match &self.0 {
            Kind::Memory(store) => Coordinator::on_memory(store),
            #[cfg(feature = "local")]
            Kind::Local(directory) => Coordinator::builder(directory.path().join("store").to_str().unwrap()).unwrap(),
            #[cfg(feature = "mongo")]
            Kind::Mongo(database) => Coordinator::builder(&database.uri()).unwrap(),
        }
        .timing(TIMING)
    }

    /// A coordinator of its own, as another process would have it.
    pub(crate) async fn connect(&self, label: &str) -> Coordinator {
        self.builder().label(label).connect().await.unwrap()
    }

    /// The same on a store that was made usable.
    pub(crate) async fn first(&self, label: &str) -> Coordinator {
        let first = self.connect(label).await;
        first.init().await.unwrap();
        first
    }

    /// A process that can be stopped as by SIGSTOP.
    pub(crate) async fn stoppable(&self, label: &str) -> (Coordinator, StoppableClock) {
        let clock = StoppableClock(Arc::new(watch::Sender::new(false)));
        let coordinator = self.builder().label(label).clock(clock.clone()).connect().await.unwrap();
        (coordinator, clock)
    }

    /// A writer whose process has died: its lease stands and no longer moves.
    pub(crate) async fn dead_writer(&self, label: &str) -> String {
        let (coordinator, clock) = self.stoppable(label).await;
        let lease = coordinator.acquire_writer().await.unwrap();
        clock.stop();
        let id = lease.identifier().to_owned();
        // Never dropped: a process that is killed releases nothing.
        std::mem::forget((lease, coordinator));
        id
    }

    /// An fsck whose process has died.
    pub(crate) async fn dead_fsck(&self, label: &str) {
        let (coordinator, clock) = self.stoppable(label).await;
        let lease = coordinator.acquire_fsck().await.unwrap();
        clock.stop();
        std::mem::forget((lease, coordinator));
    }

    /// A process whose way to the store can be cut.
    pub(crate) async fn severable(&self, label: &str) -> (Coordinator, Wire) {
        let (builder, wire) = match &self.0 {
            Kind::Memory(store) => (Coordinator::on_memory(store), Wire::Memory(store.clone())),
            #[cfg(feature = "local")]
            Kind::Local(_) => unreachable!("nothing lies between a process and its kernel"),
            #[cfg(feature = "mongo")]
            Kind::Mongo(database) => {
                let proxy = database.proxy();
                (Coordinator::builder(&database.uri_through(&proxy)).unwrap(), Wire::Mongo(proxy))
            }
        };
        (builder.timing(TIMING).label(label).connect().await.unwrap(), wire)
    }
}

/// The way of one process to the store. On the memory backend it is everybody's.
pub(crate) enum Wire {
    Memory(MemoryStore),
    #[cfg(feature = "mongo")]
    Mongo(Proxy),
}

impl Wire {
    pub(crate) fn cut(&self) {
        match self {
            Wire::Memory(store) => store.set_reachable(false),
            #[cfg(feature = "mongo")]
            Wire::Mongo(proxy) => proxy.cut(),
        }
    }

    pub(crate) fn mend(&self) {
        match self {
            Wire::Memory(store) => store.set_reachable(true),
            #[cfg(feature = "mongo")]
            Wire::Mongo(proxy) => proxy.pass(),
        }
    }
}

/// The machine's clock, whose sleepers can be kept asleep: who has such a clock does nothing while it is
/// stopped, like a process after SIGSTOP.
#[derive(Clone, Debug)]
pub(crate) struct StoppableClock(Arc<watch::Sender<bool>>);

impl StoppableClock {
    pub(crate) fn stop(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn go_on(&self) {
        self.0.send_replace(false);
    }
}

impl Clock for StoppableClock {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn awake(&self) -> Moment {
        SystemClock.awake()
    }

    fn sleep_until(&self, moment: Moment) -> BoxFuture<'static, ()> {
        let mut stopped = self.0.subscribe();
        Box::pin(async move {
            SystemClock.sleep_until(moment).await;
            let _ = stopped.wait_for(|stopped| !stopped).await;
        })
    }
}

/// Waits until a look at the store satisfies the condition.
pub(crate) async fn until(coordinator: &Coordinator, what: &str, is: impl Fn(&Status) -> bool) -> Status {
    eventually(BOUND, what, || async {
        let status = coordinator.status().await.map_err(|error| error.to_string())?;
        if is(&status) { Ok(status) } else { Err(format!("{status:?}")) }
    })
    .await
}

/// Waits until nobody holds anything.
pub(crate) async fn until_free(coordinator: &Coordinator) {
    until(coordinator, "the store to be free", |status| status.fsck.is_none() && status.writers.is_empty()).await;
}

/// Waits until a lease looks stale.
pub(crate) async fn until_stale(coordinator: &Coordinator, count: usize) {
    until(coordinator, "leases to look stale", |status| status.needing_a_person().count() == count).await;
}

/// Waits until a lease is lost for good, whatever its deadline did before.
pub(crate) async fn finally_lost(lease: &Lease) -> LossReason {
    eventually(BOUND, "the lease to be lost for good", || async {
        match lease.check() {
            Err(Error::LeaseLost(lost)) if lost.why != LossReason::Deadline => Ok(lost.why),
            other => Err(other),
        }
    })
    .await
}

/// Waits until a lease is valid.
pub(crate) async fn until_valid(lease: &Lease) {
    eventually(BOUND, "the lease to be valid", || async { lease.check() }).await;
}

/// A confirmed refresh, on a machine that may be too busy for one at once.
pub(crate) async fn beat(lease: &Lease) {
    eventually(BOUND, "a refresh to be confirmed", || lease.refresh_heartbeat(true)).await;
}

#[track_caller]
pub(crate) fn locked(error: Error) -> Locked {
    match error {
        Error::StoreLocked(locked) => locked.cause,
        other => panic!("not StoreLocked: {other:?}"),
    }
}

/// Ends the test when something takes longer than everything here should.
pub(crate) async fn soon<T>(what: impl IntoFuture<Output = T>) -> T {
    let start = Instant::now();
    tokio::time::timeout(BOUND, what.into_future())
        .await
        .unwrap_or_else(|_| panic!("not done after {:?}", start.elapsed()))
}
