//! A record store that any number of processes open and write: one of them owns it, the others hand their writes over.
//!
//! ```text
//! Store::open ─▶ Owner:  write ─▶ one transaction ─▶ outcome
//!             └▶ Reader: write ─▶ spool ─▶ (the owner applies it) ─▶ outcome, from the owner or from the ledger
//! ```
//!
//! Whoever takes P.lock is the owner; every other process is a reader, follows it, and one of them takes over the moment it
//! is gone. A write has the same outcome in both roles, and is applied once, in the order of its instance, whatever dies
//! when. Every write of the owner, opening included, is under a writer lease that it holds through a gate: for an fsck it
//! checkpoints, closes the file and gives the lease back, and opens it anew when the fsck has gone. Reading is not excluded
//! by an fsck.
//!
//! # What it does not promise
//!
//! A write that was handed over is applied when there is an owner; who waits for it waits as long as that takes. What was
//! gathered by a [`StoreWriter`] and not flushed is lost with the process.
//!
//! An fsck may put another file in the store's place, by its rules: it brings the log of the old file into it first
//! (`PRAGMA wal_checkpoint(TRUNCATE)`, until that says that nothing was in its way), for an owner that was killed leaves
//! one; it renames the new file over the old, and removes the old `-wal` and `-shm`. A log that stays behind would be
//! applied to the new file, which it destroys: nobody can tell whose it is.
//!
//! # Files
//!
//! `registry` has one open store a path, `core` what its handles share with `life`, the thread that follows and owns;
//! `owning` is the ownership, `period` the time between two fscks, `permit` what allows it, `closing` the end. `reading`
//! reads, `changes` tells when it is worth it, `read_only` does nothing else, `delivery` hands over and learns what became of it, `waiters` is the owner's side of that, `writer` gathers.

mod changes;
mod closing;
mod core;
mod delivery;
mod life;
mod opener;
mod options;
mod owning;
mod period;
mod permit;
mod read_only;
mod reading;
mod registry;
mod waiters;
mod worker;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::oneshot;

pub use self::core::Role;
pub use changes::Changes;
pub use delivery::{BatchResult, Delivered};
pub use opener::{Opener, Sqlite};
pub use options::OpenStore;
pub use read_only::{ReadOnly, read_only};
pub use writer::{Flushed, StoreWriter, Until};

use self::core::{Core, Job};
use crate::backend::local::files::FileId;
use crate::clock::{SystemClock, within};
use crate::error::{Error, Result};
use crate::owner::state::{self, Ownership};
use crate::records::{
    Applied, BatchOutcome, Entry, Operation, Outcome, Row, Schema, Source, StreamMeta, StreamName, Window,
};
use crate::spool::{Caps, FailedFiles, NewBatch};
use crate::store_url::StoreName;

/// This process's hold on a record store. Handles on the same store share it; it ends with the last of them, by
/// [`Store::close`] or when it is dropped, which does the same without waiting for it.
///
/// Needs no runtime of a particular kind: everything happens on threads of its own, and a caller only awaits answers. A
/// forked child has none of them: its copies answer `LeaseLost`, and it opens no store that its parent has open.
#[derive(Debug)]
pub struct Store<O: Opener = Sqlite> {
    core: Arc<Core<O>>,
    id: FileId,
    left: bool,
}

impl<O: Opener> Clone for Store<O> {
    fn clone(&self) -> Self {
        registry::share(&self.core, self.id);
        Store::handle(Arc::clone(&self.core), self.id)
    }
}

impl<O: Opener> Drop for Store<O> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Store<Sqlite> {
    /// Opens the record store at `path` when awaited: as its owner when no other process is, else as a reader that takes
    /// over when the owner goes. Makes the store where there is none.
    ///
    /// ```no_run
    /// # async fn example() -> lockhouse::Result<()> {
    /// use lockhouse::owner::Store;
    /// use lockhouse::records::Schema;
    ///
    /// let schema: Schema = serde_json::from_str(
    ///     r#"{"kind": "order", "columns": [{"name": "id", "type": "integer"}, {"name": "item", "type": "text"}], "key": ["id"]}"#,
    /// ).unwrap();
    /// let store = Store::open("/srv/orders").build(env!("CARGO_PKG_VERSION")).await?;
    /// let rows = [r#"{"id": 1, "item": "lamp"}"#, r#"{"id": 2, "item": "desk"}"#];
    /// let rows = rows.iter().map(|row| schema.row(row.as_bytes())).collect::<Result<_, _>>().unwrap();
    /// let applied = store.append(&"2026-01".parse().unwrap(), &schema, rows).await?;
    /// assert_eq!(applied.stored, 2);
    /// store.close().await
    /// # }
    /// ```
    pub fn open(path: impl AsRef<Path>) -> OpenStore<Sqlite> {
        OpenStore::new(path.as_ref())
    }
}

impl<O: Opener> Store<O> {
    /// A handle that is counted already.
    fn handle(core: Arc<Core<O>>, id: FileId) -> Self {
        Store { core, id, left: false }
    }

    /// `true`: it was the last handle.
    fn leave(&mut self) -> bool {
        !std::mem::replace(&mut self.left, true) && registry::leave(&self.core, self.id)
    }

    /// The store's name.
    pub fn name(&self) -> &StoreName {
        &self.core.name
    }

    /// What this process is now. It may be another a moment later: nothing is to be decided by it.
    pub fn role(&self) -> Role {
        self.core.role()
    }

    /// What this process is, and what it becomes, from now on: the present role first.
    pub fn on_role(&self) -> BoxStream<'static, Role> {
        let mut position = self.core.position.subscribe();
        position.mark_changed();
        let roles = futures::stream::unfold((position, None), async |(mut position, told)| {
            loop {
                position.changed().await.ok()?;
                let role = position.borrow_and_update().role;
                if told != Some(role) {
                    return Some((role, (position, Some(role))));
                }
            }
        });
        roles.boxed()
    }

    /// Who owns the store, and what it says about itself. A few system calls.
    pub fn status(&self) -> Ownership {
        state::look(&self.core.path)
    }

    /// Reads something, on the thread that reads. `read` must not keep anything of the source.
    ///
    /// # Errors
    ///
    /// [`CatalogVersion`](crate::CatalogVersion) if the store has another build's catalog: what is written is handed over
    /// all the same. `Unavailable` while the file cannot be read; what `read` says.
    ///
    /// # Cancellation
    ///
    /// What has begun goes on to its end.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Source) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.core.check_process()?;
        self.core.reading.read(read).await
    }

    /// What is known of a stream; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    pub async fn meta(&self, stream: &StreamName) -> Result<Option<StreamMeta>> {
        let stream = stream.clone();
        self.read(move |source| source.meta(&stream)).await
    }

    /// At most `limit` rows of a stream, from a seq on; `None` if there is no such stream.
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    pub async fn scan(&self, stream: &StreamName, from_seq: u64, limit: usize) -> Result<Option<Window>> {
        let stream = stream.clone();
        self.read(move |source| source.scan(&stream, from_seq, limit)).await
    }

    /// The kinds, in the order of their names.
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    pub async fn kinds(&self) -> Result<Vec<Schema>> {
        self.read(|source| source.kinds()).await
    }

    /// Adds rows to a stream, which is made where there is none. All of them or none.
    ///
    /// # Errors
    ///
    /// `Invalid` with the refusal as its source; `Pending` if they may be in the store and it is not known; otherwise as
    /// [`Store::write`].
    pub async fn append(&self, stream: &StreamName, schema: &Schema, rows: Vec<Row>) -> Result<Applied> {
        let operation = Operation::Append { kind: schema.kind.clone(), rows, ttl: None, seal: false };
        self.one(vec![schema.clone()], Entry { stream: stream.clone(), generation: None, operation }).await
    }

    /// Does one thing to one stream.
    ///
    /// # Errors
    ///
    /// As [`Store::append`].
    pub async fn apply(&self, stream: &StreamName, operation: Operation) -> Result<Applied> {
        self.one(Vec::new(), Entry { stream: stream.clone(), generation: None, operation }).await
    }

    async fn one(&self, schemas: Vec<Schema>, entry: Entry) -> Result<Applied> {
        match self.write(NewBatch::new(schemas, vec![entry])).await?.pop() {
            Some(Outcome::Applied(applied)) => Ok(applied),
            Some(Outcome::Refused(refusal)) => Err(Error::refused(&self.core.name, refusal)),
            None => Err(Error::internal("the outcome of a batch has no entries")),
        }
    }

    /// Applies a batch, and returns what became of each of its entries: exactly what the owner did, whichever process that
    /// is. Waits as long as it takes while nobody owns the store.
    ///
    /// # Errors
    ///
    /// `Invalid` for a batch over the limits, and for one that the owner could not apply: it lies in `failed/`.
    /// `LeaseLost` once the fsck is over under whose lease the store was opened, and in a forked child.
    /// `Unavailable` if it could not be handed over, and nothing came of it. `Pending` if it was, and what became of it
    /// cannot be learnt: ask [`Store::await_batch`] before anything is written again.
    ///
    /// # Cancellation
    ///
    /// Dropping the future leaves the batch where it is: it may be applied, or not.
    pub async fn write(&self, batch: NewBatch) -> Result<Vec<Outcome>> {
        delivery::write(&self.core, batch).await
    }

    /// Hands a batch over, and returns its id once it is durable: applied already, or in the spool. What becomes of it
    /// tells [`Store::await_batch`]. This process may end at once.
    ///
    /// # Errors
    ///
    /// As [`Store::write`].
    pub async fn hand_over(&self, batch: NewBatch) -> Result<String> {
        delivery::hand_over(&self.core, batch).await.map(|handed| handed.id)
    }

    /// As [`Store::hand_over`], and says what became of the batch where this process applied it itself.
    ///
    /// # Errors
    ///
    /// As [`Store::write`].
    pub async fn deliver(&self, batch: NewBatch) -> Result<Delivered> {
        delivery::hand_over(&self.core, batch).await
    }

    /// Waits for a batch that was handed over, by whichever process, and returns what became of it; at once if nobody
    /// has it.
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    ///
    /// # Cancellation
    ///
    /// May be dropped at any time: the batch stays what it is.
    pub async fn await_batch(&self, id: &str) -> Result<BatchResult> {
        delivery::await_batch(&self.core, id).await
    }

    /// Tells from now on when the store may have changed.
    pub fn changes(&self) -> Changes {
        Changes::of(&self.core.options.opener.file(&self.core.path.path()))
    }

    /// Gathers writes into batches.
    pub fn writer(&self) -> StoreWriter<O> {
        self.writer_with(Caps::default())
    }

    /// As [`Store::writer`], with smaller or larger batches.
    pub fn writer_with(&self, caps: Caps) -> StoreWriter<O> {
        StoreWriter::new(self.clone(), caps)
    }

    /// Gives up a batch at which its producer is halted, or that is tried again: it goes to `failed/`. `false`: this process
    /// is not the owner, or no such batch is in the way.
    pub async fn give_up(&self, id: &str) -> bool {
        let (reply, answer) = oneshot::channel();
        let asked = self.core.is_own() && self.core.jobs.send(Job::GiveUp { id: id.to_owned(), reply }).is_ok();
        asked && answer.await.unwrap_or(false)
    }

    /// What lies in `failed/`.
    pub fn failed(&self) -> FailedFiles {
        FailedFiles::of(&self.core.spool)
    }

    /// Ends this handle; with the last one, this process's hold on the store. An owner ingests what is in the spool, for
    /// ten seconds unless it was told otherwise, and gives the store back. In either role what was published while nobody
    /// owned the store is ingested, if an owner has not come. Waits for all of it.
    ///
    /// # Errors
    ///
    /// None today.
    ///
    /// # Cancellation
    ///
    /// Dropping the future does not undo it.
    pub async fn close(mut self) -> Result<()> {
        if self.leave() {
            let mut ended = self.core.ended.subscribe();
            // The other side is in `core`.
            let _ = ended.wait_for(|ended| *ended).await;
        }
        Ok(())
    }
}

/// Waits until whoever opened need not wait any more.
async fn await_settled<O: Opener>(store: &Store<O>, limit: Duration) -> Result<()> {
    let core = &store.core;
    let mut position = core.position.subscribe();
    let settled =
        within(&SystemClock, limit, position.wait_for(|position| position.settled || position.refused.is_some()));
    match settled.await {
        Some(Ok(position)) => match &position.refused {
            Some(error) if !position.settled => Err(error.again()),
            _ => Ok(()),
        },
        Some(Err(_)) => Err(core.is_closed()),
        None if core.position.borrow().hindrance.is_some() => {
            let position = core.position.borrow();
            position.hindrance.as_ref().map_or(Ok(()), |hindrance| Err(hindrance.again()))
        }
        None => {
            let waited = crate::describe::duration(limit);
            let owner = state::look(&core.path);
            Err(core.unavailable(format!(
                "its owner ({owner}) was not ready within {waited}; look at it with `lockhouse owner status`"
            )))
        }
    }
}

/// The outcomes of a batch's entries, or why it has none.
fn entries_of<O: Opener>(core: &Core<O>, id: &str, outcome: BatchOutcome) -> Result<Vec<Outcome>> {
    match outcome {
        BatchOutcome::Applied { entries, .. } => Ok(entries),
        BatchOutcome::Failed { error, .. } => Err(Error::invalid_at(
            &core.name,
            format!(
                "batch {id} could not be applied, and lies in failed/: {error}; see `lockhouse owner failed show {id}`"
            ),
        )),
        BatchOutcome::Skipped { .. } => {
            Err(Error::invalid_at(&core.name, format!("batch {id} was removed by somebody before it was applied")))
        }
    }
}
