//! What a coordinator counts.

use std::time::Duration;

use futures::StreamExt;
use lockhouse::{AcquireOutcome, Coordinator, ErrorKind, Event, GateOptions, LeaseKind, LossReason, Measures};

use crate::store::{BOUND, Store, TIMING, soon};
use crate::support::poll::eventually;

async fn until(coordinator: &Coordinator, what: &str, shows: impl Fn(&Measures) -> bool) -> Measures {
    eventually(BOUND, what, || async {
        let measures = coordinator.measures().await.unwrap();
        if shows(&measures) { Ok(measures) } else { Err(measures) }
    })
    .await
}

/// How often an acquisition ended so.
fn ended(measures: &Measures, kind: LeaseKind, outcome: AcquireOutcome) -> u64 {
    let found = measures.acquired.iter().find(|(of, how, _)| (*of, *how) == (kind, outcome));
    found.map_or(0, |(_, _, latency)| latency.count)
}

pub(crate) async fn acquisitions_and_leases_are_counted(store: Store) {
    let one = store.first("one").await;
    let two = store.connect("two").await;
    let nothing = one.measures().await.unwrap();
    assert!(nothing.leases.is_empty() && nothing.acquired.is_empty() && nothing.draining.is_none());

    let writer = one.acquire_writer().await.unwrap();
    let measures = until(&one, "a refresh", |seen| seen.heartbeats.count > 0).await;
    assert_eq!(ended(&measures, LeaseKind::Writer, AcquireOutcome::Granted), 1);
    let held = &measures.leases[0];
    assert_eq!((held.id(), held.kind()), (writer.identifier(), LeaseKind::Writer));
    held.check().unwrap();
    assert!(held.remaining().is_none_or(|left| left > Duration::ZERO && left <= TIMING.valid_for()));

    // Its drain goes on until the writer leaves.
    let mut told = two.events();
    let draining = tokio::spawn(two.acquire_fsck().drain_budget(BOUND).into_future());
    let measures = until(&two, "a drain", |seen| seen.draining.is_some()).await;
    let drain = measures.draining.unwrap();
    assert_eq!((drain.waiting_for, drain.stale, drain.budget), (1, 0, BOUND));
    assert_eq!(measures.acquiring.len(), 1);
    let event = soon(told.next()).await.unwrap();
    assert!(matches!(event, Event::Draining { waiting_for: 1, .. }), "{event:?}");
    let refused = store.connect("three").await;
    assert_eq!(refused.acquire_writer().await.map(drop).unwrap_err().kind(), ErrorKind::StoreLocked);
    let measures = refused.measures().await.unwrap();
    assert_eq!(ended(&measures, LeaseKind::Writer, AcquireOutcome::Failed(ErrorKind::StoreLocked)), 1);
    writer.release().await.unwrap();
    soon(draining).await.unwrap().unwrap().release().await.unwrap();
    let measures = until(&two, "the end", |seen| seen.leases.is_empty()).await;
    assert_eq!(ended(&measures, LeaseKind::Fsck, AcquireOutcome::Granted), 1);
    assert_eq!((measures.drains.count, measures.draining, measures.acquiring.len()), (1, None, 0));
    assert!(held.is_released(), "a snapshot's lease tells what became of it");
}

pub(crate) async fn an_acquisition_that_nobody_waits_for_is_counted_as_withdrawn(store: Store) {
    let one = store.first("one").await;
    let two = store.connect("two").await;
    let writer = one.acquire_writer().await.unwrap();
    let draining = tokio::spawn(two.acquire_fsck().drain_budget(BOUND).into_future());
    until(&two, "a drain", |seen| seen.draining.is_some()).await;
    draining.abort();
    let withdrawn = |seen: &Measures| ended(seen, LeaseKind::Fsck, AcquireOutcome::Withdrawn) == 1;
    let measures = until(&two, "the withdrawal", withdrawn).await;
    assert_eq!((measures.drains.count, measures.draining), (1, None));
    writer.release().await.unwrap();
}

pub(crate) async fn the_entries_of_gates_are_counted(store: Store) {
    let one = store.first("one").await;
    let gate = one.gate(GateOptions::default());
    let first = gate.enter().await.unwrap();
    for _ in 0..9 {
        drop(gate.try_enter().unwrap());
    }
    let measures = one.measures().await.unwrap();
    assert_eq!((measures.gates.entries, measures.gates.waits, measures.gates.inside), (10, 1, 1));
    assert_eq!(ended(&measures, LeaseKind::Writer, AcquireOutcome::Granted), 1);
    drop(first);
    let two = store.connect("two").await;
    soon(two.acquire_fsck()).await.unwrap().release().await.unwrap();
    let measures = until(&one, "the gate to close", |seen| seen.gates.closings == 1).await;
    assert_eq!(measures.gates.entries, 10);
}

pub(crate) async fn what_fails_and_what_is_lost_is_counted(store: Store) {
    store.first("admin").await;
    let (holder, wire) = store.severable("the holder").await;
    let lease = holder.acquire_writer().await.unwrap();
    wire.cut();
    soon(lease.lost()).await;
    let deadline = [(LossReason::Deadline, 1)];
    let measures = until(&holder, "the loss", |seen| seen.losses == deadline).await;
    assert!(measures.heartbeat_failures > 0);
    let held = &measures.leases[0];
    assert_eq!(held.check().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(held.remaining(), Some(Duration::ZERO));
    wire.mend();
    eventually(BOUND, "the same snapshot to show the lease valid again", || async { held.check() }).await;
}

pub(crate) async fn an_ended_coordinator_shows_no_sign_of_life(store: Store) {
    let one = store.first("one").await;
    one.shutdown().await;
    assert_eq!(one.measures().await.unwrap_err().kind(), ErrorKind::Unavailable);
}
