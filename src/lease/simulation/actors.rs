//! What the nodes do: writers, fscks, clearers, and a peer that does not know deadlines.

use std::cell::{Cell, RefCell};
use std::future::IntoFuture;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::memory::{Doc, Link, MemoryStore, State};
use crate::backend::{FSCK_ID, LeaseKey};
use crate::clock::{Clock, ManualClock, within};
use crate::coordinator::Coordinator;
use crate::error::{Error, Locked};
use crate::lease::guard::Lease;
use crate::lease::simulation::checker::{Entry, What};
use crate::lease::simulation::link::SimLink;
use crate::lease::simulation::world::Notebook;
use crate::lease::state::LeaseCell;
use crate::lease::status::LeaseKind;

/// What a node does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Writer,
    Fsck,
    Clearer,
    Peer,
    PeerFsck,
    Stranger,
}

/// The label of a node's leases.
pub(crate) fn label(node: usize) -> String {
    format!("node {node}")
}

/// What an actor has to work with.
pub(crate) struct Stage {
    pub(crate) node: usize,
    pub(crate) coordinator: Coordinator,
    pub(crate) clock: ManualClock,
    pub(crate) store: MemoryStore,
    pub(crate) link: Rc<SimLink>,
    pub(crate) rng: Rc<RefCell<fastrand::Rng>>,
    pub(crate) notebook: Rc<RefCell<Notebook>>,
    pub(crate) over: Rc<Cell<bool>>,
    pub(crate) fences: bool,
    pub(crate) crowd: Option<Duration>,
}

/// Plays a part until the trouble is over, then gives everything back.
pub(crate) async fn play(part: Part, stage: Stage) {
    while !stage.over.get() {
        match part {
            Part::Writer => writer(&stage).await,
            Part::Fsck => fsck(&stage).await,
            Part::Clearer => clearer(&stage).await,
            Part::Peer => peer(&stage).await,
            Part::PeerFsck => peer_fsck(&stage).await,
            Part::Stranger => stranger(&stage).await,
        }
    }
    stage.coordinator.shutdown().await;
    stage.notebook.borrow_mut().finished.insert(stage.node);
}

impl Stage {
    fn chance(&self, percent: u32) -> bool {
        self.rng.borrow_mut().u32(..100) < percent
    }

    fn millis(&self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.borrow_mut().u64(range))
    }

    async fn sleep(&self, duration: Duration) {
        // In short naps, so that the end of the trouble is noticed.
        let until = self.clock.now() + duration;
        while self.clock.now() < until && !self.over.get() {
            let left = until.since(self.clock.now());
            self.clock.sleep_until(self.clock.now() + left.min(Duration::from_secs(2))).await;
        }
    }

    /// What a lease is for: also what a pipeline would make something else of.
    fn reason(&self) -> String {
        const TEXTS: [&str; 6] = ["nightly check", "$owner", "$$ROOT", "$$REMOVE", "$$FOO", "$nothing"];
        let turn = self.node + self.notebook.borrow().history.len();
        TEXTS[turn % TEXTS.len()].to_owned()
    }

    /// A lease in hand; its document says what it was acquired for.
    fn begin(&self, cell: &Arc<LeaseCell>, reason: Option<&str>) -> String {
        let key = &cell.terms.key;
        if let Some(reason) = reason
            && let Some(doc) = self.store.lock().leases.get(&key.id)
            && doc.owner.as_ref() == Some(&key.owner)
            && doc.ours.as_ref().and_then(|ours| ours.reason.as_deref()) != Some(reason)
        {
            self.misread(reason);
        }
        let name = format!("{}:{}", cell.terms.key.id, &cell.terms.key.owner[..8]);
        self.notebook.borrow_mut().held.insert(name.clone(), (self.node, cell.clone()));
        name
    }

    fn misread(&self, reason: &str) {
        let what = What::Misread { reason: reason.to_owned(), node: self.node };
        self.notebook.borrow_mut().history.push(Entry { at: self.clock.now(), what });
    }

    /// What an acquisition came to. No node holds two leases, so one of its own cannot be in its way, unless
    /// it takes one that it is giving back for somebody else's.
    fn answer<T>(&self, result: crate::error::Result<T>, reason: &str) -> Option<T> {
        let locked = match result {
            Ok(lease) => return Some(lease),
            Err(Error::StoreLocked(locked)) => locked.cause,
            // Nothing here is invalid but what somebody makes of a text.
            Err(Error::Invalid(_)) => {
                self.misread(reason);
                return None;
            }
            Err(_) => return None,
        };
        if let Locked::FsckHeld { lease, .. } = locked
            && lease.holder.and_then(|holder| holder.label) == Some(label(self.node))
        {
            let what = What::RefusedByOwn { lease: lease.id, node: self.node };
            self.notebook.borrow_mut().history.push(Entry { at: self.clock.now(), what });
        }
        None
    }

    fn end(&self, name: &str) {
        self.notebook.borrow_mut().held.remove(name);
    }

    /// Holds a lease for a while; some holders notice a loss, some are busy.
    async fn hold(&self, lease: &Lease, at_most: Duration) {
        let notices = self.chance(50);
        let token = lease.token();
        let busy = self.sleep(at_most);
        tokio::select! {
            biased;
            () = token.cancelled(), if notices => {}
            () = busy => {}
        }
    }
}

async fn writer(stage: &Stage) {
    if let Some(pace) = stage.crowd {
        return crowded_writer(stage, pace).await;
    }
    stage.sleep(stage.millis(0..4_000)).await;
    let wait = if stage.chance(50) { Duration::ZERO } else { stage.millis(0..8_000) };
    let reason = stage.reason();
    let acquire = stage.coordinator.acquire_writer().wait(wait).reason(&reason).into_future();
    let lease = if stage.chance(10) {
        // Somebody loses patience, at any point of the handshake.
        let patience = stage.millis(0..60);
        match within(&stage.clock, patience, acquire).await {
            Some(lease) => lease,
            None => return,
        }
    } else {
        acquire.await
    };
    let Some(lease) = stage.answer(lease, &reason) else { return };
    stage.notebook.borrow_mut().tally.writers_granted += 1;
    let name = stage.begin(lease.cell(), Some(&reason));
    let fence = stage.fences.then(|| open_fence(stage, &lease));
    let long = if stage.chance(40) { 40_000 } else { 6_000 };
    stage.hold(&lease, stage.millis(10..long)).await;
    if let Some(fence) = fence {
        commit(stage, fence).await;
    }
    stage.end(&name);
    if stage.chance(50) {
        drop(lease);
    } else {
        let _ = lease.release().await;
    }
}

async fn crowded_writer(stage: &Stage, pace: Duration) {
    if let Ok(lease) = stage.coordinator.acquire_writer().await {
        stage.notebook.borrow_mut().tally.writers_granted += 1;
        let name = stage.begin(lease.cell(), None);
        stage.sleep(pace).await;
        stage.end(&name);
        let _ = lease.release().await;
    } else {
        stage.sleep(pace).await;
    }
}

async fn fsck(stage: &Stage) {
    stage.sleep(stage.millis(500..8_000)).await;
    let wait = if stage.chance(50) { Duration::ZERO } else { stage.millis(0..10_000) };
    let reason = stage.reason();
    let request = stage
        .coordinator
        .acquire_fsck()
        .reason(&reason)
        .force(stage.chance(50))
        .wait(wait)
        .bump_generation(stage.chance(70))
        .drain_budget(stage.millis(2_000..20_000))
        .into_future();
    let lease = if stage.chance(10) {
        match within(&stage.clock, stage.millis(0..3_000), request).await {
            Some(lease) => lease,
            None => return,
        }
    } else {
        request.await
    };
    let Some(lease) = stage.answer(lease, &reason) else { return };
    // One that gets in only after the writers were told to go says nothing about starvation.
    stage.notebook.borrow_mut().tally.fscks_granted += u64::from(!stage.over.get());
    let name = stage.begin(lease.cell(), Some(&reason));
    let long = if stage.chance(20) { 25_000 } else { 5_000 };
    stage.hold(&lease, stage.millis(10..long)).await;
    stage.end(&name);
    if stage.chance(50) {
        drop(lease);
    } else {
        let _ = lease.release().await;
    }
}

async fn clearer(stage: &Stage) {
    stage.sleep(stage.millis(0..3_000)).await;
    let verb =
        if stage.chance(50) { stage.coordinator.clear_stale_lock() } else { stage.coordinator.prune_stale_writers() };
    if let Ok(cleared) = verb.await {
        stage.notebook.borrow_mut().tally.leases_removed += cleared.cleared.len() as u64;
    }
}

/// A statement sent past the engine, as a program that is not ours would.
async fn raw<T: 'static>(
    stage: &Stage,
    name: &'static str,
    apply: impl FnOnce(&mut crate::backend::memory::State) -> T + 'static,
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
async fn peer(stage: &Stage) {
    stage.sleep(stage.millis(0..4_000)).await;
    let id = format!("lease/peer-{}-{}", stage.node, stage.rng.borrow_mut().u32(..));
    let owner = "peer".to_owned();
    let now = crate::backend::memory::server_now(&stage.store);
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
async fn peer_fsck(stage: &Stage) {
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

/// An fsck of another program, whose document has no owner: it waits for every writer to leave, and shows that it lives.
async fn stranger(stage: &Stage) {
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

/// Makes a fence document for a lease, as the supervisor does after a grant.
fn open_fence(stage: &Stage, lease: &Lease) -> LeaseKey {
    let key = LeaseKey { id: lease.identifier().to_owned(), owner: lease.owner().to_owned() };
    let mut state = stage.store.lock();
    if state.leases.contains_key(&key.id) {
        state.fences.insert(key.owner.clone(), key.clone());
    }
    key
}

/// Commits a transaction that touched the fence: it becomes visible only if the fence still stands.
async fn commit(stage: &Stage, fence: LeaseKey) {
    let (node, clock, notebook) = (stage.node, stage.clock.clone(), stage.notebook.clone());
    raw(stage, "a fenced transaction commits", move |state| {
        if state.fences.contains_key(&fence.owner) {
            let entry = Entry { at: clock.now(), what: What::Committed { node } };
            notebook.borrow_mut().history.push(entry);
        }
    })
    .await;
}
