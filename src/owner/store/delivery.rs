//! Handing a batch over, and learning what became of it.
//!
//! An owner applies it itself. Everybody else publishes it to the spool and asks the owner over its socket, which answers
//! with the outcome; whoever cannot be answered looks into the ledger. Nothing depends on the socket.

use std::ffi::OsStr;
use std::time::Duration;

use tokio::sync::oneshot;

use super::core::{Core, Job, Role, Written};
use super::entries_of;
use super::opener::Opener;
use crate::clock::{Clock, SystemClock, within};
use crate::error::{Error, Pending, Result};
use crate::owner::control::{Ingested, control_ingest, nudge};
use crate::owner::state;
use crate::records::{BatchOutcome, Outcome};
use crate::spool::{FailedFiles, NewBatch};

/// How long an owner may take to answer: it says "not yet" after ten seconds.
const ANSWER: Duration = Duration::from_secs(15);
/// How long telling an owner that there is something may take: it is not waited until it hears.
const NUDGE: Duration = Duration::from_secs(1);
/// How often the ledger is looked into, at first and later.
const LOOK_SOON: Duration = Duration::from_millis(2);
const LOOK_LATER: Duration = Duration::from_millis(100);

/// How long what cannot be read is looked at again.
const UNREAD: Duration = Duration::from_secs(30);

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchResult {
    /// This.
    Known(BatchOutcome),
    /// Nobody has it, and the ledger does not know it: it was never published, or so long ago that it is forgotten.
    Unknown,
}

/// A batch that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered {
    /// Its id.
    pub id: String,
    /// What became of it, if this process applied it itself; else [`Store::await_batch`](super::Store::await_batch) tells.
    pub outcome: Option<BatchOutcome>,
}

pub(super) async fn write<O: Opener>(core: &Core<O>, batch: NewBatch) -> Result<Vec<Outcome>> {
    let handed = publish(core, batch).await?;
    let outcome = match handed.outcome {
        Some(outcome) => outcome,
        None => match await_batch(core, &handed.id).await {
            Ok(BatchResult::Known(outcome)) => outcome,
            Ok(BatchResult::Unknown) => {
                return Err(pending(core, &handed.id, "it is not in the spool any more".to_owned()));
            }
            Err(error) => return Err(pending(core, &handed.id, error.to_string())),
        },
    };
    entries_of(core, &handed.id, outcome)
}

/// As [`publish`], and lets the owner know.
pub(super) async fn hand_over<O: Opener>(core: &Core<O>, batch: NewBatch) -> Result<Delivered> {
    let handed = publish(core, batch).await?;
    if handed.outcome.is_none() {
        // An owner that does not hear it looks by itself soon.
        let _ = nudge(&core.path, &handed.id, NUDGE).await;
    }
    Ok(handed)
}

/// Applies a batch directly, or publishes it.
async fn publish<O: Opener>(core: &Core<O>, batch: NewBatch) -> Result<Delivered> {
    core.check()?;
    let id = batch.id.clone();
    let mut batch = Box::new(batch);
    if core.role() == Role::Owner {
        let (reply, answer) = oneshot::channel();
        core.jobs.send(Job::Write { batch, reply }).map_err(|_| core.is_closed())?;
        match answer.await {
            Ok(Written::Done(outcome)) => return outcome.map(|outcome| Delivered { id, outcome: Some(outcome) }),
            Ok(Written::NotNow(back)) => batch = back,
            Err(_) => return Err(pending(core, &id, "the store was closed while it was written".to_owned())),
        }
    }
    core.check()?;
    let format = format(core)?;
    let producer = core.producer.clone();
    core.publishing.run(move |()| producer.publish(&batch, &format)).await?;
    Ok(Delivered { id, outcome: None })
}

/// The format to publish in: one that the owner reads.
fn format<O: Opener>(core: &Core<O>) -> Result<String> {
    let wanted = &core.options.format;
    let owner = state::look(&core.path);
    let Some(spool) = owner.state().and_then(|state| state.spool.as_ref()) else { return Ok(wanted.clone()) };
    if spool.formats.iter().any(|format| format == wanted) {
        return Ok(wanted.clone());
    }
    let both = |format: &&String| core.options.formats.get(format).is_some();
    spool.formats.iter().find(both).cloned().ok_or_else(|| {
        let theirs = spool.formats.join(", ");
        Error::invalid_at(&core.name, format!("its owner reads no format that this build writes, but {theirs}"))
    })
}

pub(super) async fn await_batch<O: Opener>(core: &Core<O>, id: &str) -> Result<BatchResult> {
    core.check_process()?;
    let mut pause = LOOK_SOON;
    let (mut was_nowhere, mut unread_since) = (false, None);
    loop {
        let asked = ask(core, id).await;
        let answered = asked.as_ref().is_ok_and(|ingested| ingested.more);
        if let Ok(ingested) = &asked
            && let Some(outcome) = ingested.results.get(id)
            && let Ok(outcome) = serde_json::from_value(outcome.clone())
        {
            return Ok(BatchResult::Known(outcome));
        }
        let found = look(core, id).await;
        let mut nowhere = false;
        let now = SystemClock.now();
        match found {
            Ok(Look::Known(outcome)) => return Ok(BatchResult::Known(outcome)),
            Ok(Look::Waits) => unread_since = None,
            Ok(Look::Nowhere) => nowhere = true,
            // The owner's word is all that this build can have.
            Ok(Look::Hidden(error)) => match &asked {
                Ok(ingested) if ingested.ingested.iter().any(|known| known == id) => return Err(error),
                Ok(ingested) => nowhere = !ingested.more,
                Err(_) => {}
            },
            // It passes, as a rule: the file is being replaced, say.
            Err(Error::Unavailable(_)) if now.since(*unread_since.get_or_insert(now)) < UNREAD => {}
            Err(error) => return Err(error),
        }
        // One listing may miss what was there all the time.
        if nowhere && was_nowhere {
            return Ok(BatchResult::Unknown);
        }
        was_nowhere = nowhere;
        core.check()?;
        if answered {
            pause = LOOK_SOON;
        }
        SystemClock.sleep_until(SystemClock.now() + pause).await;
        pause = (pause * 2).min(LOOK_LATER);
    }
}

/// Asks whoever ingests to tell when it is done with a batch.
async fn ask<O: Opener>(core: &Core<O>, id: &str) -> Result<Ingested> {
    // Below an fsck the socket may be that of an owner that pauses, while this process ingests.
    if core.role() == Role::Owner {
        let (reply, answer) = oneshot::channel();
        let sent = core.jobs.send(Job::Ingest { ids: vec![id.to_owned()], wait: true, reply });
        if sent.is_ok()
            && let Some(Ok(Ok(ingested))) = within(&SystemClock, ANSWER, answer).await
        {
            return Ok(ingested);
        }
    }
    control_ingest(core.path.path(), &[id.to_owned()], true, ANSWER).await
}

enum Look {
    Known(BatchOutcome),
    Waits,
    Nowhere,
    /// In the ledger or nowhere: this build cannot read it.
    Hidden(Error),
}

/// Where a batch is. It goes from `incoming/` into the ledger, and only then to where it is thrown away or kept: so in this
/// order it is found.
async fn look<O: Opener>(core: &Core<O>, id: &str) -> Result<Look> {
    let there = |id: &str| core.spool.listed().map(|listed| listed.batches.iter().any(|batch| batch.id() == id));
    // A listing that is read while others rename may miss what was there before.
    if there(id)? || there(id)? {
        return match known(core, id).await {
            Ok(known) => Ok(known.map_or(Look::Waits, Look::Known)),
            Err(Error::CatalogVersion(_)) => Ok(Look::Waits),
            Err(error) => Err(error),
        };
    }
    let otherwise = match known(core, id).await {
        Ok(Some(outcome)) => return Ok(Look::Known(outcome)),
        Ok(None) => Look::Nowhere,
        Err(error @ Error::CatalogVersion(_)) => Look::Hidden(error),
        Err(error) => return Err(error),
    };
    // One that could not even be read is in no ledger.
    Ok(match FailedFiles::of(&core.spool).find(OsStr::new(id))? {
        Some(failed) => match failed.reason {
            Some(reason) => Look::Known(BatchOutcome::Failed { at: reason.at, error: reason.error }),
            None => Look::Known(BatchOutcome::Failed {
                at: crate::clock::wall(),
                error: "nobody could write down why".to_owned(),
            }),
        },
        None => otherwise,
    })
}

async fn known<O: Opener>(core: &Core<O>, id: &str) -> Result<Option<BatchOutcome>> {
    let id = id.to_owned();
    core.reading.read(move |source| source.batch_outcome(&id)).await
}

fn pending<O: Opener>(core: &Core<O>, id: &str, why: String) -> Error {
    Pending { store: core.name.clone(), batch_id: id.to_owned(), why }.into()
}
