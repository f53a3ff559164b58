//! Primaries that step down or die in every phase of a lease: no holder loses it, and none is left behind.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use lockhouse::{Coordinator, Event, LeaseTiming};

use mongodb::bson::doc;

use crate::common::{BOUND, collection, leases, soon, until_none};
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
