//! The MongoDB backend: leases are documents of one collection of the store's database.
//!
//! Two things carry the protocol. `_id` is unique, so one fsck lease can stand; and the server's clock
//! alone writes and judges times. What is sent is in `statements`, what is stored in `documents`, what an
//! error means in `faults`, and why one lease keeps to one logical session in `session`.
//!
//! Not promised: that an operation which the server has begun ends when its client is gone, and anything
//! across two clusters.

mod checks;
mod connect;
mod documents;
mod faults;
pub(crate) mod fence;
mod grant;
mod history;
mod look;
mod pulse;
mod scrub;
mod session;
mod statements;
#[cfg(test)]
mod tests;
mod watch;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, RawDocumentBuf, doc};
use mongodb::options::ReturnDocument;
use mongodb::{Collection, Database};
use tokio::sync::watch as watch_channel;

use crate::backend::{
    Access, Answer, Awaited, Backend, BackendError, Changes, Detail, FSCK_ID, Fault, FsckLook, Grant, HistoryLine,
    Init, Install, LeaseKey, Namespace, NewLease, Record, RefreshLook, StoreLook, Traits, WriterLook,
};
use crate::lease::status::HistoryEntry;
use crate::store_url::StoreName;

use connect::{PEER_COLLECTION, Topology};
use documents::{LAYOUT_ID, TURN_ID};
use faults::Faults;
use fence::SWEEP;
use history::Untrimmed;
use pulse::Pulse;
use session::Session;

/// A store in a MongoDB database.
pub(crate) struct Mongo {
    name: StoreName,
    namespace: Arc<Namespace>,
    database: Database,
    collection: Collection<RawDocumentBuf>,
    topology: Topology,
    /// The user chose the collection.
    named: bool,
    faults: Rc<Faults>,
    /// The change streams that run.
    departures: RefCell<Weak<watch_channel::Sender<()>>>,
    arrivals: RefCell<Weak<watch_channel::Sender<()>>>,
    untrimmed: Untrimmed,
}

impl std::fmt::Debug for Mongo {
    /// The name alone: the driver's handles know the connection string.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mongo({})", self.name)
    }
}

impl Mongo {
    fn shared(&self) -> bool {
        self.collection.name() == PEER_COLLECTION
    }

    /// The server's clock by itself. A look brings it along as soon as there is any document; this is for
    /// a collection that may be empty.
    async fn server_time(&self) -> Answer<DateTime> {
        let hello = self.database.run_command(doc! { "hello": 1 }).await;
        let hello = hello.map_err(|error| self.faults.look(error))?;
        hello
            .get_datetime("localTime")
            .copied()
            .map_err(|_| BackendError::new(Fault::Internal, "the server does not tell its time"))
    }

    async fn layout(&self) -> Answer<Option<RawDocumentBuf>> {
        self.collection.find_one(statements::id(LAYOUT_ID)).await.map_err(|error| self.faults.look(error))
    }
}

impl Backend for Mongo {
    type Session = Session;
    type Pulse = Pulse;

    fn store(&self) -> &StoreName {
        &self.name
    }

    fn traits(&self) -> Traits {
        let replicated = matches!(self.topology, Topology::Replicated { .. });
        Traits {
            name: "mongodb",
            sessions_refuse_late: replicated,
            fails_over: replicated && !self.shared(),
            shared_with_peer: self.shared(),
            knows_the_living: false,
        }
    }

    fn namespace(&self) -> Option<Arc<Namespace>> {
        match self.topology {
            Topology::Replicated { .. } => Some(self.namespace.clone()),
            Topology::Standalone => None,
        }
    }

    fn changes(&self, of: Awaited) -> Changes {
        self.told(of)
    }

    async fn ready(&self, access: Access) -> Answer<()> {
        self.check(access).await
    }

    async fn init(&self) -> Answer<Init> {
        if let Some(layout) = self.layout().await? {
            return match documents::generation(&layout) {
                Some(_) => Ok(Init::AlreadyThere),
                None => Err(BackendError::new(
                    Fault::Invalid,
                    "the layout document has no integer generation; put back the number it had, or a higher one",
                )),
            };
        }
        if self.shared() {
            return Err(BackendError::new(Fault::Invalid, checks::NO_PEER_LAYOUT));
        }
        let made = self.collection.update_one(statements::id(LAYOUT_ID), statements::first_layout()).upsert(true).await;
        match made.map_err(|error| self.faults.write(error)) {
            Ok(made) if made.upserted_id.is_some() => Ok(Init::Made),
            Ok(_) => Ok(Init::AlreadyThere),
            Err(error) if error.fault == Fault::Exists => Ok(Init::AlreadyThere),
            Err(error) => Err(error),
        }
    }

    async fn session(&self) -> Answer<Session> {
        let session = self.database.client().start_session().await;
        session.map(Session::new).map_err(|error| self.faults.look(error))
    }

    async fn register(&self, session: &mut Session, lease: &NewLease) -> Answer<()> {
        self.collection
            .update_one(statements::id(&lease.key.id), statements::register(lease))
            .upsert(true)
            .session(session.settled().await)
            .await
            .map(drop)
            .map_err(|error| self.faults.write(error))
    }

    async fn look_writer(&self, session: &mut Session, key: &LeaseKey) -> Answer<WriterLook<Pulse>> {
        let ids = statements::one_of(&[&key.id, FSCK_ID, LAYOUT_ID]);
        let session = session.settled().await;
        let found = look::find(&self.collection, Some(session), ids, statements::view()).await;
        let mut seen = look::Seen::of(&found.map_err(|error| self.faults.look(error))?);
        Ok(WriterLook {
            registered: seen
                .leases
                .iter()
                .any(|lease| lease.id == key.id && lease.owner.as_deref() == Some(&key.owner)),
            fsck: seen.remove(FSCK_ID),
            generation: seen.generation,
        })
    }

    async fn install(&self, session: &mut Session, lease: &NewLease) -> Answer<Install<Pulse>> {
        let stands = self
            .collection
            .find_one_and_update(statements::fsck_with_owner(), statements::install(lease))
            .projection(statements::view())
            .upsert(true)
            .return_document(ReturnDocument::After)
            .session(session.settled().await)
            .await
            .map_err(|error| self.faults.write(error))?;
        // An upsert always answers with a document; one that does not is no answer to rely on.
        let stands = stands.and_then(|row| look::Seen::of([&row]).remove(FSCK_ID));
        let stands = stands
            .ok_or_else(|| BackendError::new(Fault::Unknown, "the server did not say which fsck lease stands"))?;
        if stands.owner.as_deref() == Some(&lease.key.owner) {
            return Ok(Install::Mine);
        }
        Ok(Install::Held(Box::new(stands)))
    }

    async fn replace(&self, session: &mut Session, lease: &NewLease, over: &Pulse) -> Answer<bool> {
        self.collection
            .update_one(statements::unmoved(FSCK_ID, over), statements::replace(lease))
            .session(session.settled().await)
            .await
            .map(|replaced| replaced.matched_count == 1)
            .map_err(|error| self.faults.write(error))
    }

    async fn look_fsck(&self, session: &mut Session, key: &LeaseKey, detail: Detail) -> Answer<FsckLook<Pulse>> {
        let pipeline = statements::look_for_drain(self.collection.name(), key);
        let seen = look::look(&self.collection, Some(session.settled().await), pipeline, detail).await;
        let mut seen = seen.map_err(|error| self.faults.look(error))?;
        Ok(FsckLook {
            fsck: seen.remove(FSCK_ID),
            generation: seen.generation,
            foreign_fences: seen.fences,
            writers: seen.leases,
        })
    }

    async fn writer_ids(&self, session: &mut Session, _key: &LeaseKey) -> Answer<BTreeSet<String>> {
        let session = session.settled().await;
        look::ids(&self.collection, session, statements::leases()).await.map_err(|error| self.faults.look(error))
    }

    async fn sweep_fences(&self, keep: &LeaseKey) -> Answer<()> {
        self.delete_fences(statements::fences_but(keep), SWEEP).await
    }

    async fn make_slots(&self, session: &mut Session, key: &LeaseKey, slots: Range<u64>) -> Answer<bool> {
        self.make_fences(session, key, slots).await
    }

    async fn grant(&self, session: &mut Session, key: &LeaseKey, generation: i64, bump: bool) -> Answer<Grant> {
        self.grant_to(session, key, generation, bump).await
    }

    async fn release(&self, session: &mut Session, key: &LeaseKey) -> Answer<bool> {
        let session = session.settled().await;
        // A lease that has fences says so, which spares all others the second statement.
        let without = self.collection.delete_one(statements::held_without_fences(key)).session(&mut *session).await;
        if without.map_err(|error| self.faults.write(error))?.deleted_count == 1 {
            return Ok(true);
        }
        let deleted = self.collection.delete_one(statements::held(key)).session(session).await;
        let deleted = deleted.map_err(|error| self.faults.write(error))?.deleted_count == 1;
        self.drop_fences(&key.id, &key.owner).await;
        Ok(deleted)
    }

    async fn leave_turn(&self, lasts: Duration) -> Answer<()> {
        let left =
            self.collection.update_one(statements::id(TURN_ID), statements::leave_turn(lasts)).upsert(true).await;
        left.map(drop).map_err(|error| self.faults.write(error))
    }

    async fn turn(&self) -> Answer<Duration> {
        let found = look::find(&self.collection, None, statements::id(TURN_ID), statements::view()).await;
        let found = found.map_err(|error| self.faults.look(error))?;
        let left = found.first().and_then(|row| documents::left_of_turn(row));
        Ok(left.unwrap_or_default())
    }

    async fn refresh(&self, keys: &[LeaseKey]) -> Answer<u64> {
        self.collection
            .update_many(statements::held_any(keys), statements::refresh())
            .await
            .map(|refreshed| refreshed.matched_count)
            .map_err(|error| self.faults.write(error))
    }

    async fn refresh_look(&self) -> Answer<RefreshLook> {
        let filter = statements::one_of(&[FSCK_ID, LAYOUT_ID]);
        let found = look::find(&self.collection, None, filter, doc! {}).await;
        let mut look = RefreshLook { fsck: None, generation: None };
        for document in found.map_err(|error| self.faults.look(error))? {
            match document.get_str("_id") {
                Ok(LAYOUT_ID) => look.generation = documents::generation(&document),
                _ => look.fsck = Some(documents::owner_and_phase(&document)),
            }
        }
        Ok(look)
    }

    async fn standing(&self, keys: &[LeaseKey]) -> Answer<Vec<LeaseKey>> {
        let projection = doc! { "owner": 1 };
        let found = look::find(&self.collection, None, statements::held_any(keys), projection).await;
        let found = found.map_err(|error| self.faults.look(error))?;
        Ok(found
            .iter()
            .filter_map(|lease| {
                Some(LeaseKey {
                    id: lease.get_str("_id").ok()?.to_owned(),
                    owner: lease.get_str("owner").ok()?.to_owned(),
                })
            })
            .collect())
    }

    async fn peek(&self) -> Answer<Option<Record<Pulse>>> {
        let id = statements::id(FSCK_ID);
        let found = look::find(&self.collection, None, id, statements::view()).await;
        Ok(look::Seen::of(&found.map_err(|error| self.faults.look(error))?).remove(FSCK_ID))
    }

    async fn look(&self) -> Answer<StoreLook<Pulse>> {
        let pipeline = statements::look_at_leases(self.collection.name());
        let seen = look::look(&self.collection, None, pipeline, Detail::Full).await;
        let seen = seen.map_err(|error| self.faults.look(error))?;
        let now = match seen.now {
            Some(now) => now,
            None => self.server_time().await?,
        };
        Ok(StoreLook {
            now: documents::timestamp(now)
                .ok_or_else(|| BackendError::new(Fault::Internal, "the server's time is beyond all calendars"))?,
            generation: seen.generation,
            leases: seen.leases,
        })
    }

    async fn remove(&self, id: &str, pulse: &Pulse) -> Answer<bool> {
        let removed = self
            .collection
            .delete_one(statements::unmoved(id, pulse))
            .await
            .map_err(|error| self.faults.write(error))?;
        if removed.deleted_count == 0 {
            return Ok(false);
        }
        if let Pulse::Beat { owner, .. } = pulse {
            self.drop_fences(id, owner).await;
        }
        Ok(true)
    }

    async fn history(&self) -> Answer<Vec<HistoryEntry>> {
        self.read_history().await
    }

    async fn record(&self, line: &HistoryLine) -> Answer<()> {
        self.add_history(line).await
    }
}
