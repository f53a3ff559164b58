//! The grant: the fsck lease's phase becomes `exclusive` and the generation is raised, once.
//!
//! Where there are transactions both happen or neither, and mostly they are one command. On a standalone they are two
//! statements in that order, each idempotent by its condition. A grant whose answer was lost is called again, so the phase
//! update notes in the lease to which generation it raises (`raised_to`), and the first note stays: a
//! repeated grant finds it and answers with it instead of raising twice.
//!
//! On a standalone one case cannot be told apart: the note was made, and another program raised the layout
//! by one before this lease did. It is then taken for this lease's own raising. Writers that were there
//! before still see another generation than theirs, which is what raising is for.

use bson::{RawDocumentBuf, doc};
use mongodb::ClientSession;
use mongodb::error::Error;
use mongodb::options::ReturnDocument;

use crate::backend::{Answer, BackendError, Fault, Grant, LeaseKey};

use super::connect::{Topology, durable};
use super::documents::{self, LAYOUT_ID};
use super::session::Session;
use super::{Mongo, statements};

impl Mongo {
    pub(super) async fn grant_to(
        &self,
        session: &mut Session,
        key: &LeaseKey,
        generation: i64,
        bump: bool,
    ) -> Answer<Grant> {
        if !bump {
            let phase = self.phase(session.settled().await, key, None).await;
            return Ok(match phase.map_err(|error| self.faults.write(error))? {
                Some(_) => Grant::Granted(generation),
                None => Grant::Displaced,
            });
        }
        let target = generation
            .checked_add(1)
            .ok_or_else(|| BackendError::new(Fault::Invalid, "the layout's generation cannot be raised any more"))?;
        match self.topology {
            Topology::Replicated { .. } => self.transaction(session, key, target).await,
            Topology::Standalone => {
                let session = session.settled().await;
                let grant = self.raise(session, key, target).await;
                let (grant, first) = grant.map_err(|error| self.faults.write(error))?;
                if first && grant == Grant::GenerationMoved {
                    // The note is not true, and the next grant of this lease must not believe it.
                    self.collection
                        .update_one(statements::held(key), statements::not_raised())
                        .session(session)
                        .await
                        .map_err(|error| self.faults.write(error))?;
                }
                Ok(grant)
            }
        }
    }

    async fn transaction(&self, session: &mut Session, key: &LeaseKey, target: i64) -> Answer<Grant> {
        let begun = session.begin(durable()).await;
        let begun = begun.map_err(|error| self.faults.staged(error))?;
        match self.both(begun, key, target).await {
            Ok(true) => self.committed(session, target).await,
            Ok(false) => self.step_by_step(session, key, target).await,
            Err(error) => {
                session.settled().await;
                Err(self.faults.staged(error))
            }
        }
    }

    /// Both statements in one command, if this is the first grant of the lease and nothing is in its way. `false`: one
    /// did not match, and what the other did must not be committed.
    async fn both(&self, session: &mut ClientSession, key: &LeaseKey, target: i64) -> Result<bool, Error> {
        let command = statements::grant(self.collection.name(), key, target);
        let reply = self.database.run_command(command).session(session).await?;
        // The driver looks into the replies of its own writes, not into those of a command.
        Ok(!reply.contains_key("writeErrors") && matches!(reply.get_i32("n"), Ok(2)))
    }

    /// The same as two statements, whose answers tell what was in the way.
    async fn step_by_step(&self, session: &mut Session, key: &LeaseKey, target: i64) -> Answer<Grant> {
        let begun = session.begin(durable()).await;
        let begun = begun.map_err(|error| self.faults.staged(error))?;
        let grant = self.raise(begun, key, target).await;
        match grant {
            Ok((Grant::Granted(generation), _)) => self.committed(session, generation).await,
            Ok((refused, _)) => {
                session.settled().await;
                Ok(refused)
            }
            Err(error) => {
                session.settled().await;
                Err(self.faults.staged(error))
            }
        }
    }

    async fn committed(&self, session: &mut Session, generation: i64) -> Answer<Grant> {
        match session.commit().await {
            Ok(()) => Ok(Grant::Granted(generation)),
            Err(error) => Err(self.faults.commit(error)),
        }
    }

    /// Both statements, and whether this lease was granted for the first time.
    async fn raise(&self, session: &mut ClientSession, key: &LeaseKey, target: i64) -> Result<(Grant, bool), Error> {
        let Some(before) = self.phase(session, key, Some(target)).await? else {
            return Ok((Grant::Displaced, true));
        };
        let noted = documents::raised_to(&before);
        let target = noted.unwrap_or(target);
        let raised = self
            .collection
            .update_one(statements::layout_at(target.saturating_sub(1)), statements::raise())
            .session(&mut *session)
            .await?;
        let first = noted.is_none();
        if raised.matched_count == 1 {
            return Ok((Grant::Granted(target), first));
        }
        let layout = match noted {
            Some(_) => self.collection.find_one(statements::id(LAYOUT_ID)).session(session).await?,
            None => None,
        };
        let reached = layout.and_then(|layout| documents::generation(&layout)) == Some(target);
        Ok(match reached {
            true => (Grant::Granted(target), first),
            false => (Grant::GenerationMoved, first),
        })
    }

    /// Turns the phase. Answers with the document as it was before, which tells an earlier grant.
    async fn phase(
        &self,
        session: &mut ClientSession,
        key: &LeaseKey,
        raise_to: Option<i64>,
    ) -> Result<Option<RawDocumentBuf>, Error> {
        self.collection
            .find_one_and_update(statements::held(key), statements::exclusive(raise_to))
            .projection(doc! { "lockhouse.raised_to": 1 })
            .return_document(ReturnDocument::Before)
            .session(session)
            .await
    }
}
