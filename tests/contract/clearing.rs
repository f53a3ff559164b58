//! Clearing removes the dead and nobody else, so that a script may call it before every job.

use std::time::Instant;

use futures::StreamExt;
use lockhouse::{Event, LeaseState, Locked};

use crate::store::{Store, TIMING, beat, locked, soon, until, until_stale, until_valid};

pub(crate) async fn with_nothing_there_nothing_is_cleared(store: Store) {
    let admin = store.first("admin").await;
    for cleared in [admin.clear_stale_lock().await.unwrap(), admin.prune_stale_writers().await.unwrap()] {
        assert!(cleared.cleared.is_empty() && cleared.spared.is_empty() && !cleared.dry_run);
    }
    let named = admin.prune_stale_writers().ids(["lease/nobody"]).await.unwrap();
    assert!(named.cleared.is_empty());
}

pub(crate) async fn what_is_fresh_is_spared(store: Store) {
    let admin = store.first("admin").await;
    let holder = store.connect("the holder").await;
    let writer = holder.acquire_writer().await.unwrap();
    let pruned = admin.prune_stale_writers().await.unwrap();
    assert!(pruned.cleared.is_empty(), "{pruned:?}");
    let refusal = admin.prune_stale_writers().ids([writer.identifier()]).await.unwrap_err();
    let Locked::NotDead { leases } = locked(refusal) else { panic!("not NotDead") };
    assert_eq!((leases.len(), leases[0].state), (1, LeaseState::Fresh));
    writer.check().unwrap();
    writer.release().await.unwrap();

    let fsck = holder.acquire_fsck().await.unwrap();
    let refusal = admin.clear_stale_lock().await.unwrap_err();
    assert!(refusal.to_string().contains("the holder"), "{refusal}");
    let Locked::FsckFresh { lease } = locked(refusal) else { panic!("not FsckFresh") };
    assert_eq!(lease.owner.as_deref(), Some(fsck.owner()));
    // An fsck is not a writer.
    assert!(admin.prune_stale_writers().await.unwrap().cleared.is_empty());
    beat(&fsck).await;
}

pub(crate) async fn what_is_dead_goes_after_its_whole_stale_age(store: Store) {
    let admin = store.first("admin").await;
    let living = store.connect("living").await;
    let lease = living.acquire_writer().await.unwrap();
    let mut dead = vec![store.dead_writer("died").await, store.dead_writer("died too").await];
    dead.sort();
    until_stale(&admin, 2).await;
    let mut events = admin.events();
    let start = Instant::now();
    let pruned = soon(admin.prune_stale_writers()).await.unwrap();
    assert!(start.elapsed() >= TIMING.stale_after(), "watched only {:?}", start.elapsed());
    let mut cleared: Vec<String> = pruned.cleared.iter().map(|lease| lease.id.clone()).collect();
    cleared.sort();
    assert_eq!(cleared, dead);
    let Some(Event::Watching { leases, at_most }) = soon(events.next()).await else { panic!("no word of the watch") };
    assert_eq!((leases.len(), at_most), (2, TIMING.stale_after()));
    lease.check().unwrap();
    let left: Vec<String> = admin.status().await.unwrap().writers.into_iter().map(|writer| writer.id).collect();
    assert_eq!(left, [lease.identifier()]);
    assert!(admin.prune_stale_writers().await.unwrap().cleared.is_empty(), "a second run finds nothing");
    lease.release().await.unwrap();

    store.dead_fsck("died as well").await;
    until_stale(&admin, 1).await;
    let start = Instant::now();
    let cleared = soon(admin.clear_stale_lock()).await.unwrap();
    assert!(start.elapsed() >= TIMING.stale_after(), "watched only {:?}", start.elapsed());
    assert_eq!(cleared.cleared.len(), 1);
    assert_eq!(cleared.cleared[0].holder.as_ref().unwrap().label.as_deref(), Some("died as well"));
    living.acquire_writer().await.unwrap().release().await.unwrap();
}

pub(crate) async fn what_moves_while_it_is_watched_is_spared(store: Store) {
    let admin = store.first("admin").await;
    let (holder, clock) = store.stoppable("suspended").await;
    let writer = holder.acquire_writer().await.unwrap();
    let fsck_side = async |verb: &'static str| match verb {
        "prune" => admin.prune_stale_writers().ids([writer.identifier()]).await,
        _ => admin.prune_stale_writers().await,
    };
    for verb in ["prune", "prune all"] {
        clock.stop();
        until_stale(&admin, 1).await;
        let mut events = admin.events();
        let wake = async {
            assert!(matches!(soon(events.next()).await, Some(Event::Watching { .. })));
            tokio::time::sleep(TIMING.stale_after() / 3).await;
            clock.go_on();
        };
        let (pruned, ()) = tokio::join!(soon(fsck_side(verb)), wake);
        match pruned {
            Ok(pruned) => assert!(pruned.cleared.is_empty(), "{pruned:?}"),
            Err(refusal) => assert!(matches!(locked(refusal), Locked::NotDead { .. })),
        }
        until(&admin, "the lease to be fresh again", |status| status.needing_a_person().count() == 0).await;
        until_valid(&writer).await;
    }
    writer.release().await.unwrap();
}

pub(crate) async fn only_what_was_named_is_cleared(store: Store) {
    let admin = store.first("admin").await;
    let (one, two) = (store.dead_writer("one").await, store.dead_writer("two").await);
    until_stale(&admin, 2).await;
    let pruned = soon(admin.prune_stale_writers().ids([two.as_str()])).await.unwrap();
    assert_eq!(pruned.cleared.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(), [two.as_str()]);
    let left = admin.status().await.unwrap().writers;
    assert_eq!(left.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(), [one.as_str()]);
    // The owner is a name too.
    let owner = left[0].owner.clone().unwrap();
    let pruned = soon(admin.prune_stale_writers().ids([owner])).await.unwrap();
    assert_eq!(pruned.cleared.len(), 1);
}

pub(crate) async fn a_dry_run_changes_nothing(store: Store) {
    let admin = store.first("admin").await;
    let dead = store.dead_writer("died").await;
    until_stale(&admin, 1).await;
    let start = Instant::now();
    let would = admin.prune_stale_writers().dry_run(true).await.unwrap();
    assert!(start.elapsed() < TIMING.stale_after(), "a dry run watches nothing");
    assert!(would.dry_run);
    assert_eq!(would.cleared.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(), [dead.as_str()]);
    assert!(admin.clear_stale_lock().dry_run(true).await.unwrap().cleared.is_empty());
    assert_eq!(admin.status().await.unwrap().writers.len(), 1);
    assert!(admin.history().await.unwrap().is_empty());
}
