//! Every way out leaves the store as if nobody had been there.

use std::time::{Duration, Instant};

use lockhouse::{Error, ErrorKind, LossReason};

use crate::store::{BOUND, Store, TIMING, beat, soon, until_free};

pub(crate) async fn a_release_is_confirmed_and_a_drop_is_one_too(store: Store) {
    let admin = store.first("admin").await;
    let coordinator = store.connect("one").await;
    let lease = coordinator.acquire_writer().await.unwrap();
    let token = lease.token();
    lease.release().await.unwrap();
    assert!(token.is_cancelled());
    assert!(admin.status().await.unwrap().writers.is_empty());
    drop(coordinator.acquire_writer().await.unwrap());
    until_free(&admin).await;
    drop(coordinator.acquire_fsck().await.unwrap());
    until_free(&admin).await;
    // A lease outlives the coordinator in the caller's hand, and goes with its guard.
    let lease = coordinator.acquire_fsck().await.unwrap();
    drop(coordinator);
    beat(&lease).await;
    lease.release().await.unwrap();
    assert!(admin.status().await.unwrap().fsck.is_none());
}

pub(crate) async fn a_shutdown_gives_everything_back(store: Store) {
    let admin = store.first("admin").await;
    let coordinator = store.connect("one").await;
    let leases = [coordinator.acquire_writer().await.unwrap(), coordinator.acquire_writer().await.unwrap()];
    soon(coordinator.shutdown()).await;
    let status = admin.status().await.unwrap();
    assert!(status.writers.is_empty(), "{status:?}");
    for lease in leases {
        let Error::LeaseLost(lost) = lease.check().unwrap_err() else { panic!("not lost") };
        assert_eq!(lost.why, LossReason::Supervisor);
        assert!(lease.token().is_cancelled());
        // Too late, and harmless.
        let _ = lease.release().await;
    }
    assert_eq!(coordinator.acquire_writer().await.map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(coordinator.status().await.map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
    soon(coordinator.shutdown()).await;
}

pub(crate) async fn a_shutdown_withdraws_what_is_being_acquired(store: Store) {
    let admin = store.first("admin").await;
    for round in 0..40_u64 {
        let coordinator = store.connect("leaving").await;
        let acquiring = tokio::spawn({
            let coordinator = coordinator.clone();
            async move {
                match round % 2 {
                    0 => coordinator.acquire_writer().wait(BOUND).await.map(drop),
                    _ => coordinator.acquire_fsck().wait(BOUND).await.map(drop),
                }
            }
        });
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..4000))).await;
        soon(coordinator.shutdown()).await;
        let status = admin.status().await.unwrap();
        assert!(status.writers.is_empty() && status.fsck.is_none(), "round {round}: {status:?}");
        // Either it had the lease for a moment, or it is told that nobody serves it any more.
        let _ = soon(acquiring).await.unwrap();
    }
}

pub(crate) async fn the_last_coordinator_may_go_inside_an_async_context(store: Store) {
    let admin = store.first("admin").await;
    // The test's runtime has one thread: whatever blocks it must not wait for it.
    for round in 0..6 {
        let coordinator = store.connect("leaving").await;
        let writer = coordinator.acquire_writer().wait(BOUND).await.unwrap();
        let start = Instant::now();
        match round % 3 {
            0 => {
                drop(writer);
                drop(coordinator);
            }
            1 => {
                drop(coordinator);
                drop(writer);
            }
            _ => {
                writer.release().await.unwrap();
                let fsck = coordinator.acquire_fsck().await.unwrap();
                drop((coordinator, fsck));
            }
        }
        let took = start.elapsed();
        assert!(took < TIMING.refresh_interval + Duration::from_secs(1), "dropping took {took:?}");
        let status = admin.status().await.unwrap();
        assert!(status.writers.is_empty() && status.fsck.is_none(), "round {round}: {status:?}");
    }
}

/// Ends somewhere between nothing sent and everything answered, wherever that is on this machine. A timer is too
/// coarse for a store without a server: there it is a number of turns, and every tenth time none at all.
async fn impatience(store: &Store) {
    if !store.answers_at_once() {
        return tokio::time::sleep(Duration::from_micros(fastrand::u64(0..6000))).await;
    }
    let turns = if fastrand::u32(0..10) == 0 { 0 } else { fastrand::u32(0..3000) };
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

/// What `work` comes to, unless `end` comes first. The work is begun in any case.
async fn unless<T>(end: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = end => None,
    }
}

/// With the other backends a thousand in all.
pub(crate) async fn an_acquisition_that_nobody_waits_for_leaves_nothing(store: Store) {
    const ROUNDS: u64 = 350;
    let admin = store.first("admin").await;
    let mut coordinator = store.connect("impatient").await;
    let (mut dropped, mut granted) = (0, 0);
    for round in 0..ROUNDS {
        let lease = match round % 3 {
            0 | 1 => unless(impatience(&store), coordinator.acquire_writer().wait(BOUND).into_future())
                .await
                .map(|lease| lease.map(drop)),
            _ => unless(impatience(&store), coordinator.acquire_fsck().wait(BOUND).into_future())
                .await
                .map(|lease| lease.map(drop)),
        };
        match lease {
            None => dropped += 1,
            Some(Ok(())) => granted += 1,
            // What an earlier round left is still on its way out.
            Some(Err(error)) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
        }
        if round % 50 == 49 {
            // With the last handle everything must be gone too.
            let leaving = std::mem::replace(&mut coordinator, store.connect("impatient").await);
            drop(leaving);
            until_free(&admin).await;
        }
    }
    soon(coordinator.shutdown()).await;
    let status = admin.status().await.unwrap();
    assert!(status.writers.is_empty() && status.fsck.is_none(), "{status:?}");
    assert!(dropped > ROUNDS / 20, "only {dropped} were dropped under way, {granted} were granted");
}
