//! Change streams that end, are refused, hang or miss something, and gates while it happens: a stream only ever shortens a
//! sleep, so everybody who listens to one gets on by polling.

use std::time::Duration;

use lockhouse::{Coordinator, ErrorKind, GateOptions, GateState, Watch, WriterGate};
use mongodb::bson::{Document, doc};

use crate::common::{BOUND, Server, builder, collection, first, soon};
use crate::support::database::TestDatabase;
use crate::support::poll::eventually;
use crate::support::replica_set::ReplicaSet;

/// One that is told of everything that can be told.
async fn listening(database: &TestDatabase) -> Coordinator {
    let connecting = || builder(&database.uri()).watch(Watch::Always).label("listening").connect();
    eventually(BOUND, "to connect", connecting).await
}

async fn until(gate: &WriterGate, state: GateState) {
    eventually(BOUND, "the gate's state", || async { if gate.state() == state { Ok(()) } else { Err(gate.state()) } })
        .await;
}

/// The ids of the change streams' cursors on this database.
async fn cursors(database: &TestDatabase) -> Vec<i64> {
    let admin = database.client().await.database("admin");
    let pipeline = [
        doc! { "$currentOp": { "allUsers": true, "idleCursors": true } },
        doc! { "$match": { "ns": { "$regex": format!("^{}\\.", database.name()) } } },
    ];
    let command = doc! { "aggregate": 1, "pipeline": &pipeline[..], "cursor": {} };
    let reply = admin.run_command(command).await.unwrap();
    let found = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let cursor =
        |found: &Document| found.get_document("cursor").ok().and_then(|cursor| cursor.get_i64("cursorId").ok());
    found.iter().filter_map(|found| found.as_document()).filter_map(cursor).collect()
}

/// The gate closes for an fsck, and opens again after it.
async fn gives_way(gate: &WriterGate, checker: &Coordinator) {
    drop(soon(gate.enter()).await.unwrap());
    let fsck = soon(checker.acquire_fsck().wait(BOUND)).await.unwrap();
    until(gate, GateState::Closed).await;
    fsck.release().await.unwrap();
    soon(gate.enter()).await.unwrap().check().unwrap();
}

#[tokio::test]
async fn a_gate_gets_on_without_its_stream() {
    let database = Server::ReplicaSet.database();
    let checker = first(&database.uri(), "checker").await;
    // Each ends the stream, or keeps it from telling anything: the history is lost, the collection was dropped under it, a
    // privilege is missing, and a server that does not answer.
    for code in [286, 280, 13, 0] {
        let listener = listening(&database).await;
        let gate = listener.gate(GateOptions::default());
        drop(soon(gate.enter()).await.unwrap());
        eventually(BOUND, "a stream", || async {
            let cursors = cursors(&database).await;
            if cursors.is_empty() { Err("none") } else { Ok(()) }
        })
        .await;
        let fail = database.fail_command().commands(&["getMore"]);
        let fail = if code == 0 { fail.block(Duration::from_secs(5)) } else { fail.error_code(code) };
        let fault = fail.on().await;
        gives_way(&gate, &checker).await;
        fault.off().await;
        gives_way(&gate, &checker).await;
        drop(gate);
        listener.shutdown().await;
    }
}

#[tokio::test]
async fn a_stream_that_cannot_be_had_is_no_failure() {
    let database = Server::ReplicaSet.database();
    let checker = first(&database.uri(), "checker").await;
    let listener = listening(&database).await;
    let gate = listener.gate(GateOptions::default());
    drop(soon(gate.enter()).await.unwrap());
    let fault = database.fail_command().commands(&["getMore"]).error_code(40573).on().await;
    let writer = soon(listener.acquire_writer()).await.unwrap();
    let draining = tokio::spawn(checker.acquire_fsck().into_future());
    until(&gate, GateState::Closed).await;
    writer.release().await.unwrap();
    let fsck = soon(draining).await.unwrap().unwrap();
    // Whoever waits for it gets on, too.
    let waiting = tokio::spawn(listener.acquire_writer().wait(BOUND).into_future());
    fsck.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    fault.off().await;
}

#[tokio::test]
async fn a_killed_stream_is_had_again_or_done_without() {
    let database = Server::ReplicaSet.database();
    let checker = first(&database.uri(), "checker").await;
    let listener = listening(&database).await;
    let gate = listener.gate(GateOptions::default());
    drop(soon(gate.enter()).await.unwrap());
    let killed = eventually(BOUND, "a stream", || async {
        let cursors = cursors(&database).await;
        if cursors.is_empty() { Err("none") } else { Ok(cursors) }
    })
    .await;
    // One that is just used answers that it was; either way it is gone a moment later, or another is there.
    let _ = database.raw().await.run_command(doc! { "killCursors": "lockhouse", "cursors": killed }).await;
    for _ in 0..3 {
        gives_way(&gate, &checker).await;
    }
}

#[tokio::test]
async fn a_collection_that_is_dropped_closes_the_gate_until_it_is_made_again() {
    let database = Server::ReplicaSet.database();
    let coordinator = first(&database.uri(), "writer").await;
    let gate = coordinator.gate(GateOptions::default());
    let guard = soon(gate.enter()).await.unwrap();
    collection(&database).await.drop().await.unwrap();
    let lost = soon(guard.lost()).await;
    assert_eq!(lost.kind(), ErrorKind::LeaseLost, "{lost}");
    guard.check().unwrap_err();
    drop(guard);
    until(&gate, GateState::Closed).await;
    let error = soon(gate.enter()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("lockhouse init"), "{error}");
    coordinator.init().await.unwrap();
    soon(gate.enter()).await.unwrap().check().unwrap();
}

#[tokio::test]
async fn a_fail_over_costs_no_open_gate_its_lease() {
    let mut set = ReplicaSet::start(3).await;
    let database = set.database();
    let timing = lockhouse::LeaseTiming {
        refresh_interval: Duration::from_secs(3),
        stale_multiplier: 5,
        ..crate::common::TIMING
    };
    let connecting = || Coordinator::builder(&database.uri()).unwrap().timing(timing).watch(Watch::Always).connect();
    let writer = eventually(BOUND, "to connect", connecting).await;
    eventually(BOUND, "the layout", || writer.init()).await;
    let checker = eventually(BOUND, "to connect", connecting).await;
    let gates: Vec<WriterGate> = (0..3).map(|_| writer.gate(GateOptions::default())).collect();
    let mut guards = Vec::new();
    for gate in &gates {
        guards.push(soon(gate.enter()).await.unwrap());
    }
    let leases: Vec<String> = guards.iter().map(|guard| guard.identifier()).collect();
    set.kill_primary().await;
    set.primary().await;
    // Each is confirmed by the new primary before its deadline: it is the same lease all the time.
    eventually(BOUND, "the leases to be confirmed", || async {
        let left = guards.iter().map(|guard| guard.remaining()).min().unwrap();
        if left > timing.valid_for() - timing.refresh_interval { Ok(()) } else { Err(left) }
    })
    .await;
    for guard in &guards {
        guard.check().unwrap();
    }
    let after: Vec<String> = guards.iter().map(|guard| guard.identifier()).collect();
    assert_eq!(after, leases);
    drop(guards);
    for gate in &gates {
        gives_way(gate, &checker).await;
    }
}
