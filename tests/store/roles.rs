//! Owner and readers.

use futures::StreamExt;
use lockhouse::owner::{BatchResult, Ownership, Phase, Role, Until};
use lockhouse::records::{Operation, RefusalKind};
use lockhouse::{Error, ErrorKind};

use crate::probe::Probe;
use crate::support::poll::eventually;
use crate::{PATIENCE, Place, numbers, open, row, rows, schema, stream};

#[tokio::test]
async fn the_first_owns_the_store_and_every_open_of_it_is_the_same() {
    let place = Place::new();
    let store = open(&place.path()).await;
    assert_eq!(store.role(), Role::Owner);
    let Ownership::Named(state) = store.status() else { panic!("{:?}", store.status()) };
    assert_eq!((state.phase, state.pid, state.build.as_str()), (Phase::Ready, std::process::id(), "test"));
    assert!(state.spool.unwrap().formats.contains(&"ndjson".to_owned()));
    let again = open(&place.path()).await;
    assert_eq!(again.role(), Role::Owner);
    again.append(&stream("s"), &schema(), vec![row("a", 1)]).await.unwrap();
    again.close().await.unwrap();
    assert_eq!(store.role(), Role::Owner, "the other handle keeps it");
    assert_eq!(numbers(&store, "s", "a").await, [1]);
    store.close().await.unwrap();
    assert_eq!(lockhouse::owner::read_state(place.path()).unwrap(), Ownership::Nobody);
    let store = open(&place.path()).await;
    assert_eq!(rows(&store, "s").await.len(), 1);
}

#[tokio::test]
async fn a_reader_gets_back_what_the_owner_did() {
    let place = Place::new();
    let (mut owner, role) = Probe::start(&place.path());
    assert_eq!(role, "owner");
    let store = open(&place.path()).await;
    assert_eq!(store.role(), Role::Reader);
    assert_eq!(owner.ask("append owner 1 3"), "done");
    let applied = store.append(&stream("s"), &schema(), vec![row("reader", 1), row("reader", 2)]).await.unwrap();
    assert_eq!((applied.stored, applied.first_seq, applied.last_seq), (2, Some(4), Some(5)));
    assert_eq!(rows(&store, "s").await.len(), 5);
    // A refusal is the owner's, whichever process asks.
    store.apply(&stream("s"), Operation::Seal).await.unwrap();
    let refused = store.append(&stream("s"), &schema(), vec![row("reader", 3)]).await.unwrap_err();
    let Error::Refused(details) = &refused else { panic!("{refused}") };
    assert_eq!((details.refusal.kind, refused.kind()), (RefusalKind::Sealed, ErrorKind::Invalid));
    assert!(refused.to_string().contains("stream s"), "{refused}");
    assert_eq!(store.await_batch("never").await.unwrap(), BatchResult::Unknown);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_reader_takes_over_and_goes_on_in_order() {
    let place = Place::new();
    let (mut owner, _) = Probe::start(&place.path());
    let store = open(&place.path()).await;
    let mut roles = store.on_role();
    assert_eq!(roles.next().await, Some(Role::Reader));
    for n in 1..=5 {
        store.append(&stream("s"), &schema(), vec![row("me", n)]).await.unwrap();
    }
    owner.kill();
    // Through the spool, or directly, whatever this process is by then.
    for n in 6..=30 {
        store.append(&stream("s"), &schema(), vec![row("me", n)]).await.unwrap();
    }
    assert_eq!(tokio::time::timeout(PATIENCE, roles.next()).await.unwrap(), Some(Role::Owner));
    assert_eq!(numbers(&store, "s", "me").await, (1..=30).collect::<Vec<_>>());
    store.close().await.unwrap();
}

#[tokio::test]
async fn who_reads_for_long_keeps_no_election_waiting() {
    let place = Place::new();
    let (mut owner, _) = Probe::start(&place.path());
    assert_eq!(owner.ask("append owner 1 3"), "done");
    let store = open(&place.path()).await;
    let (begun, (go_on, wait)) = (std::sync::Arc::new(tokio::sync::Notify::new()), std::sync::mpsc::channel::<()>());
    let reading = tokio::spawn({
        let (store, begun) = (store.clone(), begun.clone());
        async move {
            let read = store.read(move |source| {
                begun.notify_one();
                let _ = wait.recv();
                source.meta(&stream("s"))
            });
            read.await.unwrap().unwrap().rows
        }
    });
    begun.notified().await;
    owner.kill();
    eventually(PATIENCE, "to own the store", || async {
        if store.role() == Role::Owner { Ok(()) } else { Err(store.status()) }
    })
    .await;
    store.append(&stream("s"), &schema(), vec![row("me", 1)]).await.unwrap();
    go_on.send(()).unwrap();
    assert_eq!(reading.await.unwrap(), 4, "as it is when it is read");
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_producer_may_end_at_once_and_a_backlog_waits_for_the_next_owner() {
    let place = Place::new();
    {
        let (_owner, _) = Probe::start(&place.path());
        let (mut producer, role) = Probe::start(&place.path());
        assert_eq!(role, "reader");
        assert_eq!(producer.ask("hand short 1 20"), "done");
        producer.kill();
    }
    let store = open(&place.path()).await;
    eventually(PATIENCE, "the backlog", || async {
        let found = numbers(&store, "s", "short").await;
        if found.len() == 20 { Ok(()) } else { Err(found) }
    })
    .await;
    assert_eq!(numbers(&store, "s", "short").await, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_writer_cuts_batches_in_either_role() {
    let place = Place::new();
    let (owner, _) = Probe::start(&place.path());
    let store = open(&place.path()).await;
    for (round, by) in ["reader", "owner"].into_iter().enumerate() {
        let mut writer = store.writer_with(lockhouse::spool::Caps { rows: 10, bytes: 1 << 20 });
        for n in 1..=95 {
            writer.row(&stream("s"), &schema(), row(by, n)).await.unwrap();
        }
        let flushed = writer.flush(Until::Applied).await.unwrap();
        assert_eq!((flushed.batches.len(), flushed.stored, flushed.refused.len()), (10, 95, 0), "{flushed:?}");
        assert_eq!(numbers(&store, "s", by).await, (1..=95).collect::<Vec<_>>());
        if round == 0 {
            drop(owner);
            eventually(PATIENCE, "to be the owner", || async {
                if store.role() == Role::Owner { Ok(()) } else { Err(store.status()) }
            })
            .await;
            break;
        }
    }
    let mut writer = store.writer_with(lockhouse::spool::Caps { rows: 10, bytes: 1 << 20 });
    for n in 1..=95 {
        writer.row(&stream("s"), &schema(), row("owner", n)).await.unwrap();
    }
    let flushed = writer.flush(Until::Durable).await.unwrap();
    assert_eq!((flushed.batches.len(), flushed.stored), (10, 95));
}
