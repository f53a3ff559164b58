//! What a holder may rely on, and how it hears that it may not any more.

use std::time::Instant;

use futures::{FutureExt, StreamExt};
use lockhouse::{Error, ErrorKind, Event, LeaseKind, LossReason};

use crate::store::{Store, TIMING, beat, finally_lost, soon, until, until_free, until_stale, until_valid};

fn why(error: Error) -> LossReason {
    match error {
        Error::LeaseLost(lost) => lost.why,
        other => panic!("not LeaseLost: {other:?}"),
    }
}

pub(crate) async fn a_heartbeat_is_refreshed_when_it_is_due_or_forced(store: Store) {
    let coordinator = store.first("one").await;
    let heartbeat = async || coordinator.status().await.unwrap().writers[0].heartbeat.unwrap();
    // Acquired anew until the look shows that the renewer has not come in between.
    let lease = coordinator.acquire_writer().await.unwrap();
    let mut spared = false;
    for _ in 0..20 {
        beat(&lease).await;
        let before = heartbeat().await;
        lease.refresh_heartbeat(false).await.unwrap();
        spared |= heartbeat().await == before;
        if spared {
            break;
        }
    }
    assert!(spared, "a refresh without force wrote within half an interval of the last one");

    let before = heartbeat().await;
    until(&coordinator, "the server's clock to move", |status| status.now > before).await;
    beat(&lease).await;
    assert!(heartbeat().await > before);
    assert!(lease.remaining() > TIMING.valid_for() / 2 && lease.remaining() <= TIMING.valid_for());
    lease.check().unwrap();
    assert!(!lease.token().is_cancelled());
    assert!(lease.lost().now_or_never().is_none());
    assert_eq!(lease.timing(), TIMING);
    assert_eq!(lease.database(), coordinator.store());

    let fsck_side = store.connect("two").await;
    lease.release().await.unwrap();
    let fsck = fsck_side.acquire_fsck().await.unwrap();
    beat(&fsck).await;
    fsck.check().unwrap();
}

pub(crate) async fn a_lease_lives_on_by_itself(store: Store) {
    let coordinator = store.first("one").await;
    let lease = coordinator.acquire_writer().await.unwrap();
    let other = store.connect("two").await;
    let mut heartbeats = std::collections::BTreeSet::new();
    let start = Instant::now();
    while start.elapsed() < TIMING.stale_after() * 3 / 2 {
        lease.check().unwrap();
        let status = other.status().await.unwrap();
        assert_eq!(status.needing_a_person().count(), 0, "{status:?}");
        heartbeats.insert(status.writers[0].heartbeat);
        tokio::time::sleep(TIMING.refresh_interval / 5).await;
    }
    assert!(heartbeats.len() >= 4, "only {} heartbeats", heartbeats.len());
}

pub(crate) async fn a_holder_hears_of_its_loss_in_every_way(store: Store) {
    let admin = store.first("admin").await;
    let (holder, clock) = store.stoppable("the holder").await;
    let lease = holder.acquire_writer().await.unwrap();
    let token = lease.token();
    let mut events = holder.events();
    clock.stop();
    // Its process stands still; its deadline passes all the same.
    until_stale(&admin, 1).await;
    assert_eq!(why(lease.check().unwrap_err()), LossReason::Deadline);
    assert!(lease.remaining().is_zero());
    let pruned = soon(admin.prune_stale_writers()).await.unwrap();
    assert_eq!(pruned.cleared.len(), 1);

    clock.go_on();
    let seen = soon(async {
        loop {
            if let Some(Event::Lost { id, kind, why: LossReason::Displaced }) = events.next().await {
                return (id, kind);
            }
        }
    })
    .await;
    assert_eq!(seen, (lease.identifier().to_owned(), LeaseKind::Writer));
    soon(token.cancelled()).await;
    assert!(lease.token().is_cancelled());
    assert_eq!(finally_lost(&lease).await, LossReason::Displaced);
    assert_eq!(why(soon(lease.lost()).await), LossReason::Displaced);
    let error = lease.check().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::LeaseLost, false));
    assert!(error.to_string().contains(lease.identifier()), "{error}");
    assert_eq!(lease.refresh_heartbeat(true).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(lease.remaining().is_zero());
}

pub(crate) async fn a_displaced_holder_touches_nobody_elses_document(store: Store) {
    let admin = store.first("admin").await;
    let (holder, clock) = store.stoppable("the holder").await;
    let fsck = holder.acquire_fsck().await.unwrap();
    clock.stop();
    until_stale(&admin, 1).await;
    let successor = soon(admin.acquire_fsck().force(true)).await.unwrap();
    clock.go_on();
    assert_eq!(finally_lost(&fsck).await, LossReason::Displaced);
    fsck.release().await.unwrap();
    let again = holder.acquire_fsck().await.map(drop).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::StoreLocked);
    holder.shutdown().await;
    let standing = admin.status().await.unwrap().fsck.unwrap();
    assert_eq!(standing.owner.as_deref(), Some(successor.owner()));
    beat(&successor).await;
}

pub(crate) async fn events_come_in_order(store: Store) {
    let admin = store.first("admin").await;
    let (holder, wire) = store.severable("the holder").await;
    let mut events = holder.events();
    let lease = holder.acquire_writer().await.unwrap();
    let id = lease.identifier().to_owned();
    let kind = LeaseKind::Writer;
    assert_eq!(soon(events.next()).await, Some(Event::Acquired { id: id.clone(), kind }));

    wire.cut();
    assert_eq!(soon(events.next()).await, Some(Event::Doubtful { id: id.clone(), kind }));
    lease.check().unwrap();
    wire.mend();
    assert_eq!(soon(events.next()).await, Some(Event::Recovered { id: id.clone(), kind }));
    lease.check().unwrap();

    wire.cut();
    assert_eq!(soon(events.next()).await, Some(Event::Doubtful { id: id.clone(), kind }));
    let lost = soon(events.next()).await.unwrap();
    assert_eq!(lost, Event::Lost { id: id.clone(), kind, why: LossReason::Deadline });
    assert_eq!(why(lease.check().unwrap_err()), LossReason::Deadline);
    wire.mend();
    assert_eq!(soon(events.next()).await, Some(Event::Recovered { id: id.clone(), kind }));
    lease.check().unwrap();

    lease.release().await.unwrap();
    assert_eq!(soon(events.next()).await, Some(Event::Released { id, kind }));
    until_free(&admin).await;
    holder.shutdown().await;
    drop(holder);
    assert_eq!(soon(events.next()).await, None);
}

pub(crate) async fn the_deadline_comes_before_the_stale_age(store: Store) {
    store.first("admin").await;
    let (holder, wire) = store.severable("the holder").await;
    let lease = holder.acquire_writer().await.unwrap();
    beat(&lease).await;
    // Nothing that is confirmed from here on can move the deadline beyond this.
    wire.cut();
    let start = Instant::now();
    soon(lease.lost()).await;
    let took = start.elapsed();
    assert!(lease.check().is_err());
    assert!(took < TIMING.stale_after(), "stopped only after {took:?}");
    assert!(took > TIMING.valid_for() / 2, "gave up early, after {took:?}");
    wire.mend();
}

pub(crate) async fn a_lease_that_was_cut_off_comes_back_unless_somebody_came_in_between(store: Store) {
    let admin = store.first("admin").await;
    let (holder, wire) = store.severable("the holder").await;
    let lease = holder.acquire_writer().await.unwrap();
    let old = lease.token();
    wire.cut();
    let error = soon(lease.lost()).await;
    assert!(error.is_retryable());
    assert!(old.is_cancelled());
    wire.mend();
    until(&admin, "the lease to be refreshed again", |status| status.needing_a_person().count() == 0).await;
    until_valid(&lease).await;
    assert!(old.is_cancelled() && !lease.token().is_cancelled());
    let again = lease.token();
    wire.cut();
    soon(lease.lost()).await;
    soon(again.cancelled()).await;
    if store.is_memory() {
        // Cut off, everybody is: nobody could come in between.
        wire.mend();
        return;
    }
    until_stale(&admin, 1).await;
    let fsck = soon(admin.acquire_fsck().force(true)).await.unwrap();
    wire.mend();
    assert_eq!(finally_lost(&lease).await, LossReason::Displaced);
    fsck.check().unwrap();
}
