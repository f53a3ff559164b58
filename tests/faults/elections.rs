//! Primaries that step down or die in every phase of a lease, and majorities that cannot be had: no holder
//! loses a lease that can be kept, none is granted twice, and none is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use lockhouse::{Coordinator, ErrorKind, Event, LeaseTiming};

use mongodb::bson::doc;

use crate::common::{BOUND, PATIENT, collection, leases, soon, until_none};
use crate::support::database::TestDatabase;
use crate::support::mongod::Options;
use crate::support::poll::eventually;
use crate::support::replica_set::ReplicaSet;

/// Outlives an election of two seconds.
const TIMING: LeaseTiming = LeaseTiming {
    refresh_interval: Duration::from_secs(3),
    stale_multiplier: 5,
    poll_initial: Duration::from_millis(20),
    poll_max: Duration::from_millis(250),
};

async fn connect(database: &TestDatabase, timing: LeaseTiming) -> Coordinator {
    eventually(BOUND, "to connect", || Coordinator::builder(&database.uri()).unwrap().timing(timing).connect()).await
}

/// The primary steps down and lets the others go first, for no longer than the next step-down needs.
async fn step_down(set: &ReplicaSet) {
    eventually(BOUND, "the primary to step down", || async {
        let admin = set.member(set.primary().await).client().await.database("admin");
        admin.run_command(doc! { "replSetStepDown": 3, "secondaryCatchUpPeriodSecs": 2 }).await
    })
    .await;
}

/// What has happened by now.
fn so_far(events: &mut BoxStream<'static, Event>) -> Vec<Event> {
    use futures::FutureExt;
    std::iter::from_fn(|| events.next().now_or_never().flatten()).collect()
}

#[tokio::test]
async fn a_primary_may_step_down_in_every_phase() {
    let set = ReplicaSet::start(3).await;
    let database = set.database();
    let (holder, admin) = (connect(&database, TIMING).await, connect(&database, TIMING).await);
    holder.init().await.unwrap();
    let collection = collection(&database).await;
    let mut events = holder.events();

    // A held writer.
    let writer = soon(holder.acquire_writer().wait(BOUND)).await.unwrap();
    step_down(&set).await;
    set.primary().await;
    eventually(BOUND, "a refresh by the new primary", || writer.refresh_heartbeat(true)).await;
    writer.check().unwrap();

    // An fsck that drains it.
    let mut request = admin.acquire_fsck().drain_budget(Duration::from_secs(60));
    let mut progress = request.progress();
    let draining = tokio::spawn(request.into_future());
    soon(progress.next()).await.unwrap();
    step_down(&set).await;
    soon(writer.release()).await.unwrap();
    let fsck = soon(draining).await.unwrap().unwrap();
    set.primary().await;
    assert_eq!(fsck.generation(), 1);
    let standing = leases(&collection).await;
    assert_eq!(standing.len(), 1, "{standing:?}");
    assert_eq!(standing[0].get_str("owner").unwrap(), fsck.owner());

    // One that is alone.
    step_down(&set).await;
    set.primary().await;
    eventually(BOUND, "a refresh by the new primary", || fsck.refresh_heartbeat(true)).await;
    fsck.check().unwrap();
    fsck.release().await.unwrap();

    // Acquired and released while it happens.
    let stepping = async {
        step_down(&set).await;
        set.primary().await;
    };
    let cycles = async {
        let end = Instant::now() + Duration::from_secs(4);
        let mut cycles = 0;
        while Instant::now() < end {
            let writer = holder.acquire_writer().wait(BOUND).await.unwrap();
            writer.check().unwrap();
            writer.release().await.unwrap();
            cycles += 1;
        }
        cycles
    };
    let ((), cycles) = soon(async { tokio::join!(stepping, cycles) }).await;
    assert!(cycles > 5, "only {cycles} leases");
    until_none(&collection).await;
    let lost: Vec<Event> =
        so_far(&mut events).into_iter().filter(|event| matches!(event, Event::Lost { .. })).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// With everything as it comes: the server's own election timeout of ten seconds, and the timing that a
/// coordinator takes by itself on a replica set.
#[tokio::test]
async fn the_crash_of_a_primary_costs_nobody_his_lease() {
    let mut set = ReplicaSet::start_with(3, Options::replica_set()).await;
    let database = set.database();
    let holder = Coordinator::connect(&database.uri()).await.unwrap();
    assert_eq!(holder.timing(), LeaseTiming::for_failover());
    holder.init().await.unwrap();
    let writer = holder.acquire_writer().await.unwrap();
    let mut events = holder.events();
    let killed = set.kill_primary().await;
    let start = Instant::now();
    let successor = async { set.primary().await };
    let watching = async {
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            writer.check().unwrap();
            let over = matches!(event, Event::Recovered { .. });
            seen.push(event);
            if over {
                break;
            }
        }
        (seen, start.elapsed())
    };
    let (successor, (seen, took)) =
        tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(successor, watching) })
            .await
            .expect("a successor and a refresh by it");
    assert_ne!(successor, killed);
    assert!(matches!(seen[..], [Event::Doubtful { .. }, Event::Recovered { .. }]), "{seen:?}");
    assert!(took < holder.timing().valid_for(), "confirmed only after {took:?}");
    writer.release().await.unwrap();
    let fsck = holder.acquire_fsck().await.unwrap();
    assert_eq!(fsck.generation(), 1);
    fsck.release().await.unwrap();
    until_none(&collection(&database).await).await;
}

/// How many leases are in hand now, and how many were.
#[derive(Default)]
struct Inside {
    writers: AtomicUsize,
    fscks: AtomicUsize,
    granted: AtomicUsize,
    over: AtomicBool,
}

impl Inside {
    async fn write(&self, coordinator: Coordinator) {
        while !self.over.load(SeqCst) {
            // A lease that could not be had for an election, however long it took, is no fault.
            let Ok(lease) = coordinator.acquire_writer().wait(BOUND).await else { continue };
            self.writers.fetch_add(1, SeqCst);
            assert!(self.fscks.load(SeqCst) == 0 || lease.check().is_err(), "a writer beside an fsck");
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.writers.fetch_sub(1, SeqCst);
            self.granted.fetch_add(1, SeqCst);
            // Unconfirmed it goes on by itself.
            let _ = lease.release().await;
        }
        coordinator.shutdown().await;
    }

    async fn fsck(&self, coordinator: Coordinator) {
        while !self.over.load(SeqCst) {
            let request = coordinator.acquire_fsck().wait(BOUND).drain_budget(BOUND);
            let Ok(fsck) = request.await else { continue };
            assert_eq!(self.fscks.fetch_add(1, SeqCst), 0, "two fscks");
            assert!(self.writers.load(SeqCst) == 0 || fsck.check().is_err(), "an fsck beside a writer");
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.fscks.fetch_sub(1, SeqCst);
            let _ = fsck.release().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        coordinator.shutdown().await;
    }
}

/// `LOCKHOUSE_TEST_STEP_DOWNS=200` for a long run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn primaries_that_step_down_again_and_again_leave_no_lease_and_no_overlap() {
    let step_downs = std::env::var("LOCKHOUSE_TEST_STEP_DOWNS").map_or(8, |count| count.parse().unwrap());
    let set = ReplicaSet::start(3).await;
    let database = set.database();
    connect(&database, TIMING).await.init().await.unwrap();
    let inside = Arc::new(Inside::default());
    let mut tasks = Vec::new();
    for number in 0..4 {
        let (inside, coordinator) = (inside.clone(), connect(&database, TIMING).await);
        tasks.push(tokio::spawn(async move {
            match number {
                0 => inside.fsck(coordinator).await,
                _ => inside.write(coordinator).await,
            }
        }));
    }
    for number in 0..step_downs {
        let before = inside.granted.load(SeqCst);
        step_down(&set).await;
        set.primary().await;
        eventually(BOUND, "leases under the next primary", || async {
            let granted = inside.granted.load(SeqCst) - before;
            if granted > 3 { Ok(()) } else { Err((number, granted)) }
        })
        .await;
    }
    inside.over.store(true, SeqCst);
    for task in futures::future::join_all(tasks).await {
        task.unwrap();
    }
    // Every coordinator has given everything back.
    assert_eq!(leases(&collection(&database).await).await, []);
}

/// Secondaries that answer, and no longer copy what the primary writes.
async fn stop_replication(set: &ReplicaSet, primary: usize, stop: bool) {
    for member in (0..3).filter(|member| *member != primary) {
        let admin = set.member(member).client().await.database("admin");
        let mode = if stop { "alwaysOn" } else { "off" };
        admin.run_command(doc! { "configureFailPoint": "stopReplProducer", "mode": mode }).await.unwrap();
    }
}

#[tokio::test]
async fn without_a_majority_nothing_is_granted_and_nothing_stays() {
    let set = ReplicaSet::start(3).await;
    let database = set.database();
    let coordinator = connect(&database, PATIENT).await;
    coordinator.init().await.unwrap();
    // The store is checked once, before the first verb that writes.
    coordinator.acquire_writer().await.unwrap().release().await.unwrap();
    let collection = collection(&database).await;
    let primary = set.primary().await;
    stop_replication(&set, primary, true).await;
    eventually(BOUND, "a majority to be out of reach", || async {
        let concern = doc! { "w": "majority", "wtimeout": 300 };
        let write = doc! { "insert": "things", "documents": [{}], "writeConcern": concern };
        let reply = collection.client().database(database.name()).run_command(write).await.unwrap();
        if reply.contains_key("writeConcernError") { Ok(()) } else { Err(reply) }
    })
    .await;
    for kind in ["writer", "fsck"] {
        let start = Instant::now();
        let refusal = match kind {
            "writer" => coordinator.acquire_writer().await.map(drop),
            _ => coordinator.acquire_fsck().await.map(drop),
        };
        let elapsed = start.elapsed();
        assert_eq!(refusal.unwrap_err().kind(), ErrorKind::Unavailable, "{kind}");
        assert!(elapsed < PATIENT.stale_after(), "the {kind} was refused only after {elapsed:?}");
    }
    assert_eq!(set.primary().await, primary, "it was to be the same primary all the time");
    stop_replication(&set, primary, false).await;
    until_none(&collection).await;
    soon(coordinator.acquire_fsck().wait(BOUND)).await.unwrap().release().await.unwrap();
    coordinator.shutdown().await;
    assert_eq!(leases(&collection).await, []);
}
