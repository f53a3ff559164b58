//! What the handles of one open store share with the thread that lives its life.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::opener::Opener;
use super::options::OpenStore;
use super::reading::Reading;
use super::worker::Worker;
use crate::backend::local::path::StorePath;
use crate::error::{Error, LeaseLost, LossReason, OWNER_ID, Result};
use crate::lease::status::LeaseKind;
use crate::owner::control::Ingested;
use crate::owner::state::Phase;
use crate::records::BatchOutcome;
use crate::spool::{NewBatch, Producer, Spool};
use crate::store_url::StoreName;

/// What this process is to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Another process writes the store, or nobody does: what this one writes goes through the spool.
    Reader,
    /// This process writes the store.
    Owner,
}

/// One open store of this process.
#[derive(Debug)]
pub(super) struct Core<O: Opener> {
    pub(super) options: OpenStore<O>,
    pub(super) path: StorePath,
    pub(super) name: StoreName,
    pub(super) spool: Spool,
    pub(super) producer: Arc<Producer>,
    pub(super) position: watch::Sender<Position>,
    pub(super) jobs: mpsc::UnboundedSender<Job>,
    pub(super) reading: Reading<O>,
    pub(super) publishing: Worker<()>,
    /// Whether the life of this store has ended.
    pub(super) ended: watch::Sender<bool>,
    /// The process that opened it: a forked child has none of its threads.
    pub(super) pid: u32,
}

/// Where this process stands.
#[derive(Debug, Clone)]
pub(super) struct Position {
    pub(super) role: Role,
    /// How far this process is as the elected owner; `None` for everybody else.
    pub(super) own: Option<Phase>,
    /// Whoever opens need not wait any more.
    pub(super) settled: bool,
    /// Why the store cannot be opened at all.
    pub(super) refused: Option<Arc<Error>>,
    /// What was in the way of this process's owning it: why nobody was ready when the patience of an opener is over.
    pub(super) hindrance: Option<Arc<Error>>,
    /// Why nothing is begun any more.
    pub(super) over: Option<Arc<Error>>,
}

impl Position {
    pub(super) fn unsettled() -> Position {
        Position { role: Role::Reader, own: None, settled: false, refused: None, hindrance: None, over: None }
    }
}

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum Job {
    /// Applies a batch directly, if this process owns the store.
    Write { batch: Box<NewBatch>, reply: oneshot::Sender<Written> },
    /// Looks at the spool now. With `wait` it answers when the batches are done with.
    Ingest { ids: Vec<String>, wait: bool, reply: oneshot::Sender<Result<Ingested, String>> },
    /// Gives up a batch that halts its producer. Answers whether there was one.
    GiveUp { id: String, reply: oneshot::Sender<bool> },
    /// The last handle is gone.
    Close,
}

/// What became of a direct write.
#[derive(Debug)]
pub(super) enum Written {
    Done(Result<BatchOutcome>),
    /// This process does not own the store, or something of it is still on its way through the spool.
    NotNow(Box<NewBatch>),
}

impl<O: Opener> Core<O> {
    pub(super) fn place(&self, change: impl FnOnce(&mut Position)) {
        self.position.send_modify(change);
    }

    pub(super) fn role(&self) -> Role {
        self.position.borrow().role
    }

    pub(super) fn unavailable(&self, message: impl Into<String>) -> Error {
        Error::unavailable_at(&self.name, message)
    }

    /// Whether something may be begun.
    pub(super) fn check(&self) -> Result<()> {
        self.check_process()?;
        self.position.borrow().over.as_ref().map_or(Ok(()), |why| Err(why.again()))
    }

    /// Whether this is the process that opened the store. A forked child would wait for threads that it has not.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.is_own() { Ok(()) } else { Err(forked(&self.name)) }
    }

    pub(super) fn is_own(&self) -> bool {
        self.pid == std::process::id()
    }

    pub(super) fn is_closed(&self) -> Error {
        self.unavailable("it has been closed by this process; open it again")
    }
}

/// What a forked child is told of a store that its parent has open.
pub(super) fn forked(store: &StoreName) -> Error {
    let (store, identifier) = (store.clone(), OWNER_ID.to_owned());
    LeaseLost { store, identifier, kind: LeaseKind::Writer, why: LossReason::Supervisor }.into()
}
