//! What waiting costs the server: one small command a poll, and no more polls than the backoff promises.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use lockhouse::{ErrorKind, LeaseTiming, Watch};

use crate::common::{BOUND, PATIENT, Server, builder, first, sent, soon};
use crate::support::poll::eventually;

/// Longer pauses than in other tests: those of the default timing.
const TIMING: LeaseTiming =
    LeaseTiming { poll_initial: Duration::from_millis(20), poll_max: Duration::from_millis(250), ..PATIENT };
const WAIT: Duration = Duration::from_secs(4);

/// How many polls fit into so long: each pause is at least half of what it may be.
fn at_most(elapsed: Duration) -> usize {
    let mut pause = TIMING.poll_initial;
    let (mut spent, mut polls) = (Duration::ZERO, 1);
    while spent < elapsed {
        spent += pause / 2;
        pause = (pause * 2).min(TIMING.poll_max);
        polls += 1;
    }
    polls
}

#[tokio::test]
async fn whoever_waits_polls_at_the_pace_that_was_promised() {
    for (server, watch) in
        [(Server::ReplicaSet, Watch::Never), (Server::ReplicaSet, Watch::Auto), (Server::Standalone, Watch::Auto)]
    {
        let database = server.database();
        let holder = first(&database.uri(), "the holder").await;
        let proxy = database.proxy();
        let connecting = || builder(&database.uri_through(&proxy)).timing(TIMING).watch(watch).connect();
        let waiter = eventually(BOUND, "to connect", connecting).await;
        // The store is checked once, before the first verb that writes.
        waiter.acquire_writer().await.unwrap().release().await.unwrap();
        let fsck = holder.acquire_fsck().await.unwrap();

        for kind in ["writer", "fsck"] {
            proxy.forget_commands();
            let start = Instant::now();
            let refusal = match kind {
                "writer" => waiter.acquire_writer().wait(WAIT).await.map(drop),
                _ => waiter.acquire_fsck().wait(WAIT).await.map(drop),
            };
            let (elapsed, sent) = (start.elapsed(), sent(&proxy));
            assert_eq!(refusal.unwrap_err().kind(), ErrorKind::StoreLocked);
            assert!(elapsed >= WAIT, "gave up after {elapsed:?}");
            let context = format!("{kind} on {server:?}, watch {watch:?}, in {elapsed:?}: {sent:?}");
            let count = |name: &str| sent.iter().filter(|sent| *sent == name).count();
            let polls = count("find");
            // Being told begins the doubling anew, once: nothing happens here.
            let (streams, told) = (count("aggregate"), count("getMore"));
            let streaming = server == Server::ReplicaSet && watch == Watch::Auto;
            let most = at_most(elapsed) + if streaming { at_most(TIMING.poll_max) } else { 0 };
            assert!((4..=most).contains(&polls), "{polls} polls of {most}; {context}");
            // An open stream asks again each second.
            let most_told = if streaming { WAIT.as_secs() as usize + 3 } else { 0 };
            assert!(streams <= usize::from(streaming) && told <= most_told, "{context}");
            assert_eq!(polls + streams + told + count("killCursors"), sent.len(), "{context}");
        }
        fsck.release().await.unwrap();
    }
}

/// The look of a drain is larger, and comes at the same pace.
#[tokio::test]
async fn a_drain_looks_at_the_pace_that_was_promised() {
    let database = Server::ReplicaSet.database();
    let holder = first(&database.uri(), "the holder").await;
    let proxy = database.proxy();
    let connecting = || builder(&database.uri_through(&proxy)).timing(TIMING).watch(Watch::Never).connect();
    let fsck = eventually(BOUND, "to connect", connecting).await;
    fsck.acquire_fsck().await.unwrap().release().await.unwrap();
    let writer = holder.acquire_writer().await.unwrap();
    proxy.forget_commands();
    let start = Instant::now();
    let refusal = soon(fsck.acquire_fsck().drain_budget(WAIT)).await.map(drop).unwrap_err();
    let (elapsed, looks) = (start.elapsed(), proxy.count("aggregate"));
    assert_eq!(refusal.kind(), ErrorKind::DrainTimeout);
    let most = at_most(elapsed);
    assert!((4..=most).contains(&looks), "{looks} of {most} in {elapsed:?}");
    writer.release().await.unwrap();
}

/// A standalone tells nobody who leaves, so a drain keeps to its first pace while it is young.
#[tokio::test]
async fn a_young_drain_that_nobody_tells_does_not_slow_down() {
    let database = Server::Standalone.database();
    let holder = first(&database.uri(), "the holder").await;
    let proxy = database.proxy();
    let connecting = || builder(&database.uri_through(&proxy)).timing(TIMING).connect();
    let fsck = eventually(BOUND, "to connect", connecting).await;
    fsck.acquire_fsck().await.unwrap().release().await.unwrap();
    let writer = holder.acquire_writer().await.unwrap();
    proxy.forget_commands();
    let start = Instant::now();
    let drain = tokio::spawn(fsck.acquire_fsck().drain_budget(BOUND).into_future());
    eventually(BOUND, "to look more often than one that slows down", || async {
        let (looks, fewer) = (proxy.count("aggregate"), at_most(start.elapsed()));
        if looks > fewer { Ok(()) } else { Err((looks, fewer)) }
    })
    .await;
    // Each pause is at least half of the first one.
    let (looks, elapsed) = (proxy.count("aggregate"), start.elapsed());
    assert!(looks as f64 <= elapsed.div_duration_f64(TIMING.poll_initial / 2) + 2.0, "{looks} in {elapsed:?}");
    writer.release().await.unwrap();
    soon(drain).await.unwrap().unwrap().release().await.unwrap();
}
