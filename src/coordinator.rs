//! The handle on a store: connects, acquires, looks and clears. Every verb runs on the supervisor's own
//! thread; the caller's future only waits for the answer.

use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::ThreadId;
use std::time::Duration;

use futures::stream::BoxStream;
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::backend::memory::MemoryStore;
use crate::backend::{HistoryLine, Init};
use crate::connect::{CoordinatorBuilder, Target};
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::lease::command::{ClearRequest, Command, FsckRequest, Reply, WriterRequest};
use crate::lease::status::{HistoryEntry, Status};
use crate::lease::{Event, GateOptions, Measures, WriterGate, events};
use crate::request::{AcquireFsck, AcquireWriter, Clear};
use crate::store_url::{StoreName, StoreUrl};
use crate::timing::LeaseTiming;

/// The longest label and reason, in bytes: they are read by people.
const LONGEST_TEXT: usize = 4096;

/// How long a drain may take unless a caller says otherwise.
pub const DEFAULT_DRAIN_BUDGET: Duration = Duration::from_secs(600);

/// A handle on one store. Clones share one supervisor thread, which ends with the last of them and of the
/// leases it granted.
///
/// # Cancellation
///
/// A future of a coordinator may be dropped at any time: an acquisition that nobody waits for is withdrawn,
/// a release or a clearing that was begun is finished.
///
/// # Dropping
///
/// Dropping the last clone blocks until pending releases are confirmed, at most one refresh interval.
/// [`Coordinator::shutdown`] waits for all of them.
///
/// # Forks
///
/// A forked child has no supervisor: every call there fails with `Invalid` at once, and dropping a coordinator, a lease
/// or a gate touches nothing of the parent's.
#[derive(Debug, Clone)]
pub struct Coordinator(pub(crate) Arc<Handle>);

#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) store: StoreName,
    pub(crate) timing: LeaseTiming,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) holder: Holder,
    pub(crate) thread: Option<Thread>,
    /// The process that the supervisor's thread is in.
    pub(crate) pid: u32,
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) id: ThreadId,
    pub(crate) ended: std::sync::Mutex<blocking::Receiver<()>>,
}

impl Handle {
    /// Whether this is the process with the supervisor's thread, and not a fork of it.
    fn is_own(&self) -> bool {
        std::process::id() == self.pid
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.is_own() {
            // Nobody is there to be asked, or waited for.
            return;
        }
        let patience = self.timing.refresh_interval;
        let asked = self.commands.send(Command::Shutdown { patience: Some(patience), reply: None });
        let Some(thread) = &self.thread else { return };
        // The supervisor itself drops a handle when nobody waits for a lease any more: it must not wait for
        // itself.
        if asked.is_ok() && thread.id != std::thread::current().id() {
            let ended = thread.ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let _ = ended.recv_timeout(patience + Duration::from_secs(1));
        }
    }
}

impl Coordinator {
    /// Connects with default options.
    ///
    /// # Errors
    ///
    /// As [`CoordinatorBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Coordinator> {
        Coordinator::builder(url)?.connect().await
    }

    /// Options before connecting.
    ///
    /// # Errors
    ///
    /// `Invalid` if the URL names no store.
    pub fn builder(url: &str) -> Result<CoordinatorBuilder> {
        Ok(Coordinator::on(url.parse()?))
    }

    /// Options before connecting to a store whose URL was parsed before.
    pub fn on(url: StoreUrl) -> CoordinatorBuilder {
        CoordinatorBuilder::new(Target::Url(url))
    }

    /// A coordinator on a store within this process, for tests: the whole protocol without a server.
    pub fn on_memory(store: &MemoryStore) -> CoordinatorBuilder {
        CoordinatorBuilder::new(Target::Memory(store.clone()))
    }

    /// The store's name, as errors show it.
    pub fn store(&self) -> &StoreName {
        &self.0.store
    }

    /// The timing of the leases that it acquires.
    pub fn timing(&self) -> LeaseTiming {
        self.0.timing
    }

    /// Makes the store's layout document. A second run changes nothing.
    ///
    /// # Errors
    ///
    /// `Denied`, `Unavailable`; `Invalid` if the collection cannot be used.
    pub async fn init(&self) -> Result<Init> {
        self.ask(Command::Init).await
    }

    /// Acquires a writer lease when awaited.
    pub fn acquire_writer(&self) -> AcquireWriter {
        AcquireWriter { coordinator: self.clone(), request: WriterRequest::default() }
    }

    /// A gate: one writer lease that all writes of this process share, entered at the price of an atomic. Each call
    /// makes another gate with a lease of its own; clone one to share it.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # let store = lockhouse::MemoryStore::new();
    /// # let coordinator = lockhouse::Coordinator::on_memory(&store).connect().await?;
    /// # coordinator.init().await?;
    /// let gate = coordinator.gate(lockhouse::GateOptions::default());
    /// let guard = gate.enter().await?;
    /// // … write, with a time limit below guard.remaining(), and wait for the answer …
    /// guard.check()?;
    /// drop(guard);
    /// # Ok::<(), lockhouse::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn gate(&self, options: GateOptions) -> WriterGate {
        WriterGate::new(self.clone(), options)
    }

    /// Acquires the fsck lease when awaited.
    pub fn acquire_fsck(&self) -> AcquireFsck {
        let request = FsckRequest {
            wait: Duration::ZERO,
            label: None,
            reason: None,
            force: false,
            peer_is_dead: false,
            drain_budget: DEFAULT_DRAIN_BUDGET,
            bump_generation: true,
            progress: None,
        };
        AcquireFsck { coordinator: self.clone(), request }
    }

    /// Clears a dead fsck lease when awaited. Safe in a script before every job: a living one is spared.
    pub fn clear_stale_lock(&self) -> Clear {
        Clear { coordinator: self.clone(), request: ClearRequest::default(), verb: Command::Clear }
    }

    /// Removes dead writer leases when awaited. Safe in a script: living ones are spared.
    pub fn prune_stale_writers(&self) -> Clear {
        Clear { coordinator: self.clone(), request: ClearRequest::default(), verb: Command::Prune }
    }

    /// Who holds what. Takes no lease and writes nothing; a user who may only read is enough.
    ///
    /// # Errors
    ///
    /// `Denied`, `Unavailable`; `Invalid` if the collection cannot be used.
    pub async fn status(&self) -> Result<Status> {
        self.ask(Command::Status).await
    }

    /// The audit trail, oldest first; at most the last 1,000 lines.
    ///
    /// # Errors
    ///
    /// As [`Coordinator::status`].
    pub async fn history(&self) -> Result<Vec<HistoryEntry>> {
        self.ask(Command::History).await
    }

    /// Adds a line to the audit trail: what a job did, or how it failed.
    ///
    /// # Errors
    ///
    /// `Denied`, `Unavailable`, or `Invalid` if the text is longer than 4,096 bytes.
    pub async fn record(&self, what: &'static str, lease: Option<&str>, reason: Option<String>) -> Result<()> {
        check_text("reason", reason.as_deref())?;
        let (lease, holder) = (lease.map(str::to_owned), self.0.holder.clone());
        let line = HistoryLine { name: crate::entropy::unique(), what, lease, holder, reason };
        self.ask(|reply| Command::Record(line, reply)).await
    }

    /// What happens to the leases of this coordinator from now on. A listener that falls more than 1,024
    /// events behind misses the oldest.
    pub fn events(&self) -> BoxStream<'static, Event> {
        events::stream(self.0.events.subscribe())
    }

    /// What this coordinator has counted so far. Answered by the watchdog of its supervisor in its next round, so an
    /// answer is a sign of life of both; while they hang there is none.
    ///
    /// # Errors
    ///
    /// `Unavailable` after [`Coordinator::shutdown`].
    pub async fn measures(&self) -> Result<Measures> {
        self.ask(Command::Measure).await
    }

    /// Gives every lease back, waits until the store has confirmed all of it, and ends the supervisor. Leases
    /// still in somebody's hand are lost. On a store that cannot refuse late statements this includes
    /// repeating unconfirmed deletes one stale age later.
    pub async fn shutdown(&self) {
        let (reply, done) = oneshot::channel();
        if self.send(Command::Shutdown { patience: None, reply: Some(reply) }).is_ok() {
            let _ = done.await;
        }
    }

    pub(crate) fn send(&self, command: Command) -> Result<()> {
        self.is_usable()?;
        self.0.commands.send(command).map_err(|_| self.ended())
    }

    /// Refuses in a forked child, where nobody would answer.
    pub(crate) fn is_usable(&self) -> Result<()> {
        if self.0.is_own() {
            return Ok(());
        }
        let message = "the coordinator is that of the process that this one was forked from; connect anew in this one";
        Err(Error::invalid_at(&self.0.store, message))
    }

    pub(crate) async fn answer<T>(&self, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        answer.await.unwrap_or_else(|_| Err(self.ended()))
    }

    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply))?;
        self.answer(answer).await
    }

    pub(crate) fn ended(&self) -> Error {
        Error::unavailable_at(&self.0.store, "the coordinator has been shut down; connect again")
    }
}

pub(crate) fn check_text(what: &str, text: Option<&str>) -> Result<()> {
    match text {
        Some(text) if text.len() > LONGEST_TEXT => {
            Err(Error::invalid(format!("the {what} has {} bytes; at most {LONGEST_TEXT} are kept", text.len())))
        }
        _ => Ok(()),
    }
}
