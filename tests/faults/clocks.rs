//! The server's clock, an hour forward and an hour back: nobody who lives is called dead, and the dead are
//! still found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockhouse::{Coordinator, ErrorKind, LeaseTiming};

use crate::common::{BOUND, collection, dead_writer, leases};
use crate::support::mongod::{Mongod, Options};
use crate::support::poll::eventually;

/// A server under a shifted clock is a slow one.
const TIMING: LeaseTiming = LeaseTiming {
    refresh_interval: Duration::from_secs(2),
    stale_multiplier: 3,
    poll_initial: Duration::from_millis(20),
    poll_max: Duration::from_millis(100),
};

async fn connect(uri: &str, label: &str) -> Coordinator {
    let builder = || Coordinator::builder(uri).unwrap().timing(TIMING).label(label);
    eventually(BOUND, "to connect", || builder().connect()).await
}

async fn first(uri: &str, label: &str) -> Coordinator {
    let coordinator = connect(uri, label).await;
    eventually(BOUND, "the layout to be made", || coordinator.init()).await;
    coordinator
}

/// Clears in a loop, in one of the ways in which a script might.
async fn script(coordinator: Coordinator, way: usize, over: Arc<AtomicBool>) -> usize {
    let mut runs = 0;
    while !over.load(Ordering::SeqCst) {
        let outcome = match way {
            0 => coordinator.prune_stale_writers().await.map(|pruned| pruned.cleared.len()),
            1 => coordinator.clear_stale_lock().await.map(|cleared| cleared.cleared.len()),
            _ => {
                let budget = TIMING.stale_after() * 3 / 2;
                coordinator.acquire_fsck().force(true).drain_budget(budget).await.map(|_| usize::MAX)
            }
        };
        match outcome {
            Ok(taken) => assert_eq!(taken, 0, "somebody living was taken for dead, way {way}"),
            Err(error) => {
                let fair =
                    [ErrorKind::StoreLocked, ErrorKind::DrainTimeout, ErrorKind::Unavailable, ErrorKind::LeaseLost];
                assert!(fair.contains(&error.kind()), "way {way}: {error:?}");
            }
        }
        runs += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    runs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_makes_nobody_dead() {
    let server = Mongod::start(Options { faketime: true, ..Options::replica_set() }).await;
    // Two stores: in one writers live, in the other an fsck.
    let (shared, alone) = (server.database(), server.database());
    let writers = first(&shared.uri(), "writers").await;
    let fscks = first(&alone.uri(), "fsck").await;
    let writer = writers.acquire_writer().wait(BOUND).await.unwrap();
    let fsck = fscks.acquire_fsck().wait(BOUND).await.unwrap();
    let proxy = shared.proxy();
    let cut_off = connect(&shared.uri_through(&proxy), "cut off").await;
    let flaky = cut_off.acquire_writer().wait(BOUND).await.unwrap();

    let over = Arc::new(AtomicBool::new(false));
    let mut scripts = Vec::new();
    for (database, way) in [(&shared, 0), (&shared, 2), (&alone, 1), (&alone, 2)] {
        let coordinator = connect(&database.uri(), "script").await;
        scripts.push(tokio::spawn(script(coordinator, way, over.clone())));
    }
    let lost = Arc::new(AtomicUsize::new(0));
    for hour in [1, -1, 0] {
        // The link goes just before the step, so that the last heartbeat is of another time; it comes back
        // before the deadline.
        proxy.cut();
        server.clock().shift_seconds(hour * 3600);
        let end = std::time::Instant::now() + TIMING.stale_after() * 3 / 2;
        let mend_at = std::time::Instant::now() + TIMING.refresh_interval / 2;
        while std::time::Instant::now() < end {
            if std::time::Instant::now() > mend_at {
                proxy.pass();
            }
            lost.fetch_add(usize::from(writer.check().is_err() || fsck.check().is_err()), Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let there = leases(&collection(&shared).await).await;
        for lease in [&writer, &flaky] {
            let id = lease.identifier();
            assert!(there.iter().any(|lease| lease.get_str("_id").ok() == Some(id)), "hour {hour}: {id} was removed");
            eventually(BOUND, "the lease to be valid", || async { lease.check() }).await;
        }
        let there = leases(&collection(&alone).await).await;
        assert_eq!(there.len(), 1, "hour {hour}: {there:?}");
        assert_eq!(there[0].get_str("owner").ok(), Some(fsck.owner()));
    }
    assert_eq!(lost.load(Ordering::SeqCst), 0, "checks failed while the clock stepped");
    over.store(true, Ordering::SeqCst);
    for script in scripts {
        assert!(script.await.unwrap() > 0);
    }
    writer.check().unwrap();
    fsck.check().unwrap();
}

#[tokio::test]
async fn the_dead_are_found_whatever_the_clock_says() {
    // A server of its own for each step: the waits inside a server that was stepped more than once may never end.
    for (hour, id) in [(1, "lease/before-forward"), (-1, "lease/before-back")] {
        let server = Mongod::start(Options { faketime: true, ..Options::replica_set() }).await;
        let database = server.database();
        let admin = first(&database.uri(), "admin").await;
        let collection = collection(&database).await;
        dead_writer(&collection, id, 0).await;
        server.clock().shift_seconds(hour * 3600);
        let status = admin.status().await.unwrap();
        assert_eq!(status.writers.len(), 1);
        let shown = &status.writers[0];
        assert_eq!(shown.clock_behind, hour < 0, "{shown:?}");
        assert!(hour > 0 || shown.age == Some(Duration::ZERO), "{shown:?}");
        // By name, and by looking for whatever is dead.
        let pruned = match hour {
            1 => admin.prune_stale_writers().await,
            _ => admin.prune_stale_writers().ids([id]).await,
        };
        assert_eq!(pruned.unwrap().cleared.len(), 1, "hour {hour}");

        // As one that died before the step looks after it.
        dead_writer(&collection, id, hour * 3600).await;
        let fsck = admin.acquire_fsck().force(true).await.unwrap();
        assert!(leases(&collection).await.iter().all(|lease| lease.get_str("_id").ok() != Some(id)));
        fsck.release().await.unwrap();
    }
}
