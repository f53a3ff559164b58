//! What programs that are not ours do to the store: peers that do not know deadlines, and strangers. Their statements
//! go past the engine.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::FSCK_ID;
use crate::backend::memory::{Doc, Link, State, server_now};
use crate::clock::{Clock, within};
use crate::lease::simulation::actors::Stage;
use crate::lease::simulation::checker::{Entry, What};
use crate::lease::status::LeaseKind;
use crate::timing::PEER_STALE_AFTER;

/// A statement sent past the engine, as a program that is not ours would.
pub(super) async fn raw<T: 'static>(
    stage: &Stage,
    name: &'static str,
    apply: impl FnOnce(&mut State) -> T + 'static,
) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    let store = stage.store.clone();
    let statement = Box::new(move || {
        let result = apply(&mut store.lock());
        Box::new(move || drop(sender.send(result))) as Box<dyn FnOnce()>
    });
    stage.link.carry(name, statement);
    within(&stage.clock, Duration::from_secs(30), receiver).await?.ok()
}

/// A writer that follows the handshake and then never refreshes, as the Python library's may.
pub(super) async fn peer(stage: &Stage) {
    stage.sleep(stage.millis(0..4_000)).await;
    let id = format!("lease/peer-{}-{}", stage.node, stage.rng.borrow_mut().u32(..));
    let owner = "peer".to_owned();
    let now = server_now(&stage.store);
    let doc = Doc { owner: Some(owner), heartbeat: Some(now), beats: 0, ours: None };
    let key = id.clone();
    raw(stage, "peer registers", move |state| drop(state.leases.insert(key, doc))).await;
    let mine = id.clone();
    let look =
        raw(stage, "peer looks", move |state| state.leases.contains_key(&mine) && !state.leases.contains_key(FSCK_ID));
    if look.await == Some(true) {
        stage.notebook.borrow_mut().tally.writers_granted += 1;
        stage.notebook.borrow_mut().peers.insert(id.clone(), (stage.node, LeaseKind::Writer));
        stage.sleep(stage.millis(100..25_000)).await;
        stage.notebook.borrow_mut().peers.remove(&id);
    }
    while raw(stage, "peer releases", {
        let id = id.clone();
        move |state| drop(state.leases.remove(&id))
    })
    .await
    .is_none()
    {}
}

/// A peer's fsck with force: it waits for fresh writers, by the server's clock and its own eight seconds, and
/// passes over the others without removing their documents.
pub(super) async fn peer_fsck(stage: &Stage) {
    stage.sleep(stage.millis(0..6_000)).await;
    let clock = stage.store.clone();
    let beat = move |state: &mut State| {
        let now = clock.now_in(state);
        let doc = Doc { owner: Some("peer".to_owned()), heartbeat: Some(now), beats: 0, ours: None };
        state
            .leases
            .entry(FSCK_ID.to_owned())
            .and_modify(|doc| {
                if doc.ours.is_none() {
                    doc.heartbeat = Some(now)
                }
            })
            .or_insert(doc)
            .ours
            .is_none()
    };
    if raw(stage, "peer fsck installs", beat.clone()).await != Some(true) {
        return;
    }
    let patience = stage.clock.now() + stage.millis(5_000..25_000);
    while stage.clock.now() < patience && !stage.over.get() {
        let server = stage.store.clone();
        let fresh = move |state: &mut State| {
            let now = server.now_in(state);
            let fresh = |doc: &&Doc| doc.heartbeat.is_some_and(|heartbeat| now - heartbeat < 8_000);
            state.leases.iter().filter(|(id, _)| *id != FSCK_ID).map(|(_, doc)| doc).filter(fresh).count()
        };
        if raw(stage, "peer fsck looks", fresh).await == Some(0) {
            stage.notebook.borrow_mut().tally.fscks_granted += 1;
            stage.notebook.borrow_mut().peers.insert("peer fsck".to_owned(), (stage.node, LeaseKind::Fsck));
            stage.sleep(stage.millis(100..9_000)).await;
            stage.notebook.borrow_mut().peers.remove("peer fsck");
            break;
        }
        stage.sleep(Duration::from_millis(250)).await;
        raw(stage, "peer fsck refreshes", beat.clone()).await;
    }
    let leave = |state: &mut State| drop(state.leases.remove(FSCK_ID));
    while raw(stage, "peer fsck releases", leave).await.is_none() {}
}

/// A peer that clears the fsck lease in a loop: it watches nothing, and judges by the server's clock and its own eight
/// seconds. In the order of the server's values a null is older than any date.
pub(super) async fn peer_clearer(stage: &Stage) {
    stage.sleep(stage.millis(0..50)).await;
    let (node, clock, server, notebook) =
        (stage.node, stage.clock.clone(), stage.store.clone(), stage.notebook.clone());
    let clear = move |state: &mut State| {
        let now = server.now_in(state);
        let is_young = |at: i64| now - at < i64::try_from(PEER_STALE_AFTER.as_millis()).expect("short");
        let Some(doc) = state.leases.get(FSCK_ID).filter(|doc| !doc.heartbeat.is_some_and(is_young)) else { return };
        let mut notebook = notebook.borrow_mut();
        notebook.tally.leases_removed += 1;
        let acquired = doc.ours.as_ref().and_then(|ours| ours.acquired);
        if acquired.is_some_and(|acquired| is_young(acquired.as_millisecond())) {
            notebook.history.push(Entry { at: clock.now(), what: What::TakenYoung { node } });
        }
        state.leases.remove(FSCK_ID);
    };
    raw(stage, "a peer clears", clear).await;
}

/// An fsck of another program, whose document has no owner: it waits for every writer to leave, and shows that it lives.
pub(super) async fn stranger(stage: &Stage) {
    stage.sleep(stage.millis(0..3_000)).await;
    let server = stage.store.clone();
    let beat = move |state: &mut State| {
        let doc = Doc { owner: None, heartbeat: Some(server.now_in(state)), beats: 0, ours: None };
        let mine = state.leases.get(FSCK_ID).is_none_or(|doc| doc.owner.is_none());
        if mine {
            state.leases.insert(FSCK_ID.to_owned(), doc);
        }
        mine.then_some(state.leases.len() == 1)
    };
    loop {
        match raw(stage, "a stranger's fsck shows itself", beat.clone()).await.flatten() {
            None => return,
            Some(false) if !stage.over.get() => stage.sleep(Duration::from_millis(250)).await,
            Some(alone) => {
                if alone {
                    stage.notebook.borrow_mut().peers.insert("stranger".to_owned(), (stage.node, LeaseKind::Fsck));
                    stage.sleep(stage.millis(100..5_000)).await;
                    stage.notebook.borrow_mut().peers.remove("stranger");
                }
                break;
            }
        }
    }
    let leave = |state: &mut State| {
        if state.leases.get(FSCK_ID).is_some_and(|doc| doc.owner.is_none()) {
            state.leases.remove(FSCK_ID);
        }
    };
    while raw(stage, "a stranger's fsck leaves", leave).await.is_none() {}
}
