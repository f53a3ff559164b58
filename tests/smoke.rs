//! The shortest way through the engine on the memory backend.

use std::time::Duration;

use futures::StreamExt;
use lockhouse::clock::ManualClock;
use lockhouse::{Coordinator, Error, Locked, MemoryStore};

#[tokio::test]
async fn writers_and_fsck_take_turns() {
    let store = MemoryStore::new();
    let one = Coordinator::on_memory(&store).label("one").connect().await.unwrap();
    let two = Coordinator::on_memory(&store).label("two").connect().await.unwrap();
    let missing = one.acquire_writer().await.unwrap_err();
    assert!(missing.to_string().contains("init"), "{missing}");
    one.init().await.unwrap();

    let writer = one.acquire_writer().await.unwrap();
    let refused = two.acquire_fsck().drain_budget(Duration::from_millis(100)).await.unwrap_err();
    let Error::DrainTimeout(left) = &refused else { panic!("{refused}") };
    assert_eq!(left.writers[0].holder.as_ref().unwrap().label.as_deref(), Some("one"));
    assert!(two.status().await.unwrap().fsck.is_none());

    let mut request = two.acquire_fsck().reason("check");
    let progress = request.progress();
    let fsck = tokio::spawn(async move { request.await });
    let first = progress.take(1).collect::<Vec<_>>().await;
    assert_eq!(first[0].waiting_for.len(), 1);
    writer.release().await.unwrap();
    let fsck = fsck.await.unwrap().unwrap();
    assert_eq!(fsck.generation(), 1);
    let refused = one.acquire_writer().await.unwrap_err();
    let Error::StoreLocked(locked) = &refused else { panic!("{refused}") };
    assert!(
        matches!(&locked.cause, Locked::FsckHeld { stale: false, lease } if lease.reason.as_deref() == Some("check"))
    );
    let waiting = tokio::spawn(one.acquire_writer().wait(Duration::from_secs(10)).into_future());
    fsck.release().await.unwrap();
    let writer = waiting.await.unwrap().unwrap();
    assert_eq!(writer.generation(), 1);
    drop(writer);
    one.shutdown().await;
    assert!(two.status().await.unwrap().writers.is_empty());
}

#[tokio::test]
async fn a_shutdown_right_after_a_dropped_drain_leaves_nothing() {
    let store = MemoryStore::new();
    let one = Coordinator::on_memory(&store).connect().await.unwrap();
    one.init().await.unwrap();
    let writer = one.acquire_writer().await.unwrap();
    for _ in 0..20 {
        let two = Coordinator::on_memory(&store).connect().await.unwrap();
        let mut request = two.acquire_fsck();
        let mut progress = request.progress();
        let mut fsck = request.into_future();
        tokio::select! {
            granted = &mut fsck => panic!("{granted:?}"),
            seen = progress.next() => assert_eq!(seen.unwrap().waiting_for.len(), 1),
        }
        drop(fsck);
        two.shutdown().await;
        assert_eq!(one.status().await.unwrap().fsck, None);
    }
    writer.release().await.unwrap();
}

#[tokio::test]
async fn a_dead_writer_is_pruned_after_its_stale_age_and_a_living_one_is_not() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let living = Coordinator::on_memory(&store).clock(clock.clone()).connect().await.unwrap();
    living.init().await.unwrap();
    let lease = living.acquire_writer().await.unwrap();
    assert!(living.prune_stale_writers().await.unwrap().cleared.is_empty());
    lease.check().unwrap();
}
use std::future::IntoFuture;
