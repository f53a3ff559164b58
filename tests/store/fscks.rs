//! An fsck beside an owner and its producers.

use std::time::Duration;

use lockhouse::Coordinator;
use lockhouse::owner::{Phase, Role, Store};

use crate::support::poll::eventually;
use crate::{PATIENCE, Place, numbers, open, row, schema, stream};

#[tokio::test]
async fn an_fsck_makes_the_owner_pause_and_nothing_is_lost_or_refused() {
    let place = Place::new();
    let store = open(&place.path()).await;
    store.append(&stream("s"), &schema(), vec![row("a", 1)]).await.unwrap();
    let checker = Coordinator::connect(place.path().to_str().unwrap()).await.unwrap();
    let fsck = tokio::time::timeout(PATIENCE, checker.acquire_fsck().into_future()).await.unwrap().unwrap();
    assert_eq!(store.role(), Role::Reader, "nobody writes now");
    assert_eq!(store.status().state().unwrap().phase, Phase::Waiting);
    let wal = place.0.path().join("records-wal");
    assert!(std::fs::metadata(&wal).map_or(0, |found| found.len()) == 0, "the file is whole");
    // Producers go on.
    let writing = tokio::spawn({
        let store = store.clone();
        async move { store.append(&stream("s"), &schema(), vec![row("a", 2)]).await }
    });
    let incoming = place.0.path().join("records.spool/incoming");
    eventually(PATIENCE, "the batch in the spool", || async {
        match std::fs::read_dir(&incoming).map_or(0, Iterator::count) {
            1 => Ok(()),
            others => Err(others),
        }
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!writing.is_finished());
    fsck.check().unwrap();
    fsck.release().await.unwrap();
    tokio::time::timeout(PATIENCE, writing).await.unwrap().unwrap().unwrap();
    assert_eq!(numbers(&store, "s", "a").await, [1, 2]);
    eventually(PATIENCE, "to own it again", || async {
        if store.role() == Role::Owner { Ok(()) } else { Err(store.status()) }
    })
    .await;
    store.close().await.unwrap();
}

/// What an owner wrote directly between two fscks is no gap in what it published around them.
#[tokio::test]
async fn direct_writes_between_two_fscks_keep_nothing_waiting() {
    let place = Place::new();
    // Nothing but what is published makes the owner look at its spool.
    let store = Store::open(place.path()).poll(Duration::from_secs(3600)).await.unwrap();
    let checker = Coordinator::connect(place.path().to_str().unwrap()).await.unwrap();
    let incoming = place.0.path().join("records.spool/incoming");
    for n in [1, 3, 5] {
        let fsck = tokio::time::timeout(PATIENCE, checker.acquire_fsck().into_future()).await.unwrap().unwrap();
        let writing = tokio::spawn({
            let store = store.clone();
            async move { store.append(&stream("s"), &schema(), vec![row("a", n)]).await }
        });
        eventually(PATIENCE, "the batch in the spool", || async {
            match std::fs::read_dir(&incoming).map_or(0, Iterator::count) {
                1 => Ok(()),
                others => Err(others),
            }
        })
        .await;
        fsck.release().await.unwrap();
        tokio::time::timeout(PATIENCE, writing).await.expect("no wait for what is there").unwrap().unwrap();
        eventually(PATIENCE, "to own it again", || async {
            if store.role() == Role::Owner { Ok(()) } else { Err(store.status()) }
        })
        .await;
        store.append(&stream("s"), &schema(), vec![row("a", n + 1)]).await.unwrap();
    }
    assert_eq!(numbers(&store, "s", "a").await, (1..=6).collect::<Vec<_>>());
    store.close().await.unwrap();
}

#[tokio::test]
async fn opening_while_an_fsck_has_the_store_returns_at_once() {
    let place = Place::new();
    open(&place.path()).await.close().await.unwrap();
    let checker = Coordinator::connect(place.path().to_str().unwrap()).await.unwrap();
    let fsck = checker.acquire_fsck().await.unwrap();
    let store = open(&place.path()).await;
    assert_eq!(store.role(), Role::Reader);
    assert!(store.kinds().await.unwrap().is_empty());
    let owner = fsck.owner().to_owned();
    drop(store);
    // Below the fsck itself it is written under its lease.
    eventually(PATIENCE, "the store to be let go", || async {
        match lockhouse::owner::read_state(place.path()).unwrap() {
            lockhouse::owner::Ownership::Nobody => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let below = lockhouse::owner::Store::open(place.path()).under_fsck(&owner).await.unwrap();
    below.append(&stream("s"), &schema(), vec![row("fsck", 1)]).await.unwrap();
    assert_eq!(numbers(&below, "s", "fsck").await, [1]);
    below.close().await.unwrap();
    fsck.check().unwrap();
    fsck.release().await.unwrap();
}
