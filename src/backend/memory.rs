//! A whole store in the process, with its own server clock.
//!
//! Programs test with it without a server; the engine is simulated on it. It keeps the same documents and
//! answers the same statements as the MongoDB backend, one at a time.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::backend::{
    Access, Answer, Backend, BackendError, Detail, FSCK_ID, Fault, FsckLook, Grant, HISTORY_KEPT, HistoryLine, Init,
    Install, LeaseKey, Life, NewLease, Ours, Record, RefreshLook, StoreLook, Traits, WriterLook,
};
use crate::clock::{Clock, Moment, SystemClock};
use crate::lease::status::{HistoryEntry, Phase};
use crate::store_url::StoreName;

/// A store in this process. Clones are the same store.
///
/// ```
/// # futures::executor::block_on(async {
/// use lockhouse::{Coordinator, MemoryStore};
///
/// let store = MemoryStore::new();
/// let coordinator = Coordinator::on_memory(&store).connect().await?;
/// coordinator.init().await?;
/// let lease = coordinator.acquire_writer().await?;
/// lease.check()?;
/// lease.release().await?;
/// # Ok::<(), lockhouse::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// An empty store without a layout, whose server clock runs with the machine's.
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(SystemClock)
    }

    /// An empty store whose server clock runs with `clock`.
    pub fn with_clock(clock: impl Clock) -> MemoryStore {
        MemoryStore { state: Arc::new(Mutex::new(State::default())), clock: Arc::new(clock) }
    }

    /// Sets the server's clock forward, or back with a negative number of milliseconds.
    pub fn shift_server_clock(&self, millis: i64) {
        self.lock().shift_ms += millis;
    }

    /// Cuts the store off, or brings it back: while it is cut off no statement reaches it.
    pub fn set_reachable(&self, reachable: bool) {
        self.lock().cut_off = !reachable;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn now_in(&self, state: &State) -> i64 {
        self.server_now(state)
    }

    fn server_now(&self, state: &State) -> i64 {
        let since_start = self.clock.now().since(Moment::ORIGIN);
        SERVER_EPOCH_MS + i64::try_from(since_start.as_millis()).unwrap_or(i64::MAX / 2) + state.shift_ms
    }
}

/// The store's clock in milliseconds, for a peer that writes documents of its own.
#[cfg(test)]
pub(crate) fn server_now(store: &MemoryStore) -> i64 {
    store.server_now(&store.lock())
}

/// Where the server's clock starts: some day, so that times look like times.
const SERVER_EPOCH_MS: i64 = 1_767_225_600_000;

/// Everything the store keeps.
#[derive(Debug, Default, Clone)]
pub(crate) struct State {
    pub(crate) leases: BTreeMap<String, Doc>,
    pub(crate) generation: Option<i64>,
    /// Fence documents: their id, and the id and owner of the lease they belong to.
    pub(crate) fences: BTreeMap<String, LeaseKey>,
    history: Vec<(Uuid, HistoryEntry)>,
    /// The last statement number of each session.
    sessions: HashMap<u64, u64>,
    next_session: u64,
    shift_ms: i64,
    cut_off: bool,
}

/// One lease document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Doc {
    pub(crate) owner: Option<String>,
    /// Server time in milliseconds.
    pub(crate) heartbeat: Option<i64>,
    pub(crate) beats: i64,
    /// `None` on a peer's.
    pub(crate) ours: Option<Ours>,
}

/// What moves when a holder lives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MemoryPulse(Option<String>, Option<i64>, i64);

impl Doc {
    fn pulse(&self) -> MemoryPulse {
        MemoryPulse(self.owner.clone(), self.heartbeat, self.beats)
    }

    fn record(&self, id: &str, now: i64) -> Record<MemoryPulse> {
        Record {
            id: id.to_owned(),
            owner: self.owner.clone(),
            pulse: self.pulse(),
            heartbeat: self.heartbeat.map(timestamp),
            age_ms: self.heartbeat.map(|heartbeat| now - heartbeat),
            life: Life::Unknown,
            malformed: self.owner.is_none() || self.heartbeat.is_none(),
            ours: self.ours.clone(),
        }
    }

    fn new(lease: &NewLease, phase: Option<Phase>, now: i64) -> Doc {
        Doc {
            owner: Some(lease.key.owner.clone()),
            heartbeat: Some(now),
            beats: 1,
            ours: Some(Ours {
                acquired: Some(timestamp(now)),
                refresh_interval: Some(lease.refresh_interval),
                stale_after: Some(lease.stale_after),
                phase,
                reason: lease.reason.clone(),
                holder: Some(lease.holder.clone()),
            }),
        }
    }

    fn beat(&mut self, now: i64) {
        self.heartbeat = Some(now);
        self.beats += 1;
    }
}

fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl State {
    fn owned(&mut self, key: &LeaseKey) -> Option<&mut Doc> {
        self.leases.get_mut(&key.id).filter(|doc| doc.owner.as_ref() == Some(&key.owner))
    }

    fn records(&self, now: i64) -> Vec<Record<MemoryPulse>> {
        self.leases.iter().map(|(id, doc)| doc.record(id, now)).collect()
    }

    fn delete_fences(&mut self, id: &str) {
        self.fences.retain(|_, lease| lease.id != id);
    }
}

/// A statement on its way to the store: run, it is applied and gives back its reply, which run arrives at
/// the caller.
pub(crate) type Statement = Box<dyn FnOnce() -> Reply>;
pub(crate) type Reply = Box<dyn FnOnce()>;

/// What lies between a caller and the store.
pub(crate) trait Link {
    /// Takes a statement to the store, and its reply back: at once, late, or never.
    fn carry(&self, name: &'static str, statement: Statement);
}

/// No distance at all.
struct Direct;

impl Link for Direct {
    fn carry(&self, _name: &'static str, statement: Statement) {
        statement()();
    }
}

/// The memory backend of one coordinator.
pub(crate) struct Memory {
    store: MemoryStore,
    name: StoreName,
    link: Rc<dyn Link>,
    sessions_refuse_late: bool,
}

/// A session: statements with a smaller number than one already applied are refused.
#[derive(Debug)]
pub(crate) struct MemorySession {
    id: u64,
    sent: u64,
}

impl Memory {
    pub(crate) fn new(store: MemoryStore) -> Memory {
        Memory { store, name: StoreName::new("memory"), link: Rc::new(Direct), sessions_refuse_late: true }
    }

    /// A backend behind a link of the caller's making.
    #[cfg(test)]
    pub(crate) fn behind(store: MemoryStore, link: Rc<dyn Link>, sessions_refuse_late: bool) -> Memory {
        Memory { link, sessions_refuse_late, ..Memory::new(store) }
    }

    async fn call<T: 'static>(
        &self,
        name: &'static str,
        statement: impl FnOnce(&mut State, i64) -> Answer<T> + 'static,
    ) -> Answer<T> {
        let (sender, receiver) = oneshot::channel();
        let store = self.store.clone();
        self.link.carry(
            name,
            Box::new(move || {
                let mut state = store.lock();
                let answer = if state.cut_off {
                    Err(BackendError::new(Fault::Busy, "the store cannot be reached"))
                } else {
                    let now = store.server_now(&state);
                    statement(&mut state, now)
                };
                Box::new(move || drop(sender.send(answer)))
            }),
        );
        receiver.await.unwrap_or_else(|_| Err(BackendError::new(Fault::Unknown, "the reply was lost")))
    }

    /// A statement of its own, as on a server: whoever dies before it leaves fences without a lease.
    async fn delete_fences(&self, gone: bool, id: String) -> Answer<()> {
        let has_some = gone && self.store.lock().fences.values().any(|lease| lease.id == id);
        if !has_some {
            return Ok(());
        }
        self.call("delete_fences", move |state, _| {
            state.delete_fences(&id);
            Ok(())
        })
        .await
    }

    /// A write of a session.
    async fn write<T: 'static>(
        &self,
        session: &mut MemorySession,
        name: &'static str,
        statement: impl FnOnce(&mut State, i64) -> Answer<T> + 'static,
    ) -> Answer<T> {
        session.sent += 1;
        let (id, number) = (session.id, session.sent);
        let refuse_late = self.sessions_refuse_late;
        self.call(name, move |state, now| {
            let last = state.sessions.entry(id).or_default();
            if refuse_late && number < *last {
                return Err(BackendError::new(Fault::Busy, "a later statement of the session came first"));
            }
            *last = number.max(*last);
            statement(state, now)
        })
        .await
    }
}

impl Backend for Memory {
    type Session = MemorySession;
    type Pulse = MemoryPulse;

    fn store(&self) -> &StoreName {
        &self.name
    }

    fn traits(&self) -> Traits {
        Traits {
            name: "memory",
            sessions_refuse_late: self.sessions_refuse_late,
            fails_over: false,
            shared_with_peer: false,
            knows_the_living: false,
        }
    }

    async fn ready(&self, _access: Access) -> Answer<()> {
        self.call("ready", |_, _| Ok(())).await
    }

    async fn init(&self) -> Answer<Init> {
        self.call("init", |state, _| {
            if state.generation.is_some() {
                return Ok(Init::AlreadyThere);
            }
            state.generation = Some(0);
            Ok(Init::Made)
        })
        .await
    }

    async fn session(&self) -> Answer<MemorySession> {
        let mut state = self.store.lock();
        state.next_session += 1;
        Ok(MemorySession { id: state.next_session, sent: 0 })
    }

    async fn register(&self, session: &mut MemorySession, lease: &NewLease) -> Answer<()> {
        let lease = lease.clone();
        self.write(session, "register", move |state, now| {
            state.leases.insert(lease.key.id.clone(), Doc::new(&lease, None, now));
            Ok(())
        })
        .await
    }

    async fn look_writer(&self, _session: &mut MemorySession, key: &LeaseKey) -> Answer<WriterLook<MemoryPulse>> {
        let key = key.clone();
        self.call("look_writer", move |state, now| {
            Ok(WriterLook {
                registered: state.owned(&key).is_some(),
                fsck: state.leases.get(FSCK_ID).map(|doc| doc.record(FSCK_ID, now)),
                generation: state.generation,
            })
        })
        .await
    }

    async fn install(&self, session: &mut MemorySession, lease: &NewLease) -> Answer<Install<MemoryPulse>> {
        let lease = lease.clone();
        self.write(session, "install", move |state, now| match state.leases.get(FSCK_ID) {
            Some(doc) if doc.owner.is_none() => Err(BackendError::new(Fault::Exists, "a malformed fsck lease stands")),
            Some(doc) if doc.owner.as_ref() != Some(&lease.key.owner) => {
                Ok(Install::Held(Box::new(doc.record(FSCK_ID, now))))
            }
            Some(_) => Ok(Install::Mine),
            None => {
                state.leases.insert(FSCK_ID.to_owned(), Doc::new(&lease, Some(Phase::Draining), now));
                Ok(Install::Mine)
            }
        })
        .await
    }

    async fn replace(&self, session: &mut MemorySession, lease: &NewLease, over: &MemoryPulse) -> Answer<bool> {
        let (lease, over) = (lease.clone(), over.clone());
        self.write(session, "replace", move |state, now| match state.leases.get_mut(FSCK_ID) {
            Some(doc) if doc.pulse() == over => {
                *doc = Doc::new(&lease, Some(Phase::Draining), now);
                Ok(true)
            }
            _ => Ok(false),
        })
        .await
    }

    async fn look_fsck(
        &self,
        _session: &mut MemorySession,
        key: &LeaseKey,
        _detail: Detail,
    ) -> Answer<FsckLook<MemoryPulse>> {
        let key = key.clone();
        self.call("look_fsck", move |state, now| {
            let (fsck, writers) = state.records(now).into_iter().partition(|record| record.id == FSCK_ID);
            let fsck: Vec<_> = fsck;
            Ok(FsckLook {
                fsck: fsck.into_iter().next(),
                generation: state.generation,
                writers,
                foreign_fences: state.fences.values().any(|lease| *lease != key),
            })
        })
        .await
    }

    async fn sweep_fences(&self, keep: &LeaseKey) -> Answer<()> {
        let keep = keep.clone();
        self.call("sweep_fences", move |state, _| {
            state.fences.retain(|_, lease| *lease == keep);
            Ok(())
        })
        .await
    }

    async fn grant(&self, session: &mut MemorySession, key: &LeaseKey, generation: i64, bump: bool) -> Answer<Grant> {
        let key = key.clone();
        self.write(session, "grant", move |state, now| {
            let layout = state.generation;
            let Some(doc) = state.owned(&key) else {
                return Ok(Grant::Displaced);
            };
            let ours = doc.ours.get_or_insert_default();
            let granted_before = ours.phase == Some(Phase::Exclusive);
            let target = if bump { generation + 1 } else { generation };
            if layout != Some(generation) && !(granted_before && layout == Some(target)) {
                return Ok(Grant::GenerationMoved);
            }
            ours.phase = Some(Phase::Exclusive);
            doc.beat(now);
            state.generation = Some(target);
            Ok(Grant::Granted(target))
        })
        .await
    }

    async fn release(&self, session: &mut MemorySession, key: &LeaseKey) -> Answer<bool> {
        let (owned, id) = (key.clone(), key.id.clone());
        let release = self.write(session, "release", move |state, _| {
            Ok(state.owned(&owned).is_some() && state.leases.remove(&owned.id).is_some())
        });
        let released = release.await?;
        self.delete_fences(released, id).await?;
        Ok(released)
    }

    async fn refresh(&self, keys: &[LeaseKey]) -> Answer<u64> {
        let keys = keys.to_vec();
        self.call("refresh", move |state, now| {
            let mut matched = 0;
            for key in &keys {
                if let Some(doc) = state.owned(key) {
                    doc.beat(now);
                    matched += 1;
                }
            }
            Ok(matched)
        })
        .await
    }

    async fn refresh_look(&self) -> Answer<RefreshLook> {
        self.call("refresh_look", |state, _| {
            let phase = |doc: &Doc| doc.ours.as_ref().and_then(|ours| ours.phase);
            Ok(RefreshLook {
                fsck: state.leases.get(FSCK_ID).map(|doc| (doc.owner.clone(), phase(doc))),
                generation: state.generation,
            })
        })
        .await
    }

    async fn standing(&self, keys: &[LeaseKey]) -> Answer<Vec<LeaseKey>> {
        let keys = keys.to_vec();
        self.call("standing", move |state, _| Ok(keys.into_iter().filter(|key| state.owned(key).is_some()).collect()))
            .await
    }

    async fn peek(&self) -> Answer<Option<Record<MemoryPulse>>> {
        self.call("peek", |state, now| Ok(state.leases.get(FSCK_ID).map(|doc| doc.record(FSCK_ID, now)))).await
    }

    async fn look(&self) -> Answer<StoreLook<MemoryPulse>> {
        self.call("look", |state, now| {
            Ok(StoreLook { now: timestamp(now), generation: state.generation, leases: state.records(now) })
        })
        .await
    }

    async fn remove(&self, id: &str, pulse: &MemoryPulse) -> Answer<bool> {
        let (at, pulse) = (id.to_owned(), pulse.clone());
        let remove = self.call("remove", move |state, _| {
            let unmoved = state.leases.get(&at).is_some_and(|doc| doc.pulse() == pulse);
            Ok(unmoved && state.leases.remove(&at).is_some())
        });
        let removed = remove.await?;
        self.delete_fences(removed, id.to_owned()).await?;
        Ok(removed)
    }

    async fn history(&self) -> Answer<Vec<HistoryEntry>> {
        self.call("history", |state, _| {
            let mut lines: Vec<_> = state.history.iter().map(|(_, entry)| entry.clone()).collect();
            // A server clock that was set back makes later lines earlier.
            lines.sort_by_key(|entry| entry.at);
            Ok(lines)
        })
        .await
    }

    async fn record(&self, line: &HistoryLine) -> Answer<()> {
        let HistoryLine { name, what, lease, holder, reason } = line.clone();
        self.call("record", move |state, now| {
            if state.history.iter().any(|(written, _)| *written == name) {
                return Ok(());
            }
            let (at, what, holder) = (timestamp(now), what.to_owned(), Some(holder));
            state.history.push((name, HistoryEntry { at, what, lease, holder, reason }));
            let surplus = state.history.len().saturating_sub(HISTORY_KEPT);
            state.history.drain(..surplus);
            Ok(())
        })
        .await
    }
}
