//! Looking disturbs nobody, and whoever waits is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockhouse::{ErrorKind, StoreState};

use super::store::Store;

const PATIENCE: Duration = Duration::from_secs(20);

fn count(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |count| count.parse().unwrap())
}

/// Lookers in a tight loop beside attempts: no attempt ever fails because of a look, and no dead holder is called
/// alive. `LOCKHOUSE_TEST_ATTEMPTS` for more of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looks_never_make_an_acquisition_fail() {
    let store = Arc::new(Store::new());
    let over = Arc::new(AtomicBool::new(false));
    let lookers: Vec<_> = (0..3)
        .map(|_| {
            let (store, over) = (store.clone(), over.clone());
            tokio::spawn(async move {
                let looker = store.connect("looker").await;
                let mut looks = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    looker.status().await.unwrap();
                    looks += 1;
                }
                looks
            })
        })
        .collect();
    let holder = store.connect("holder").await;
    for _ in 0..count("LOCKHOUSE_TEST_ATTEMPTS", 300) {
        holder.acquire_fsck().await.unwrap().release().await.unwrap();
        let status = holder.status().await.unwrap();
        assert_eq!((status.state, status.fsck.is_none()), (StoreState::Open, true));
        holder.acquire_writer().await.unwrap().release().await.unwrap();
        assert!(holder.status().await.unwrap().writers.is_empty());
    }
    over.store(true, Ordering::Relaxed);
    let mut looks = 0;
    for looker in lookers {
        looks += looker.await.unwrap();
    }
    assert!(looks > 100, "only {looks} looks");
}

/// Directory events wake whoever waits, long before the next poll is due.
#[tokio::test]
async fn a_waiter_is_told_when_the_last_writer_leaves() {
    let store = Store::new();
    let timing = lockhouse::LeaseTiming {
        poll_initial: Duration::from_secs(60),
        poll_max: Duration::from_secs(60),
        ..lockhouse::LeaseTiming::default()
    };
    let at = store.at.to_str().unwrap();
    let waiter = lockhouse::Coordinator::builder(at).unwrap().timing(timing).connect().await.unwrap();
    let holder = store.connect("holder").await;
    let looker = store.connect("looker").await;
    let writer = holder.acquire_writer().await.unwrap();
    let waiting = tokio::spawn(waiter.acquire_fsck().drain_budget(PATIENCE).into_future());
    until(&looker, StoreState::Draining).await;
    // It sleeps by now, or is about to.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let left = Instant::now();
    writer.release().await.unwrap();
    let fsck = waiting.await.unwrap().unwrap();
    let took = left.elapsed();
    assert!(took < PATIENCE, "was not told: {took:?}");

    let waiting = tokio::spawn(async move { holder.acquire_writer().wait(PATIENCE).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    fsck.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

async fn until(looker: &lockhouse::Coordinator, state: StoreState) {
    super::support::poll::eventually(PATIENCE, "the state", || async {
        let status = looker.status().await.unwrap();
        if status.state == state { Ok(()) } else { Err(status.state) }
    })
    .await;
}

#[tokio::test]
async fn a_lease_here_has_no_deadline_and_no_heartbeat() {
    let store = Store::new();
    let one = store.connect("one").await;
    let lease = one.acquire_writer().await.unwrap();
    assert_eq!(lease.remaining(), Duration::MAX);
    lease.refresh_heartbeat(true).await.unwrap();
    lease.check().unwrap();
    let seen = one.status().await.unwrap().writers.remove(0);
    assert_eq!((seen.heartbeat, seen.age, seen.stale_after, seen.refresh_interval), (None, None, None, None));
    assert!(seen.acquired.is_some() && !seen.peer && !seen.inherited);
    assert!(!lease.descriptors().await.unwrap().is_empty());
    let refused = store.connect("two").await.acquire_fsck().drain_budget(Duration::ZERO).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DrainTimeout);
    lease.release().await.unwrap();
}

/// A fleet of short writers does not keep an fsck out, and an fsck is alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_writers_lets_an_fsck_in() {
    let store = Arc::new(Store::new());
    let over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..20)
        .map(|n| {
            let (store, over) = (store.clone(), over.clone());
            tokio::spawn(async move {
                let writer = store.connect(&format!("writer {n}")).await;
                let mut granted = 0;
                while !over.load(Ordering::Relaxed) {
                    if let Ok(lease) = writer.acquire_writer().wait(PATIENCE).await {
                        granted += 1;
                        lease.check().unwrap();
                        lease.release().await.unwrap();
                    }
                }
                granted
            })
        })
        .collect();
    let checker = store.connect("checker").await;
    for _ in 0..20 {
        let fsck = tokio::time::timeout(PATIENCE, checker.acquire_fsck().into_future()).await.unwrap().unwrap();
        assert!(checker.status().await.unwrap().writers.is_empty());
        fsck.release().await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 0);
    }
}
