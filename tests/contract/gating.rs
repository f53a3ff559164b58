//! One lease for all writes of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use lockhouse::{Coordinator, ErrorKind, GateOptions, GateState, Locked, OnFsck, StoreState, WriterGate};

use crate::store::{BOUND, Store, locked, soon, until, until_free};
use crate::support::poll::eventually;

fn gate(coordinator: &Coordinator) -> WriterGate {
    coordinator.gate(GateOptions::default())
}

async fn until_is(gate: &WriterGate, state: GateState) {
    eventually(BOUND, "the gate's state", || async { if gate.state() == state { Ok(()) } else { Err(gate.state()) } })
        .await;
}

pub(crate) async fn all_writes_of_a_process_share_one_lease(store: Store) {
    let coordinator = store.first("one").await;
    let gate = coordinator.gate(GateOptions { label: Some("the importer".to_owned()), ..GateOptions::default() });
    assert_eq!(gate.state(), GateState::Closed);
    assert!(gate.try_enter().is_none(), "a closed gate has no lease");
    let entries = (0..50).map(|_| {
        let gate = gate.clone();
        tokio::spawn(async move { gate.enter().await.unwrap() })
    });
    let guards = soon(futures::future::join_all(entries)).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    assert_eq!((gate.state(), gate.inside()), (GateState::Open, 50));
    let status = coordinator.status().await.unwrap();
    assert_eq!(status.writers.len(), 1);
    assert_eq!(status.writers[0].holder.as_ref().unwrap().label.as_deref(), Some("the importer"));
    for guard in &guards {
        guard.check().unwrap();
        assert_eq!(guard.identifier(), status.writers[0].id);
        assert_eq!(Some(guard.generation()), status.generation);
        assert!(guard.remaining() > Duration::ZERO && guard.lost().now_or_never().is_none());
    }
    // From a thread without a runtime.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let gate = gate.clone();
            std::thread::spawn(move || (0..1000).filter(|_| gate.try_enter().is_some()).count())
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 1000);
    }
    drop(guards);
    assert_eq!((gate.state(), gate.inside()), (GateState::Open, 0));
}

pub(crate) async fn a_gate_closes_for_an_fsck_and_opens_after_it(store: Store) {
    let writer = store.first("writer").await;
    let checker = store.connect("checker").await;
    let gate = gate(&writer);
    let inside = gate.enter().await.unwrap();
    let (lease, generation) = (inside.identifier(), inside.generation());
    let fsck = tokio::spawn(checker.acquire_fsck().into_future());
    until_is(&gate, GateState::Closing).await;
    assert!(gate.try_enter().is_none());
    let waiting = tokio::spawn({
        let gate = gate.clone();
        async move { gate.enter().await }
    });
    inside.check().unwrap();
    assert!(!fsck.is_finished(), "somebody is inside");
    drop(inside);
    let fsck = soon(fsck).await.unwrap().unwrap();
    until_is(&gate, GateState::Closed).await;
    assert!(!waiting.is_finished());
    let status = checker.status().await.unwrap();
    assert_eq!((status.state, status.writers.len()), (StoreState::Exclusive, 0));
    fsck.release().await.unwrap();
    let again = soon(waiting).await.unwrap().unwrap();
    assert_eq!(again.generation(), generation + 1);
    assert_ne!(again.identifier(), lease);
    again.check().unwrap();
}

pub(crate) async fn a_gate_can_be_told_to_fail(store: Store) {
    let writer = store.first("writer").await;
    let checker = store.connect("checker").await;
    let fsck = checker.acquire_fsck().reason("nightly").await.unwrap();
    let gate = writer.gate(GateOptions { on_fsck: OnFsck::Fail, ..GateOptions::default() });
    for _ in 0..2 {
        match locked(soon(gate.enter()).await.unwrap_err()) {
            Locked::FsckHeld { lease, stale: false } => assert_eq!(lease.reason.as_deref(), Some("nightly")),
            other => panic!("{other:?}"),
        }
    }
    fsck.release().await.unwrap();
    soon(gate.enter()).await.unwrap().check().unwrap();
}

pub(crate) async fn an_entry_waits_no_longer_than_it_was_told(store: Store) {
    let writer = store.first("writer").await;
    let checker = store.connect("checker").await;
    let gate = gate(&writer);
    drop(soon(gate.enter_timeout(BOUND)).await.unwrap());
    let fsck = soon(checker.acquire_fsck().reason("long")).await.unwrap();
    let refused = soon(gate.enter_timeout(Duration::from_millis(50))).await.unwrap_err();
    assert!(matches!(locked(refused), Locked::FsckHeld { lease, .. } if lease.reason.as_deref() == Some("long")));
    fsck.release().await.unwrap();
    soon(gate.enter_timeout(BOUND)).await.unwrap().check().unwrap();
}

pub(crate) async fn an_idle_gate_gives_its_lease_back(store: Store) {
    let coordinator = store.first("one").await;
    let idle_release = Some(Duration::from_millis(100));
    let gate = coordinator.gate(GateOptions { idle_release, ..GateOptions::default() });
    let guard = gate.enter().await.unwrap();
    // Not while somebody is inside.
    until(&coordinator, "a while to pass", {
        let begin = std::time::Instant::now();
        move |_| begin.elapsed() > Duration::from_millis(400)
    })
    .await;
    assert_eq!(gate.state(), GateState::Open);
    guard.check().unwrap();
    drop(guard);
    until_free(&coordinator).await;
    until_is(&gate, GateState::Closed).await;
    soon(gate.enter()).await.unwrap().check().unwrap();
}

pub(crate) async fn a_gate_goes_with_its_last_handle(store: Store) {
    let coordinator = store.first("one").await;
    let gate = gate(&coordinator);
    let guard = gate.enter().await.unwrap();
    drop(gate);
    guard.check().unwrap();
    assert_eq!(coordinator.status().await.unwrap().writers.len(), 1);
    drop(guard);
    until_free(&coordinator).await;
}

pub(crate) async fn an_entry_that_nobody_waits_for_leaves_nothing(store: Store) {
    let coordinator = store.first("one").await;
    let checker = store.connect("checker").await;
    let gate = gate(&coordinator);
    for turns in 0..20 {
        let mut entering = std::pin::pin!(gate.enter());
        for _ in 0..turns {
            if entering.as_mut().now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    drop(gate);
    until_free(&checker).await;
}

pub(crate) async fn an_entry_hears_why_there_can_be_no_lease(store: Store) {
    let coordinator = store.connect("one").await;
    let gate = gate(&coordinator);
    let entries = soon(futures::future::join_all((0..3).map(|_| gate.enter()))).await;
    for refused in entries {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("init"), "{error}");
    }
    coordinator.init().await.unwrap();
    drop(soon(gate.enter()).await.unwrap());
    coordinator.shutdown().await;
    eventually(BOUND, "the gate to notice", || async {
        match gate.enter().await {
            Err(error) if error.to_string().contains("shut down") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// A stress run: many enter as fast as they can while fscks come and go, one of them of the same process.
pub(crate) async fn nobody_is_inside_while_an_fsck_is_alone(store: Store) {
    let writer = store.first("writer").await;
    let checker = store.connect("checker").await;
    let gate = gate(&writer);
    let (over, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let (gate, over, inside) = (gate.clone(), over.clone(), inside.clone());
            tokio::spawn(async move {
                let mut entries = 0;
                while !over.load(Ordering::SeqCst) {
                    let guard = gate.enter().await.unwrap();
                    inside.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    if guard.check().is_ok() {
                        entries += 1;
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
                entries
            })
        })
        .collect();
    for round in 0..6 {
        let checker = if round % 2 == 0 { &checker } else { &writer };
        let fsck = soon(checker.acquire_fsck()).await.unwrap();
        for _ in 0..20 {
            assert_eq!(inside.load(Ordering::SeqCst), 0, "round {round}");
            tokio::task::yield_now().await;
        }
        fsck.check().unwrap();
        fsck.release().await.unwrap();
        drop(soon(gate.enter()).await.unwrap());
    }
    over.store(true, Ordering::SeqCst);
    for writer in writers {
        assert!(soon(writer).await.unwrap() > 0);
    }
}

pub(crate) async fn a_gate_that_is_cut_off_closes_and_opens_anew(store: Store) {
    store.first("admin").await;
    let (writer, wire) = store.severable("the writer").await;
    let gate = gate(&writer);
    let guard = gate.enter().await.unwrap();
    let lease = guard.identifier();
    wire.cut();
    assert_eq!(soon(guard.lost()).await.kind(), ErrorKind::LeaseLost);
    assert!(guard.check().is_err());
    until_is(&gate, GateState::Closing).await;
    assert!(gate.try_enter().is_none());
    wire.mend();
    drop(guard);
    let again = eventually(BOUND, "the gate to open anew", || gate.enter()).await;
    again.check().unwrap();
    assert_ne!(again.identifier(), lease);
}
