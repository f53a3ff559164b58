//! Fence documents: what makes the commit of a user's transaction depend on a lease.
//!
//! A transaction that has raised the `n` of a lease's fence document has written it. Whoever takes the lease away
//! deletes the lease document, then its fence documents: that delete waits for the transaction to end, or the
//! transaction finds the document gone, or changed since it began, and cannot commit.

use std::ops::Range;
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc, rawdoc};
use mongodb::error::{Error, ErrorKind};
use mongodb::{ClientSession, Database};

use crate::backend::{Answer, BackendError, Fault, LeaseKey, NO_TRANSACTIONS, Namespace};

use super::connect::{Topology, durable};
use super::faults::Faults;
use super::session::Session;
use super::{Mongo, statements};

/// How long a statement that deletes fence documents may wait inside the server for the transactions that hold them.
/// It is repeated, and one whose client is gone must not wait on.
pub(super) const SWEEP: Duration = Duration::from_secs(1);
/// The same for what a release deletes in passing: whoever releases waits for it.
const IN_PASSING: Duration = Duration::from_millis(100);
/// How often what a release could not delete is tried again: longer than a server lets a transaction live.
const TRIES: usize = 90;

impl Mongo {
    /// Deletes a lease's fence documents. They block nobody but the transactions that name them, and every fsck sweeps
    /// what it finds; so what is held by a transaction is left to a task, and no reason to call the lease undeleted.
    pub(super) async fn drop_fences(&self, id: &str, owner: &str) {
        let filter = statements::fences_of(id, owner);
        let Err(error) = self.delete_fences(filter.clone(), IN_PASSING).await else { return };
        tracing::info!(
            store = %self.name,
            lease = %crate::describe::printable(id),
            "the fence documents of a deleted lease stay for now: {}",
            error.message
        );
        let (database, collection, faults) = (self.database.clone(), self.namespace.clone(), self.faults.clone());
        tokio::task::spawn_local(async move {
            for _ in 0..TRIES {
                match delete(&database, &collection.collection, &faults, filter.clone(), SWEEP).await {
                    Err(error) if error.fault == Fault::Unknown => {}
                    _ => return,
                }
            }
        });
    }

    /// Deletes fence documents, waiting so long at most for the transactions that hold them.
    pub(super) async fn delete_fences(&self, filter: Document, patience: Duration) -> Answer<()> {
        delete(&self.database, self.collection.name(), &self.faults, filter, patience).await
    }

    /// Makes fence documents, and notes in the lease that it has some: both or neither.
    pub(super) async fn make_fences(&self, session: &mut Session, key: &LeaseKey, slots: Range<u64>) -> Answer<bool> {
        if self.topology == Topology::Standalone {
            return Err(BackendError::new(Fault::Invalid, NO_TRANSACTIONS));
        }
        let begun = session.begin(durable()).await;
        let begun = begun.map_err(|error| self.faults.staged(error))?;
        match self.stage_fences(begun, key, slots).await {
            Ok(true) => session.commit().await.map(|()| true).map_err(|error| self.faults.commit(error)),
            Ok(false) => {
                session.settled().await;
                Ok(false)
            }
            Err(error) => {
                session.settled().await;
                Err(self.faults.staged(error))
            }
        }
    }

    async fn stage_fences(
        &self,
        session: &mut ClientSession,
        key: &LeaseKey,
        slots: Range<u64>,
    ) -> Result<bool, Error> {
        // A write that changes something each time: one that changes nothing would let the lease be deleted meanwhile.
        let noted = self
            .collection
            .update_one(statements::held(key), statements::fenced(slots.end - slots.start))
            .session(&mut *session)
            .await?;
        if noted.matched_count != 1 {
            return Ok(false);
        }
        let documents: Vec<RawDocumentBuf> = slots
            .map(|slot| {
                let id = statements::fence_id(key, slot);
                rawdoc! { "_id": id, "kind": "fence", "lease": key.id.as_str(), "n": 0_i64 }
            })
            .collect();
        self.collection.insert_many(documents).session(session).await?;
        Ok(true)
    }
}

async fn delete(
    database: &Database,
    collection: &str,
    faults: &Faults,
    filter: Document,
    patience: Duration,
) -> Answer<()> {
    let command = doc! {
        "delete": collection,
        "deletes": [{ "q": filter, "limit": 0 }],
        "writeConcern": { "w": "majority", "j": true },
        "maxTimeMS": i64::try_from(patience.as_millis()).unwrap_or(i64::MAX),
    };
    let reply = database.run_command(command).await;
    let reply = reply.map_err(|error| faults.write(error))?;
    // The driver looks into the replies of its own writes, not into those of a command.
    if reply.contains_key("writeErrors") || reply.contains_key("writeConcernError") {
        return Err(BackendError::new(
            Fault::Unknown,
            "not all fence documents were deleted yet; a fenced transaction may hold them",
        ));
    }
    Ok(())
}

/// Raises a fence document within the transaction that runs in `session`. `false`: there is none that the transaction
/// can see.
pub(crate) async fn raise(
    session: &mut ClientSession,
    namespace: &Namespace,
    key: &LeaseKey,
    slot: u64,
) -> Result<bool, Error> {
    let client = session.client();
    let fences = client.database(&namespace.database).collection::<RawDocumentBuf>(&namespace.collection);
    let (filter, update) = (statements::id(&statements::fence_id(key, slot)), doc! { "$inc": { "n": 1_i64 } });
    Ok(fences.update_one(filter, update).session(session).await?.matched_count == 1)
}

/// Whether a transaction runs in `session`. The driver does not tell, but it refuses a write concern within one before
/// it sends anything; outside, what is sent deletes nothing.
pub(crate) async fn is_in_transaction(session: &mut ClientSession, namespace: &Namespace) -> Result<bool, Error> {
    let client = session.client();
    let fences = client.database(&namespace.database).collection::<RawDocumentBuf>(&namespace.collection);
    match fences.delete_one(statements::nothing()).write_concern(durable()).session(session).await {
        Ok(_) => Ok(false),
        Err(error) if matches!(*error.kind, ErrorKind::InvalidArgument { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}
