//! Servers that hang and heartbeats that fail: a holder stops in time, and not too early.

use std::time::{Duration, Instant};

use futures::StreamExt;
use lockhouse::{ErrorKind, Event, LossReason};

use crate::common::{BOUND, Server, TIMING, beat, connect, first, soon};
use crate::support::poll::eventually;
use crate::support::proxy::Action;

/// Beyond the limit of one refresh, and far from the deadline.
const SLOW: Duration = Duration::from_millis(700);

#[tokio::test]
async fn the_holders_of_a_server_that_hangs_stop_before_their_leases_look_stale() {
    let database = Server::ReplicaSet.database();
    let admin = first(&database.uri(), "admin").await;
    let proxy = database.proxy();
    let holder = connect(&database.uri_through(&proxy), "the holder").await;
    let writer = holder.acquire_writer().await.unwrap();
    let token = writer.token();
    let mut events = holder.events();
    beat(&writer).await;
    // Whatever is confirmed from here on was sent before.
    proxy.blackhole();
    let start = Instant::now();
    let mut stale_at = None;
    let mut stopped_at = None;
    while stale_at.is_none() {
        if stopped_at.is_none() && writer.check().is_err() {
            stopped_at = Some(start.elapsed());
        }
        if admin.status().await.unwrap().needing_a_person().count() > 0 {
            stale_at = Some(start.elapsed());
        }
        assert!(start.elapsed() < BOUND);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stopped_at = stopped_at.expect("the lease looks stale and its holder has not stopped");
    assert!(stopped_at < TIMING.stale_after(), "stopped after {stopped_at:?}");
    assert!(stopped_at >= TIMING.valid_for() / 2, "gave up early, after {stopped_at:?}");
    soon(token.cancelled()).await;
    assert!(matches!(soon(events.next()).await, Some(Event::Doubtful { .. })));
    assert!(matches!(soon(events.next()).await, Some(Event::Lost { why: LossReason::Deadline, .. })));
    // A look, too, ends within a bound.
    let begin = Instant::now();
    assert_eq!(holder.status().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(begin.elapsed() < TIMING.stale_after());

    proxy.pass();
    // What hung is closed by the client; the connections of a black hole never answer again.
    proxy.reset();
    eventually(BOUND, "the lease to come back", || async { writer.check() }).await;
    assert!(!writer.token().is_cancelled());
}

#[tokio::test]
async fn one_slow_heartbeat_loses_nothing() {
    let database = Server::ReplicaSet.database();
    first(&database.uri(), "admin").await;
    let proxy = database.proxy();
    let holder = connect(&database.uri_through(&proxy), "the holder").await;
    let writer = holder.acquire_writer().await.unwrap();
    for action in [Action::DelayReply(SLOW), Action::Delay(SLOW), Action::Cut, Action::DropReply] {
        beat(&writer).await;
        let mut events = holder.events();
        proxy.on_command("update", action, 1);
        let recovered = async {
            let mut seen = Vec::new();
            while let Some(event) = events.next().await {
                let over = matches!(event, Event::Recovered { .. });
                seen.push(event);
                if over {
                    break;
                }
            }
            seen
        };
        let seen = tokio::time::timeout(TIMING.stale_after(), recovered).await;
        match (action, seen) {
            // The driver repeats a statement by itself when its connection breaks.
            (Action::Cut, Err(_)) => {}
            (_, seen) => {
                let seen = seen.unwrap_or_else(|_| panic!("{action:?}: no recovery"));
                assert!(matches!(seen[..], [Event::Doubtful { .. }, Event::Recovered { .. }]), "{action:?}: {seen:?}");
            }
        }
        writer.check().unwrap();
    }
}

#[test]
fn a_caller_that_blocks_all_its_threads_keeps_its_lease() {
    const THREADS: usize = 2;
    let database = Server::ReplicaSet.database();
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().unwrap();
    let (application, observer) = (runtime(), runtime());
    let writer = application.block_on(async {
        let holder = first(&database.uri(), "blocks").await;
        holder.acquire_writer().await.unwrap()
    });
    let for_so_long = TIMING.stale_after() * 3;
    let (began, all_began) = std::sync::mpsc::channel();
    for _ in 0..THREADS {
        let began = began.clone();
        application.spawn(async move {
            began.send(()).unwrap();
            std::thread::sleep(for_so_long);
        });
    }
    let _both = (all_began.recv_timeout(BOUND).unwrap(), all_began.recv_timeout(BOUND).unwrap());
    let start = Instant::now();
    observer.block_on(async {
        let admin = connect(&database.uri(), "admin").await;
        while start.elapsed() < for_so_long - Duration::from_millis(200) {
            writer.check().unwrap();
            let status = admin.status().await.unwrap();
            assert_eq!((status.writers.len(), status.needing_a_person().count()), (1, 0), "{status:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        writer.release().await.unwrap();
    });
}

#[tokio::test]
async fn an_exhausted_pool_of_the_application_does_not_hinder_a_heartbeat() {
    let database = Server::ReplicaSet.database();
    let uri = format!("{}&maxPoolSize=1", database.uri());
    let holder = first(&uri, "the holder").await;
    let things = database.raw().await.collection::<mongodb::bson::Document>("things");
    things.insert_many((0..300).map(|n| mongodb::bson::doc! { "_id": n })).await.unwrap();
    let application = mongodb::Client::with_uri_str(&uri).await.unwrap();
    let mut session = application.start_session().await.unwrap();
    let things = application.database(database.name()).collection::<mongodb::bson::Document>("things");
    let mut cursor = things.find(mongodb::bson::doc! {}).batch_size(2).session(&mut session).await.unwrap();
    assert!(cursor.advance(&mut session).await.unwrap());
    let leases = futures::future::join_all((0..5).map(|_| holder.acquire_writer().into_future())).await;
    let leases: Vec<_> = leases.into_iter().map(Result::unwrap).collect();
    let start = Instant::now();
    while start.elapsed() < TIMING.stale_after() {
        for lease in &leases {
            lease.check().unwrap();
        }
        assert!(cursor.advance(&mut session).await.unwrap());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for lease in leases {
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_slow_way_to_the_server_is_no_reason_to_lose_a_lease() {
    let database = Server::ReplicaSet.database();
    first(&database.uri(), "admin").await;
    let proxy = database.proxy();
    let holder = connect(&database.uri_through(&proxy), "far away").await;
    proxy.delay(Duration::from_millis(60), Duration::from_millis(60));
    let writer = holder.acquire_writer().wait(BOUND).await.unwrap();
    let start = Instant::now();
    while start.elapsed() < TIMING.stale_after() * 3 / 2 {
        writer.check().unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    writer.release().await.unwrap();
    let fsck = holder.acquire_fsck().wait(BOUND).await.unwrap();
    fsck.check().unwrap();
    fsck.release().await.unwrap();
}
