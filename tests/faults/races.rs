//! Many at once: one fsck at a time, whoever asks and however often; nobody living is ever cleared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use lockhouse::{Coordinator, ErrorKind, Locked};

use crate::common::{
    BOUND, PATIENT, Server, builder, collection, connect, first, generation, leases, locked, soon, until_none,
};

async fn crowd(uri: &str, count: usize) -> Vec<Coordinator> {
    let mut crowd = Vec::new();
    for number in 0..count {
        crowd.push(builder(uri).timing(PATIENT).label(format!("number {number}")).connect().await.unwrap());
    }
    crowd
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_exclusive_jobs_at_the_same_minute_run_one_at_a_time() {
    const JOBS: usize = 20;
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        first(&database.uri(), "admin").await;
        let inside = Arc::new(AtomicUsize::new(0));
        let jobs = crowd(&database.uri(), JOBS).await.into_iter().map(|coordinator| {
            let inside = inside.clone();
            tokio::spawn(async move {
                let fsck = coordinator.acquire_fsck().wait(Duration::from_secs(60)).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                tokio::time::sleep(Duration::from_millis(5)).await;
                fsck.check().unwrap();
                inside.fetch_sub(1, Ordering::SeqCst);
                let generation = fsck.generation();
                fsck.release().await.unwrap();
                generation
            })
        });
        let mut generations: Vec<i64> = join_all(jobs).await.into_iter().map(Result::unwrap).collect();
        generations.sort_unstable();
        assert_eq!(generations, (1..=JOBS as i64).collect::<Vec<_>>());
        assert_eq!(generation(&collection(&database).await).await, JOBS as i64);
    }
}

async fn race(server: Server, contenders: usize, rounds: usize) {
    let database = server.database();
    first(&database.uri(), "admin").await;
    let collection = collection(&database).await;
    let crowd = crowd(&database.uri(), contenders).await;
    for round in 0..rounds {
        let racing = crowd.iter().map(|coordinator| tokio::spawn(coordinator.acquire_fsck().into_future()));
        let mut winners = Vec::new();
        for outcome in join_all(racing).await {
            match outcome.unwrap() {
                Ok(fsck) => winners.push(fsck),
                Err(error) => assert!(matches!(locked(error), Locked::FsckHeld { .. }), "round {round}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round} of {contenders}");
        let winner = winners.pop().unwrap();
        assert_eq!(winner.generation(), round as i64 + 1);
        winner.release().await.unwrap();
        let left = leases(&collection).await;
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_a_few_wins_every_race() {
    race(Server::ReplicaSet, 2, 60).await;
    race(Server::Standalone, 2, 60).await;
    race(Server::ReplicaSet, 8, 30).await;
    race(Server::Standalone, 8, 30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_sixty_four_wins_every_race() {
    race(Server::ReplicaSet, 64, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_and_fscks_never_overlap() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        first(&database.uri(), "admin").await;
        let (writers, fscks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (writes, checks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let end = Instant::now() + BOUND;
        let (enough_writes, enough_checks) = (60, 8);
        let tasks = crowd(&database.uri(), 10).await.into_iter().enumerate().map(|(number, coordinator)| {
            let (writers, fscks, writes, checks) = (writers.clone(), fscks.clone(), writes.clone(), checks.clone());
            tokio::spawn(async move {
                let enough = || {
                    let checked = checks.load(Ordering::SeqCst) >= enough_checks;
                    checked && writes.load(Ordering::SeqCst) >= enough_writes
                };
                while Instant::now() < end && !enough() {
                    if number < 8 {
                        let lease = coordinator.acquire_writer().wait(BOUND).await.unwrap();
                        writers.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(fscks.load(Ordering::SeqCst), 0, "a writer beside an fsck");
                        tokio::time::sleep(Duration::from_millis(3)).await;
                        writes.fetch_add(1, Ordering::SeqCst);
                        writers.fetch_sub(1, Ordering::SeqCst);
                        lease.release().await.unwrap();
                    } else {
                        let fsck = coordinator.acquire_fsck().wait(BOUND).drain_budget(BOUND).await.unwrap();
                        assert_eq!(fscks.fetch_add(1, Ordering::SeqCst), 0, "two fscks");
                        assert_eq!(writers.load(Ordering::SeqCst), 0, "an fsck beside a writer");
                        tokio::time::sleep(Duration::from_millis(3)).await;
                        assert_eq!(writers.load(Ordering::SeqCst), 0, "a writer came in beside an fsck");
                        checks.fetch_add(1, Ordering::SeqCst);
                        fscks.fetch_sub(1, Ordering::SeqCst);
                        fsck.release().await.unwrap();
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            })
        });
        for task in join_all(tasks).await {
            task.unwrap();
        }
        let (writes, checks) = (writes.load(Ordering::SeqCst), checks.load(Ordering::SeqCst));
        assert!(writes >= 8 && checks >= 2, "{server:?}: {writes} writes, {checks} checks");
        until_none(&collection(&database).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_writers_that_come_again_do_not_starve_an_fsck() {
    const WRITERS: usize = 100;
    let database = Server::ReplicaSet.database();
    let admin = first(&database.uri(), "admin").await;
    let proxy = database.proxy();
    // Ten processes of ten tasks each, at the far end of a slow link.
    let crowd = crowd(&database.uri_through(&proxy), WRITERS / 10).await;
    proxy.delay(Duration::from_millis(5), Duration::from_millis(5));
    let over = Arc::new(AtomicBool::new(false));
    let granted = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (coordinator, over, granted) = (crowd[number % crowd.len()].clone(), over.clone(), granted.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    match coordinator.acquire_writer().await {
                        Ok(lease) => {
                            granted.fetch_add(1, Ordering::SeqCst);
                            tokio::time::sleep(Duration::from_millis(100)).await;
                            let _ = lease.release().await;
                        }
                        Err(error) => {
                            let fair = matches!(error.kind(), ErrorKind::StoreLocked | ErrorKind::Unavailable);
                            assert!(fair, "{error:?}");
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(250)).await;
                }
            })
        })
        .collect();
    soon(async {
        while granted.load(Ordering::SeqCst) < WRITERS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for _ in 0..3 {
        let start = Instant::now();
        let fsck = admin.acquire_fsck().drain_budget(BOUND).await.unwrap();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(10), "granted only after {took:?}");
        fsck.check().unwrap();
        fsck.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    over.store(true, Ordering::SeqCst);
    for task in join_all(tasks).await {
        task.unwrap();
    }
}

/// How long scripts clear in a loop beside living holders: `LOCKHOUSE_TEST_SOAK_SECONDS`, 15 by default.
fn soak() -> Duration {
    let seconds = std::env::var("LOCKHOUSE_TEST_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(15))
}

#[tokio::test]
async fn scripts_that_clear_before_every_job_never_remove_the_living() {
    let end = Instant::now() + soak();
    let beside = |fsck: bool, server: Server| async move {
        let database = server.database();
        first(&database.uri(), "admin").await;
        let holder = builder(&database.uri()).timing(PATIENT).label("living").connect().await.unwrap();
        let script = connect(&database.uri(), "script").await;
        let lease = if fsck { None } else { Some(holder.acquire_writer().await.unwrap()) };
        let exclusive = if fsck { Some(holder.acquire_fsck().await.unwrap()) } else { None };
        let (mut runs, mut lost) = (0, 0);
        while Instant::now() < end {
            if let Ok(pruned) = script.prune_stale_writers().await {
                assert!(pruned.cleared.is_empty(), "{pruned:?}");
            }
            if let Ok(cleared) = script.clear_stale_lock().await {
                assert!(cleared.cleared.is_empty(), "{cleared:?}");
            }
            for held in lease.iter().map(|lease| lease.check()).chain(exclusive.iter().map(|lease| lease.check())) {
                lost += usize::from(held.is_err());
            }
            runs += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(runs > 20, "only {runs} runs");
        assert_eq!(lost, 0, "of {runs} checks");
        assert_eq!(leases(&collection(&database).await).await.len(), 1);
    };
    tokio::join!(
        beside(false, Server::ReplicaSet),
        beside(true, Server::ReplicaSet),
        beside(false, Server::Standalone),
        beside(true, Server::Standalone),
    );
    assert!(PATIENT.stale_after() < soak(), "several stale ages");
}
