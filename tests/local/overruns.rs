//! A process that is stopped while so much happens that the kernel drops directory events: when it goes on it notices
//! what it waited for all the same, is told of what comes later, and rests.

use std::future::IntoFuture;
use std::time::Duration;

use lockhouse::StoreState;

use super::probe::{NEVER, Probe};
use super::store::{PATIENCE, Store};
use super::support::overrun::{rests, stop_and_overrun};
use super::support::poll::eventually;

async fn until(looker: &lockhouse::Coordinator, state: StoreState) {
    eventually(PATIENCE, "the state", || async {
        let status = looker.status().await.unwrap();
        if status.state == state { Ok(()) } else { Err(status.state) }
    })
    .await;
}

/// Each thing twice: when events were dropped, and after that.
const ROUNDS: [bool; 2] = [true, false];

/// Stops the probe while events are dropped, in this round; in the next one it has nothing to do.
fn while_it_waits(probe: &Probe, store: &Store, drops: bool) {
    if drops {
        stop_and_overrun(probe, &[&store.leases("writers"), &store.leases("")]);
    } else {
        rests(probe);
    }
}

#[tokio::test]
async fn a_drain_notices_that_the_writers_have_gone() {
    let store = Store::new();
    let other = store.connect("other").await;
    let mut probe = Probe::on(&store.at, NEVER);
    for drops in ROUNDS {
        let writer = other.acquire_writer().await.unwrap();
        probe.tell("fsck");
        until(&other, StoreState::Draining).await;
        while_it_waits(&probe, &store, drops);
        writer.release().await.unwrap();
        probe.go_on();
        assert_eq!(probe.answer_within(PATIENCE), "granted", "events dropped: {drops}");
        assert_eq!(probe.ask("release"), "released");
    }
}

#[tokio::test]
async fn a_writer_that_waits_notices_that_the_fsck_has_gone() {
    let store = Store::new();
    let other = store.connect("other").await;
    let mut probe = Probe::on(&store.at, NEVER);
    for drops in ROUNDS {
        let fsck = other.acquire_fsck().await.unwrap();
        assert_eq!(probe.ask("writer"), "waiting");
        while_it_waits(&probe, &store, drops);
        fsck.release().await.unwrap();
        probe.go_on();
        assert_eq!(probe.answer_within(PATIENCE), "granted", "events dropped: {drops}");
        assert_eq!(probe.ask("release"), "released");
    }
}

#[tokio::test]
async fn a_gate_notices_an_fsck_and_its_end() {
    let store = Store::new();
    let other = store.connect("other").await;
    let mut probe = Probe::on(&store.at, Duration::from_millis(20));
    for drops in ROUNDS {
        assert_eq!(probe.ask("gate"), "in");
        while_it_waits(&probe, &store, drops);
        let draining = tokio::spawn(other.acquire_fsck().drain_budget(PATIENCE).into_future());
        until(&store.connect("looker").await, StoreState::Draining).await;
        probe.go_on();
        let fsck = draining.await.unwrap().expect("the gate closes");

        assert_eq!(probe.ask("gate"), "waiting");
        while_it_waits(&probe, &store, drops);
        fsck.release().await.unwrap();
        probe.go_on();
        assert_eq!(probe.answer_within(PATIENCE), "in", "events dropped: {drops}");
    }
}
