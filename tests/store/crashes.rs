//! Owners that are killed at named points, while others write and while nobody does: each acknowledged row is there once,
//! in its writer's order, and the next owner has nothing to mend.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use lockhouse::owner::{Ownership, Phase};
use lockhouse::records::{Entry, Operation};
use lockhouse::spool::{NewBatch, Producer, Spool};

use crate::probe::Probe;
use crate::support::poll::eventually;
use crate::{PATIENCE, Place, numbers, open, row, schema, stream};

/// While it starts: nobody has been told anything yet.
const STARTING: [&str; 5] = ["presence-published", "store-starting", "store-opened", "batch-applied", "store-ready"];
/// While it and others write.
const WRITING: [&str; 6] = [
    "records-applied:9",
    "records-committed:9",
    "batch-loaded:7",
    "batch-applied:8",
    "batch-trashed:9",
    "records-committed:30",
];
/// While it closes the store.
const CLOSING: [&str; 3] = ["store-drained", "store-closed", "store-released"];

fn entry(by: &str, n: u64) -> Entry {
    let operation = Operation::Append { kind: schema().kind, rows: vec![row(by, n)], ttl: None, seal: false };
    Entry { stream: stream("s"), generation: None, operation }
}

/// What was published while nobody owned the store, by a producer that has gone.
fn backlog(store: &Path, by: &str, count: u64) {
    let producer = Producer::new(&Spool::open(store).unwrap(), "backlog");
    for n in 1..=count {
        producer.publish(&NewBatch::new(vec![schema()], vec![entry(by, n)]), "ndjson").unwrap();
    }
}

async fn store_with_backlog(place: &Place) {
    open(&place.path()).await.close().await.unwrap();
    backlog(&place.path(), "backlog", 5);
}

fn killed(doomed: &mut Probe, point: &str) {
    let status = doomed.died();
    assert_eq!(status.signal(), Some(9), "{point}: {status}");
}

/// All that `doomed` and the others wrote is there, and the spool has nothing left.
async fn verify(place: &Place, point: &str, others: &[&str], each: u64) {
    let store = open(&place.path()).await;
    let spool = place.0.path().join("records.spool");
    eventually(PATIENCE, "an empty spool", || async {
        match std::fs::read_dir(spool.join("incoming")).unwrap().count() {
            0 => Ok(()),
            left => Err((left, store.status())),
        }
    })
    .await;
    assert_eq!(numbers(&store, "s", "backlog").await, [1, 2, 3, 4, 5], "{point}");
    for by in others {
        assert_eq!(numbers(&store, "s", by).await, (1..=each).collect::<Vec<_>>(), "{point}: {by}");
    }
    let doomed = numbers(&store, "s", "doomed").await;
    assert_eq!(doomed, (1..=doomed.len() as u64).collect::<Vec<_>>(), "{point}");
    assert_eq!(std::fs::read_dir(spool.join("failed")).unwrap().count(), 0, "{point}");
    store.close().await.unwrap();
}

/// Three others that have the store open, and write while the owner is there and when it is gone.
async fn three_write(place: &Place, point: &str, mut doomed: Probe) {
    let mut others: Vec<Probe> = (0..3).map(|_| Probe::launch(&place.path(), None)).collect();
    let names = ["one", "two", "three"];
    for (probe, by) in others.iter_mut().zip(names) {
        probe.tell(&format!("append {by} 1 12"));
    }
    doomed.tell("append doomed 1 20");
    killed(&mut doomed, point);
    for (probe, by) in others.iter().zip(names) {
        let role = probe.answer();
        assert!(["owner", "reader"].contains(&role.as_str()), "{point}: {by} {role}");
        assert_eq!(probe.answer(), "done", "{point}: {by}");
    }
    // One of them has taken over.
    let owner = eventually(PATIENCE, "another owner", || async {
        match lockhouse::owner::read_state(place.path()).unwrap() {
            Ownership::Named(state) if state.phase == Phase::Ready => Ok(state.pid),
            other => Err(other),
        }
    })
    .await;
    assert!(others.iter().any(|probe| probe.pid() == owner), "{point}");
    for probe in &mut others {
        assert_eq!(probe.ask("close"), "closed", "{point}");
    }
    verify(place, point, &names, 12).await;
}

#[tokio::test]
async fn killed_while_it_starts_another_one_begins() {
    for point in STARTING {
        let place = Place::new();
        store_with_backlog(&place).await;
        let mut doomed = Probe::launch(&place.path(), Some(point));
        killed(&mut doomed, point);
        let (mut next, role) = Probe::start(&place.path());
        assert_eq!(role, "owner", "{point}");
        assert_eq!(next.ask("append next 1 3"), "done", "{point}");
        assert_eq!(next.ask("close"), "closed");
        verify(&place, point, &["next"], 3).await;
    }
}

#[tokio::test]
async fn killed_while_it_makes_the_store_another_one_makes_it() {
    for point in ["elected", "records-migrated"] {
        let place = Place::new();
        let mut doomed = Probe::launch(&place.path(), Some(point));
        killed(&mut doomed, point);
        let store = open(&place.path()).await;
        store.append(&stream("s"), &schema(), vec![row("next", 1)]).await.unwrap();
        assert_eq!(numbers(&store, "s", "next").await, [1], "{point}");
    }
}

#[tokio::test]
async fn killed_while_four_write_one_of_three_takes_over() {
    for point in WRITING {
        let place = Place::new();
        store_with_backlog(&place).await;
        let doomed = Probe::launch(&place.path(), Some(point));
        assert_eq!(doomed.answer(), "owner", "{point}");
        three_write(&place, point, doomed).await;
    }
}

#[tokio::test]
async fn killed_while_it_closes_the_store_it_has_lost_nothing() {
    for point in CLOSING {
        let place = Place::new();
        store_with_backlog(&place).await;
        let mut doomed = Probe::launch(&place.path(), Some(point));
        assert_eq!(doomed.answer(), "owner");
        let (mut other, role) = Probe::start(&place.path());
        assert_eq!(role, "reader");
        assert_eq!(other.ask("append one 1 3"), "done");
        assert_eq!(doomed.ask("append doomed 1 4"), "done");
        doomed.tell("close");
        killed(&mut doomed, point);
        // What comes after the last drain is not left lying when the last process goes.
        assert_eq!(other.ask("hand one 4 9"), "done", "{point}");
        assert_eq!(other.ask("close"), "closed", "{point}");
        let incoming = place.0.path().join("records.spool/incoming");
        assert_eq!(std::fs::read_dir(incoming).unwrap().count(), 0, "{point}");
        verify(&place, point, &["one"], 9).await;
        let store = open(&place.path()).await;
        assert_eq!(numbers(&store, "s", "doomed").await, [1, 2, 3, 4], "{point}");
    }
}

#[tokio::test]
async fn fifty_batches_and_a_seal_stay_in_order_across_a_kill() {
    let place = Place::new();
    let mut doomed = Probe::launch(&place.path(), Some("batch-applied:20"));
    assert_eq!(doomed.answer(), "owner");
    let store = open(&place.path()).await;
    for n in 1..=50 {
        store.hand_over(NewBatch::new(vec![schema()], vec![entry("me", n)])).await.unwrap();
    }
    let sealed = store.apply(&stream("s"), Operation::Seal).await.unwrap();
    assert_eq!(sealed.stored, 0);
    killed(&mut doomed, "batch-applied:20");
    assert_eq!(numbers(&store, "s", "me").await, (1..=50).collect::<Vec<_>>());
    let meta = store.meta(&stream("s")).await.unwrap().unwrap();
    assert!(meta.sealed);
    store.append(&stream("s"), &schema(), vec![row("me", 51)]).await.unwrap_err();
    store.close().await.unwrap();
}
