//! What a look shows, and that it changes nothing.

use std::time::Duration;

use lockhouse::{LeaseKind, LeaseState, Phase, StoreState};

use crate::store::{BOUND, Store, TIMING, soon, until, until_stale};

pub(crate) async fn a_status_shows_everything(store: Store) {
    let one = store.first("one").await;
    let open = one.status().await.unwrap();
    assert_eq!((open.schema, open.state, open.generation), (1, StoreState::Open, Some(0)));
    assert_eq!(open.store, *one.store());
    assert_eq!(open.backend, if store.is_memory() { "memory" } else { "mongodb" });
    assert!(open.fsck.is_none() && open.writers.is_empty() && open.owner.is_none() && open.spool.is_none());

    let writer = one.acquire_writer().label("importer").reason("nightly import").await.unwrap();
    let status = one.status().await.unwrap();
    let shown = &status.writers[0];
    assert_eq!((shown.id.as_str(), shown.kind), (writer.identifier(), LeaseKind::Writer));
    assert_eq!(shown.owner.as_deref(), Some(writer.owner()));
    assert_eq!(shown.state, LeaseState::Fresh);
    assert!(shown.acquired.unwrap() <= shown.heartbeat.unwrap() && shown.heartbeat.unwrap() <= status.now);
    assert!(shown.age.unwrap() < TIMING.stale_after());
    assert_eq!(
        (shown.refresh_interval, shown.stale_after),
        (Some(TIMING.refresh_interval), Some(TIMING.stale_after()))
    );
    assert_eq!((shown.clock_behind, shown.phase, shown.peer), (false, None, false));
    assert_eq!(shown.reason.as_deref(), Some("nightly import"));
    let holder = shown.holder.as_ref().unwrap();
    assert_eq!((holder.pid, holder.label.as_deref()), (std::process::id(), Some("importer")));
    assert!(!holder.host.is_empty() && !holder.user.is_empty() && holder.program.contains("contract"), "{holder:?}");

    let two = store.connect("two").await;
    let draining = tokio::spawn(two.acquire_fsck().reason("check").drain_budget(BOUND).into_future());
    let drains = until(&one, "the drain to begin", |status| status.fsck.is_some()).await;
    assert_eq!(drains.state, StoreState::Draining);
    assert_eq!(drains.fsck.unwrap().phase, Some(Phase::Draining));
    writer.release().await.unwrap();
    let fsck = soon(draining).await.unwrap().unwrap();
    let status = one.status().await.unwrap();
    assert_eq!((status.state, status.generation), (StoreState::Exclusive, Some(1)));
    let shown = status.fsck.unwrap();
    assert_eq!((shown.id.as_str(), shown.kind, shown.phase), ("lease/fsck", LeaseKind::Fsck, Some(Phase::Exclusive)));
    assert_eq!(shown.reason.as_deref(), Some("check"));
    fsck.release().await.unwrap();

    store.dead_fsck("died").await;
    until_stale(&one, 1).await;
    let status = one.status().await.unwrap();
    assert_eq!(status.state, StoreState::Blocked);
    assert_eq!(status.fsck.unwrap().state, LeaseState::Stale);
}

pub(crate) async fn the_history_tells_what_was_done(store: Store) {
    let one = store.first("one").await;
    let two = store.connect("two").await;
    assert!(one.history().await.unwrap().is_empty());
    let writer = one.acquire_writer().await.unwrap();
    two.acquire_fsck().reason("short").drain_budget(Duration::from_millis(50)).await.map(drop).unwrap_err();
    writer.release().await.unwrap();
    two.acquire_fsck().reason("long").await.unwrap().release().await.unwrap();
    one.record("failed", Some("lease/fsck"), Some("exit code 3".to_owned())).await.unwrap();
    let dead = store.dead_writer("died").await;
    until_stale(&one, 1).await;
    soon(one.prune_stale_writers()).await.unwrap();
    store.dead_fsck("died as fsck").await;
    until_stale(&one, 1).await;
    soon(two.acquire_fsck().force(true).reason("repair")).await.unwrap().release().await.unwrap();
    store.dead_fsck("died again").await;
    until_stale(&one, 1).await;
    soon(one.clear_stale_lock()).await.unwrap();
    // Lines are written behind the verbs' backs.
    one.shutdown().await;
    two.shutdown().await;

    let reader = store.connect("reader").await;
    let history = reader.history().await.unwrap();
    let find = |what: &str, who: &str| {
        let line = history.iter().find(|line| {
            let label = line.holder.as_ref().and_then(|holder| holder.label.as_deref());
            line.what == what && label == Some(who)
        });
        line.unwrap_or_else(|| panic!("no line {what} by {who} in {history:#?}"))
    };
    assert_eq!(find("drain-timeout", "two").reason.as_deref(), Some("short"));
    assert_eq!(find("granted", "two").lease.as_deref(), Some("lease/fsck"));
    find("released", "two");
    assert_eq!(find("failed", "one").reason.as_deref(), Some("exit code 3"));
    assert_eq!(find("pruned", "one").lease.as_deref(), Some(dead.as_str()));
    assert_eq!(find("forced", "two").reason.as_deref(), Some("repair"));
    assert_eq!(find("cleared", "one").lease.as_deref(), Some("lease/fsck"));
    assert!(history.is_sorted_by_key(|line| line.at), "not in the order of time: {history:#?}");
}

pub(crate) async fn looking_changes_nothing(store: Store) {
    let one = store.first("one").await;
    let reader = store.connect("reader").await;
    let writer = one.acquire_writer().await.unwrap();
    let before = reader.status().await.unwrap();
    let looks = (0..30).map(|_| until(&reader, "an answer", |_| true));
    for status in futures::future::join_all(looks).await {
        assert_eq!((status.writers.len(), &status.writers[0].id), (1, &before.writers[0].id));
        assert!(status.fsck.is_none());
    }
    writer.release().await.unwrap();
    assert!(reader.history().await.unwrap().is_empty());
}
