//! What the nodes of ours do: writers, fscks and clearers. `foreign` has the others.

use std::cell::{Cell, RefCell};
use std::future::IntoFuture;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::LeaseKey;
use crate::backend::memory::MemoryStore;
use crate::clock::{Clock, ManualClock, within};
use crate::coordinator::Coordinator;
use crate::error::{Error, Locked};
use crate::lease::guard::Lease;
use crate::lease::simulation::checker::{Entry, What};
use crate::lease::simulation::foreign;
use crate::lease::simulation::link::SimLink;
use crate::lease::simulation::world::Notebook;
use crate::lease::state::LeaseCell;

/// What a node does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Writer,
    Fsck,
    Clearer,
    Peer,
    PeerFsck,
    PeerClearer,
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
            Part::Peer => foreign::peer(&stage).await,
            Part::PeerFsck => foreign::peer_fsck(&stage).await,
            Part::PeerClearer => foreign::peer_clearer(&stage).await,
            Part::Stranger => foreign::stranger(&stage).await,
        }
    }
    stage.coordinator.shutdown().await;
    stage.notebook.borrow_mut().finished.insert(stage.node);
}

impl Stage {
    pub(super) fn chance(&self, percent: u32) -> bool {
        self.rng.borrow_mut().u32(..100) < percent
    }

    pub(super) fn millis(&self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.borrow_mut().u64(range))
    }

    pub(super) async fn sleep(&self, duration: Duration) {
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
    foreign::raw(stage, "a fenced transaction commits", move |state| {
        if state.fences.contains_key(&fence.owner) {
            let entry = Entry { at: clock.now(), what: What::Committed { node } };
            notebook.borrow_mut().history.push(entry);
        }
    })
    .await;
}
