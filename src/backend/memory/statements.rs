//! The statements of the protocol, on a store in the process.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::{
    Access, Answer, Backend, BackendError, Detail, FSCK_ID, Fault, FsckLook, Grant, HISTORY_KEPT, HistoryLine, Init,
    Install, LeaseKey, NewLease, Record, RefreshLook, StoreLook, Traits, WriterLook,
};
use crate::lease::status::{HistoryEntry, Phase};
#[cfg(test)]
use crate::lease::{Rule, Rules};
use crate::store_url::StoreName;

use super::MemoryStore;
use super::documents::{Doc, MemoryPulse, State, timestamp};
use super::link::{Direct, Link};

/// The memory backend of one coordinator.
pub(crate) struct Memory {
    store: MemoryStore,
    name: StoreName,
    link: Rc<dyn Link>,
    sessions_refuse_late: bool,
    #[cfg(test)]
    rules: Rules,
}

/// A session: statements with a smaller number than one already applied are refused.
#[derive(Debug)]
pub(crate) struct MemorySession {
    id: u64,
    sent: u64,
}

impl Memory {
    pub(crate) fn new(store: MemoryStore) -> Memory {
        Memory {
            store,
            name: StoreName::new("memory"),
            link: Rc::new(Direct),
            sessions_refuse_late: true,
            #[cfg(test)]
            rules: Rules::default(),
        }
    }

    /// A backend behind a link of the caller's making.
    #[cfg(test)]
    pub(crate) fn behind(store: MemoryStore, link: Rc<dyn Link>, sessions_refuse_late: bool) -> Memory {
        Memory { link, sessions_refuse_late, ..Memory::new(store) }
    }

    /// A backend that may keep one rule less.
    #[cfg(test)]
    pub(crate) fn under(self, rules: Rules) -> Memory {
        Memory { rules, ..self }
    }

    /// The lease as the server stores it.
    fn stored(&self, lease: &NewLease) -> Answer<NewLease> {
        #[cfg(test)]
        if !self.rules.hold(Rule::Literal) {
            let reason = lease.reason.as_deref().map(|reason| evaluated(reason, lease)).transpose()?;
            return Ok(NewLease { reason: reason.flatten(), ..lease.clone() });
        }
        Ok(lease.clone())
    }

    /// What an install writes.
    fn installed(&self, lease: &NewLease) -> impl FnOnce(i64) -> Doc + use<> {
        let lease = lease.clone();
        #[cfg(test)]
        let never_null = self.rules.hold(Rule::NeverNull);
        move |now| {
            let doc = Doc::new(&lease, Some(Phase::Draining), now);
            #[cfg(test)]
            let doc = Doc { heartbeat: doc.heartbeat.filter(|_| never_null), ..doc };
            doc
        }
    }

    /// Whether an install leaves a document alone that has no owner.
    fn leaves_malformed(&self) -> bool {
        #[cfg(test)]
        return self.rules.hold(Rule::MalformedStays);
        #[cfg(not(test))]
        true
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
    async fn delete_fences(&self, of: LeaseKey) -> Answer<()> {
        let has_some = self.store.lock().has_fences(&of.id, &of.owner);
        if !has_some {
            return Ok(());
        }
        self.call("delete_fences", move |state, _| {
            state.delete_fences(&of.id, &of.owner);
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

/// What a pipeline makes of a text that is not marked as a literal.
#[cfg(test)]
fn evaluated(text: &str, lease: &NewLease) -> Answer<Option<String>> {
    match text {
        "$owner" => Ok(Some(lease.key.owner.clone())),
        "$$ROOT" => Ok(Some(format!("{lease:?}"))),
        "$$REMOVE" => Ok(None),
        undefined if undefined.starts_with("$$") => {
            Err(BackendError::new(Fault::Invalid, "use of an undefined variable"))
        }
        missing if missing.starts_with('$') => Ok(None),
        text => Ok(Some(text.to_owned())),
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
        let lease = self.stored(lease)?;
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
        let (lease, leaves_malformed) = (self.stored(lease)?, self.leaves_malformed());
        let installed = self.installed(&lease);
        self.write(session, "install", move |state, now| match state.leases.get(FSCK_ID) {
            Some(doc) if doc.owner.is_none() && !leaves_malformed => {
                state.leases.insert(FSCK_ID.to_owned(), installed(now));
                Ok(Install::Mine)
            }
            Some(doc) if doc.owner.is_none() => Err(BackendError::new(Fault::Exists, "a malformed fsck lease stands")),
            Some(doc) if doc.owner.as_ref() != Some(&lease.key.owner) => {
                Ok(Install::Held(Box::new(doc.record(FSCK_ID, now))))
            }
            Some(_) => Ok(Install::Mine),
            None => {
                state.leases.insert(FSCK_ID.to_owned(), installed(now));
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
        let owned = key.clone();
        let release = self.write(session, "release", move |state, _| {
            Ok(state.owned(&owned).is_some() && state.leases.remove(&owned.id).is_some())
        });
        let released = release.await?;
        if released {
            self.delete_fences(key.clone()).await?;
        }
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
        let (at, pulse, owner) = (id.to_owned(), pulse.clone(), pulse.0.clone());
        let remove = self.call("remove", move |state, _| {
            let unmoved = state.leases.get(&at).is_some_and(|doc| doc.pulse() == pulse);
            Ok(unmoved && state.leases.remove(&at).is_some())
        });
        let removed = remove.await?;
        if let Some(owner) = owner
            && removed
        {
            self.delete_fences(LeaseKey { id: id.to_owned(), owner }).await?;
        }
        Ok(removed)
    }

    async fn leave_turn(&self, lasts: Duration) -> Answer<()> {
        self.call("leave turn", move |state, now| {
            state.turn = Some(now + i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX / 2));
            Ok(())
        })
        .await
    }

    async fn turn(&self) -> Answer<Duration> {
        self.call("turn", |state, now| {
            let left = state.turn.map_or(0, |until| until.saturating_sub(now));
            Ok(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
        })
        .await
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
