//! Who gets in, who waits for whom, and what a refusal says.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use lockhouse::{Error, ErrorKind, Event, Init, LeaseKind, LeaseState, LeaseTiming, Locked, Phase};

use crate::store::{BOUND, Store, TIMING, beat, locked, soon, until, until_free, until_stale};
use crate::support::poll::eventually;

pub(crate) async fn writers_share_the_store(store: Store) {
    let first = store.first("first").await;
    let mut leases = Vec::new();
    for number in 0..4 {
        let coordinator = if number % 2 == 0 { first.clone() } else { store.connect("another").await };
        leases.push(coordinator.acquire_writer().await.unwrap());
    }
    for lease in &leases {
        lease.check().unwrap();
        assert_eq!((lease.kind(), lease.generation()), (LeaseKind::Writer, 0));
    }
    let status = first.status().await.unwrap();
    assert_eq!(status.writers.len(), 4);
    let mut ids: Vec<&str> = leases.iter().map(|lease| lease.identifier()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4, "two leases with one id");
}

pub(crate) async fn an_fsck_is_alone_and_its_refusals_name_it(store: Store) {
    let holder = store.first("the holder").await;
    let other = store.connect("another").await;
    let fsck = holder.acquire_fsck().reason("yearly check").await.unwrap();
    assert_eq!((fsck.kind(), fsck.identifier()), (LeaseKind::Fsck, "lease/fsck"));

    let refusals =
        [other.acquire_writer().await.map(drop).unwrap_err(), other.acquire_fsck().await.map(drop).unwrap_err()];
    for refusal in refusals {
        assert_eq!(refusal.kind(), ErrorKind::StoreLocked);
        assert!(refusal.is_retryable());
        let text = refusal.to_string();
        for part in ["the holder", "yearly check", &std::process::id().to_string(), holder.store().as_str()] {
            assert!(text.contains(part), "no {part:?} in: {text}");
        }
        let Locked::FsckHeld { lease, stale: false } = locked(refusal) else { panic!("{text}") };
        assert_eq!(lease.owner.as_deref(), Some(fsck.owner()));
        assert_eq!(
            (lease.kind, lease.state, lease.phase),
            (LeaseKind::Fsck, LeaseState::Fresh, Some(Phase::Exclusive))
        );
        assert_eq!(lease.reason.as_deref(), Some("yearly check"));
        let named = lease.holder.unwrap();
        assert_eq!((named.label.as_deref(), named.pid), (Some("the holder"), std::process::id()));
    }
    assert!(other.status().await.unwrap().writers.is_empty(), "a refused writer left its document");
    fsck.check().unwrap();
    fsck.release().await.unwrap();
    other.acquire_writer().await.unwrap().release().await.unwrap();
    other.acquire_fsck().await.unwrap().release().await.unwrap();
}

pub(crate) async fn a_generation_is_raised_or_left(store: Store) {
    let coordinator = store.first("one").await;
    let generation = async || coordinator.status().await.unwrap().generation;
    assert_eq!(generation().await, Some(0));
    for expected in 1..=2 {
        let fsck = coordinator.acquire_fsck().await.unwrap();
        assert_eq!(fsck.generation(), expected);
        assert_eq!(generation().await, Some(expected));
        fsck.release().await.unwrap();
    }
    let fsck = coordinator.acquire_fsck().bump_generation(false).await.unwrap();
    assert_eq!(fsck.generation(), 2);
    fsck.release().await.unwrap();
    let writer = coordinator.acquire_writer().await.unwrap();
    assert_eq!(writer.generation(), 2);
    // Giving up before the grant raises nothing.
    let other = store.connect("two").await;
    other.acquire_fsck().drain_budget(Duration::from_millis(50)).await.map(drop).unwrap_err();
    assert_eq!(generation().await, Some(2));
}

pub(crate) async fn a_wait_is_bounded_in_all_and_names_the_holder(store: Store) {
    let holder = store.first("the holder").await;
    let other = store.connect("another").await;
    let fsck = holder.acquire_fsck().await.unwrap();
    let names_it = |error: Error| match locked(error) {
        Locked::FsckHeld { lease, .. } => lease.holder.unwrap().label.as_deref() == Some("the holder"),
        other => panic!("{other:?}"),
    };
    for wait in [Duration::ZERO, Duration::from_millis(700)] {
        let start = Instant::now();
        assert!(names_it(other.acquire_writer().wait(wait).await.map(drop).unwrap_err()));
        let took = start.elapsed();
        assert!(took >= wait && took < wait + Duration::from_secs(1), "{wait:?} took {took:?}");
        let start = Instant::now();
        assert!(names_it(other.acquire_fsck().wait(wait).await.map(drop).unwrap_err()));
        let took = start.elapsed();
        assert!(took >= wait && took < wait + Duration::from_secs(1), "{wait:?} took {took:?}");
    }
    fsck.release().await.unwrap();
    // Zero is one try, not none.
    other.acquire_writer().wait(Duration::ZERO).await.unwrap().release().await.unwrap();
    other.acquire_fsck().wait(Duration::ZERO).await.unwrap().release().await.unwrap();
}

pub(crate) async fn a_waiter_gets_in_when_the_store_is_free(store: Store) {
    let holder = store.first("the holder").await;
    let other = store.connect("another").await;
    for round in 0..2 {
        let fsck = holder.acquire_fsck().await.unwrap();
        let mut events = other.events();
        let waiting = tokio::spawn({
            let other = other.clone();
            async move {
                match round {
                    0 => other.acquire_writer().wait(BOUND).await.unwrap().release().await,
                    _ => other.acquire_fsck().wait(BOUND).await.unwrap().release().await,
                }
            }
        });
        // Said once, with the holder.
        let Some(Event::Waiting { behind }) = soon(events.next()).await else { panic!("no word of waiting") };
        assert_eq!(behind.owner.as_deref(), Some(fsck.owner()));
        assert!(!waiting.is_finished());
        fsck.release().await.unwrap();
        soon(waiting).await.unwrap().unwrap();
    }
}

pub(crate) async fn a_waiting_writer_registers_only_when_it_saw_no_fsck(store: Store) {
    let holder = store.first("the holder").await;
    let fsck = holder.acquire_fsck().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let other = store.connect("waiting").await;
        waiting.push(tokio::spawn(async move { other.acquire_writer().wait(Duration::from_secs(1)).await.map(drop) }));
    }
    let mut looks = 0;
    while waiting.iter().any(|task| !task.is_finished()) {
        let status = holder.status().await.unwrap();
        assert!(status.writers.is_empty(), "a waiting writer registered: {:?}", status.writers);
        looks += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(looks > 5, "looked only {looks} times");
    for task in waiting {
        locked(task.await.unwrap().unwrap_err());
    }
    fsck.check().unwrap();
}

pub(crate) async fn a_spent_drain_budget_names_who_was_left_and_frees_the_store(store: Store) {
    let writer = store.first("slow writer").await;
    let admin = store.connect("admin").await;
    let lease = writer.acquire_writer().reason("import").await.unwrap();
    let budget = Duration::from_millis(400);
    let start = Instant::now();
    let error = admin.acquire_fsck().drain_budget(budget).await.unwrap_err();
    let took = start.elapsed();
    assert!(took >= budget && took < budget + Duration::from_secs(2), "took {took:?}");
    assert_eq!(error.kind(), ErrorKind::DrainTimeout);
    let text = error.to_string();
    assert!(text.contains("slow writer") && text.contains("import"), "{text}");
    let Error::DrainTimeout(left) = error else { panic!("{text}") };
    assert_eq!((left.budget, left.writers.len()), (budget, 1));
    assert_eq!(left.writers[0].id, lease.identifier());
    assert!(admin.status().await.unwrap().fsck.is_none(), "the fsck lease still stands");
    lease.check().unwrap();
    beat(&lease).await;
    // The next comer is not in its way.
    admin.acquire_writer().await.unwrap().release().await.unwrap();
}

pub(crate) async fn progress_tells_who_is_waited_for(store: Store) {
    let one = store.first("one").await;
    let two = store.connect("two").await;
    let admin = store.connect("admin").await;
    let first = one.acquire_writer().await.unwrap();
    let second = two.acquire_writer().await.unwrap();
    let mut request = admin.acquire_fsck().drain_budget(BOUND);
    let mut progress = request.progress();
    let fsck = tokio::spawn(request.into_future());
    let both = soon(progress.next()).await.unwrap();
    assert_eq!((both.waiting_for.len(), both.stale, both.budget), (2, 0, BOUND));
    assert!(!both.waiting_for_fences);
    let labels: Vec<_> =
        both.waiting_for.iter().map(|lease| lease.holder.as_ref().unwrap().label.clone().unwrap()).collect();
    assert!(labels.contains(&"one".to_owned()) && labels.contains(&"two".to_owned()), "{labels:?}");
    // From its installation on it turns new writers away, and says that it drains.
    let late = store.connect("late").await;
    let Locked::FsckHeld { lease, .. } = locked(late.acquire_writer().await.unwrap_err()) else { panic!() };
    assert_eq!(lease.phase, Some(Phase::Draining));
    first.release().await.unwrap();
    let one_left = soon(
        progress
            .by_ref()
            .filter(|item| {
                let there = item.waiting_for.len() == 1;
                async move { there }
            })
            .boxed()
            .next(),
    )
    .await
    .unwrap();
    assert_eq!(one_left.waiting_for[0].id, second.identifier());
    assert!(one_left.elapsed >= both.elapsed);
    assert!(!fsck.is_finished());
    second.release().await.unwrap();
    let fsck = soon(fsck).await.unwrap().unwrap();
    let last = progress.collect::<Vec<_>>().await;
    assert!(last.last().is_some_and(|item| item.waiting_for.is_empty()), "{last:?}");
    fsck.check().unwrap();
}

pub(crate) async fn a_coordinator_does_not_wait_for_itself(store: Store) {
    let coordinator = store.first("one").await;
    let writer = coordinator.acquire_writer().await.unwrap();
    let start = Instant::now();
    let refusal = coordinator.acquire_fsck().wait(BOUND).await.map(drop).unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::Invalid);
    assert!(refusal.to_string().contains(writer.identifier()), "{refusal}");
    writer.release().await.unwrap();
    let fsck = coordinator.acquire_fsck().await.unwrap();
    for refusal in [
        coordinator.acquire_writer().wait(BOUND).await.map(drop).unwrap_err(),
        coordinator.acquire_fsck().wait(BOUND).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(refusal.kind(), ErrorKind::Invalid);
        assert!(refusal.to_string().contains("wait for itself"), "{refusal}");
    }
    assert!(start.elapsed() < BOUND / 2);
    fsck.check().unwrap();
    fsck.release().await.unwrap();
    coordinator.acquire_writer().await.unwrap().release().await.unwrap();
}

pub(crate) async fn stale_writers_end_a_drain_unless_somebody_said_that_they_are_dead(store: Store) {
    let admin = store.first("admin").await;
    let dead = store.dead_writer("died").await;
    until_stale(&admin, 1).await;
    let refusal = soon(admin.acquire_fsck()).await.unwrap_err();
    assert!(!refusal.is_retryable());
    let text = refusal.to_string();
    assert!(text.contains("died") && text.contains("prune"), "{text}");
    let Locked::StaleWriters { writers } = locked(refusal) else { panic!("{text}") };
    assert_eq!((writers.len(), writers[0].id.as_str(), writers[0].state), (1, dead.as_str(), LeaseState::Stale));
    assert!(admin.status().await.unwrap().fsck.is_none(), "the fsck lease still stands");

    let start = Instant::now();
    let fsck = soon(admin.acquire_fsck().force(true)).await.unwrap();
    assert!(start.elapsed() >= TIMING.stale_after(), "not watched for its stale age: {:?}", start.elapsed());
    assert!(admin.status().await.unwrap().writers.is_empty());
    fsck.check().unwrap();
}

pub(crate) async fn a_dead_fsck_is_replaced_by_force_and_a_fresh_one_is_not(store: Store) {
    let admin = store.first("admin").await;
    let (holder, clock) = store.stoppable("the holder").await;
    let fsck = holder.acquire_fsck().await.unwrap();
    let refusal = admin.acquire_fsck().force(true).await.unwrap_err();
    let text = refusal.to_string();
    let Locked::FsckFresh { lease } = locked(refusal) else { panic!("{text}") };
    assert_eq!(lease.owner.as_deref(), Some(fsck.owner()));
    fsck.check().unwrap();

    clock.stop();
    until_stale(&admin, 1).await;
    let refusal = admin.acquire_fsck().await.unwrap_err();
    assert!(!refusal.is_retryable());
    assert!(matches!(locked(refusal), Locked::FsckHeld { stale: true, .. }));
    let start = Instant::now();
    let successor = soon(admin.acquire_fsck().force(true)).await.unwrap();
    assert!(start.elapsed() >= TIMING.stale_after(), "not watched for its stale age: {:?}", start.elapsed());
    assert!(successor.generation() > fsck.generation());
    assert_eq!(fsck.check().unwrap_err().kind(), ErrorKind::LeaseLost);
    clock.go_on();
    soon(fsck.lost()).await;
    drop(fsck);
    holder.shutdown().await;
    beat(&successor).await;
    successor.check().unwrap();
}

pub(crate) async fn bad_requests_are_invalid(store: Store) {
    let coordinator = store.connect("one").await;
    assert_eq!(coordinator.status().await.unwrap().generation, None);
    for refusal in [
        coordinator.acquire_writer().await.map(drop).unwrap_err(),
        coordinator.acquire_fsck().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(refusal.kind(), ErrorKind::Invalid);
        assert!(refusal.to_string().contains("lockhouse init"), "{refusal}");
    }
    until_free(&coordinator).await;
    assert_eq!(coordinator.init().await.unwrap(), Init::Made);
    assert_eq!(coordinator.init().await.unwrap(), Init::AlreadyThere);

    let long = "x".repeat(5000);
    for refusal in [
        coordinator.acquire_writer().label(&long).await.map(drop).unwrap_err(),
        coordinator.acquire_fsck().reason(&long).await.map(drop).unwrap_err(),
        coordinator.record("noted", None, Some(long.clone())).await.unwrap_err(),
        store.builder().label(&long).connect().await.map(drop).unwrap_err(),
        store.builder().timing(LeaseTiming { stale_multiplier: 2, ..TIMING }).connect().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(refusal.kind(), ErrorKind::Invalid, "{refusal}");
    }
    // What looks like an expression of the server's language is a text.
    for odd in ["$owner", "$$NOW", "{\"$set\": 1}", "a\0b", "ü\u{202e}"] {
        let lease = coordinator.acquire_writer().label(odd).reason(odd).await.unwrap();
        let status = coordinator.status().await.unwrap();
        let shown = status.writers.iter().find(|shown| shown.id == lease.identifier()).unwrap();
        assert_eq!(shown.reason.as_deref(), Some(odd));
        assert_eq!(shown.holder.as_ref().unwrap().label.as_deref(), Some(odd));
        lease.release().await.unwrap();
    }
    let nobody = until(&coordinator, "nothing to be left", |status| status.writers.is_empty());
    assert!(soon(nobody.map(|status| status.fsck.is_none())).await);
}

/// Fscks that wait leave no gap between one and the next; yet a writer that waits is let in after two of them at most:
/// the one it found, and one more where it lost the race for the first turn's beginning.
pub(crate) async fn fscks_that_follow_one_another_let_writers_in(store: Store) {
    let writer = store.first("writer").await;
    let granted = Arc::new(AtomicUsize::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let mut fscks = Vec::new();
    for name in ["one", "another"] {
        let (checker, granted, over) = (store.connect(name).await, granted.clone(), over.clone());
        fscks.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let fsck = checker.acquire_fsck().wait(BOUND * 3).await.unwrap();
                granted.fetch_add(1, Ordering::Relaxed);
                fsck.release().await.unwrap();
            }
        }));
    }
    for _ in 0..3 {
        // Each time behind an fsck that is there already, and others that wait.
        let before = granted.load(Ordering::Relaxed);
        eventually(BOUND, "another fsck", || async {
            let now = granted.load(Ordering::Relaxed);
            if now > before { Ok(()) } else { Err(now) }
        })
        .await;
        let before = granted.load(Ordering::Relaxed);
        let lease = soon(writer.acquire_writer().wait(BOUND).into_future()).await.unwrap();
        let meanwhile = granted.load(Ordering::Relaxed) - before;
        assert!(meanwhile <= 2, "{meanwhile} fscks were granted while a writer waited");
        lease.release().await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    for fsck in fscks {
        soon(fsck).await.unwrap();
    }
}
