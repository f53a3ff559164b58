//! `/v1/events`.

use std::time::Duration;

use futures::executor::block_on;
use lockhouse::service::Limits;

use crate::client::{Listener, get};
use crate::served::{Served, another, memory, often, until};

#[test]
fn what_happens_is_told_with_ids() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let mut listener = Listener::start(served.address, "/v1/events", None);
    let lease = block_on(coordinator.acquire_writer().into_future()).unwrap();
    let acquired = listener.until("acquired");
    assert_eq!((&acquired.data["id"], &acquired.data["kind"]), (&lease.identifier().into(), &"writer".into()));
    assert!(acquired.data["at"].is_string());
    assert_eq!(listener.until("joined").data["writers"], 1);

    let checker = another(&store, "checker");
    let draining = std::thread::spawn(move || block_on(checker.acquire_fsck().into_future()).unwrap());
    let phase = listener.until("phase");
    assert_eq!((&phase.data["from"], &phase.data["to"]), (&"open".into(), &"draining".into()));
    block_on(lease.release()).unwrap();
    listener.until("released");
    let fsck = draining.join().unwrap();
    assert_eq!(listener.until("phase").data["to"], "exclusive");
    assert_eq!(listener.until("generation").data["to"], 1);
    block_on(fsck.release()).unwrap();
    assert_eq!(listener.until("phase").data["to"], "open");
}

#[test]
fn the_own_drain_is_told_as_it_goes_on() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let writer = another(&store, "writer");
    let lease = block_on(writer.acquire_writer().into_future()).unwrap();
    let mut listener = Listener::start(served.address, "/v1/events", None);
    let checker = coordinator.clone();
    let draining = std::thread::spawn(move || block_on(checker.acquire_fsck().into_future()).unwrap());
    let seen = listener.until("draining");
    assert_eq!((&seen.data["waiting_for"], &seen.data["stale"]), (&1.into(), &0.into()));
    let metrics = until(served.address, "/metrics", "the drain", |answer| {
        answer.metric("lockhouse_drain_waiting_writers") == 1.0
    });
    assert!(metrics.metric("lockhouse_drain_budget_seconds") == 600.0);
    block_on(lease.release()).unwrap();
    assert_eq!(listener.until("draining").data["waiting_for"], 0);
    assert_eq!(listener.until("acquired").data["kind"], "fsck");
    block_on(draining.join().unwrap().release()).unwrap();
}

#[test]
fn who_comes_again_misses_nothing_that_is_kept() {
    let (_store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let mut listener = Listener::start(served.address, "/v1/events", None);
    let take_turns = || {
        for _ in 0..3 {
            block_on(block_on(coordinator.acquire_writer().into_future()).unwrap().release()).unwrap();
        }
    };
    take_turns();
    let first = listener.until("acquired");
    drop(listener);
    let last = first.id.as_deref().unwrap();
    let number = |id: &str| id.rsplit_once('-').unwrap().1.parse::<u64>().unwrap();
    let mut again = Listener::start(served.address, "/v1/events", Some(last));
    let mut expected = number(last) + 1;
    let mut acquired = 0;
    while acquired < 2 {
        let event = again.next().unwrap();
        assert_eq!(number(event.id.as_deref().unwrap()), expected);
        expected += 1;
        acquired += usize::from(event.name == "acquired");
    }
    // The id of another run: all that is kept is new.
    let mut strange = Listener::start(served.address, "/v1/events", Some("0123-77"));
    assert_eq!(number(strange.next().unwrap().id.as_deref().unwrap()), 1);
}

#[test]
fn a_listener_who_falls_behind_is_let_go_and_nobody_waits_for_him() {
    let (store, coordinator) = memory();
    let limits = Limits { stall: Duration::from_millis(500), ..Limits::default() };
    let served = Served::start(&coordinator, often(), limits);
    until(served.address, "/readyz", "to be ready", |answer| answer.code == 200);
    let mut slow = Listener::start(served.address, "/v1/events", None);
    let mut quick = Listener::start(served.address, "/v1/events", None);
    let reader = std::thread::spawn(move || {
        let mut waited = 0;
        loop {
            match quick.next().expect("a listener who keeps up is not let go").name.as_str() {
                "waiting" => waited += 1,
                "released" => return waited,
                _ => {}
            }
        }
    });
    // More than any socket buffers, while the slow one reads nothing: each refusal tells the long reason.
    let checker = another(&store, "checker");
    let fsck = block_on(checker.acquire_fsck().reason("x".repeat(4000)).into_future()).unwrap();
    for _ in 0..3000 {
        let waiting = coordinator.acquire_writer().wait(Duration::from_millis(1)).into_future();
        block_on(waiting).map(drop).unwrap_err();
    }
    block_on(fsck.release()).unwrap();
    block_on(block_on(coordinator.acquire_writer().into_future()).unwrap().release()).unwrap();
    assert!(reader.join().unwrap() > 1500);
    assert_eq!(get(served.address, "/healthz").code, 200);
    let mut told = 0;
    while let Ok(Some(event)) = slow.try_next() {
        assert_ne!(event.name, "released", "it was told all of it, after {told}");
        told += 1;
    }
}

#[test]
fn a_page_that_wants_to_know_is_told_of_each_look() {
    let (_store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let mut listener = Listener::start(served.address, "/v1/events?looks=true", None);
    let first = listener.until("look");
    assert!(first.id.is_none(), "a look is not worth to be kept");
    assert!(listener.until("look").data["look"].as_u64() > first.data["look"].as_u64());
}
