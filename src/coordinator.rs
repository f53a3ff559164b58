//! The handle on a store: connects, acquires, looks and clears. Every verb runs on the supervisor's own
//! thread; the caller's future only waits for the answer.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::ThreadId;
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::backend::memory::{Memory, MemoryStore};
use crate::backend::{Backend, HistoryLine, Init};
use crate::clock::{Clock, SystemClock};
use crate::entropy::Entropy;
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::lease::command::{ClearRequest, Command, FsckRequest, Reply, WriterRequest};
use crate::lease::status::{HistoryEntry, Status};
use crate::lease::supervisor::{CONNECT_LIMIT, Supervisor};
use crate::lease::{Cleared, DrainProgress, Event, FsckLease, WriterLease, events};
use crate::store_url::{StoreName, StoreUrl};
use crate::timing::{LeaseTiming, PEER_STALE_AFTER};

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
#[derive(Debug, Clone)]
pub struct Coordinator(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    store: StoreName,
    timing: LeaseTiming,
    commands: mpsc::UnboundedSender<Command>,
    events: broadcast::Sender<Event>,
    holder: Holder,
    thread: Option<Thread>,
}

#[derive(Debug)]
struct Thread {
    id: ThreadId,
    ended: std::sync::Mutex<blocking::Receiver<()>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
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
        Ok(CoordinatorBuilder::new(Target::Url(url.parse()?)))
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
        let line = HistoryLine { what, lease: lease.map(str::to_owned), holder: self.0.holder.clone(), reason };
        self.ask(|reply| Command::Record(line, reply)).await
    }

    /// What happens to the leases of this coordinator from now on. A listener that falls more than 1,024
    /// events behind misses the oldest.
    pub fn events(&self) -> BoxStream<'static, Event> {
        events::stream(self.0.events.subscribe())
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
        self.0.commands.send(command).map_err(|_| self.ended())
    }

    pub(crate) async fn answer<T>(&self, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        answer.await.unwrap_or_else(|_| Err(self.ended()))
    }

    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply))?;
        self.answer(answer).await
    }

    fn ended(&self) -> Error {
        Error::unavailable_at(&self.0.store, "the coordinator has been shut down; connect again")
    }
}

/// An acquisition of a writer lease; await it.
#[must_use = "nothing is acquired until it is awaited"]
#[derive(Debug)]
pub struct AcquireWriter {
    coordinator: Coordinator,
    request: WriterRequest,
}

impl AcquireWriter {
    /// How long to wait in all while an fsck holds the store. Zero, the default, tries once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request.wait = wait;
        self
    }

    /// What `status` shows for this lease, instead of the coordinator's label.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.request.label = Some(label.into());
        self
    }

    /// What the lease is for.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.request.reason = Some(reason.into());
        self
    }
}

impl IntoFuture for AcquireWriter {
    type Output = Result<WriterLease>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    ///
    /// `StoreLocked` (`FsckHeld`) naming the fsck when the wait is over; `Invalid` if the store has no layout
    /// or this coordinator holds the fsck lease itself; `Unavailable`; `Denied`.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            check_text("label", self.request.label.as_deref())?;
            check_text("reason", self.request.reason.as_deref())?;
            let hold = self.coordinator.ask(|reply| Command::Writer(self.request, reply)).await?;
            Ok(WriterLease::new(hold, self.coordinator))
        })
    }
}

/// An acquisition of the fsck lease; await it.
#[must_use = "nothing is acquired until it is awaited"]
#[derive(Debug)]
pub struct AcquireFsck {
    coordinator: Coordinator,
    request: FsckRequest,
}

impl AcquireFsck {
    /// How long to wait in all for another fsck to go. Zero, the default, tries once. The drain has its own
    /// budget.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request.wait = wait;
        self
    }

    /// The administrator's word that the owners of leases that look dead are dead: a dead fsck lease is
    /// replaced, dead writers are removed. One that lives after all is spared, and drained.
    pub fn force(mut self, force: bool) -> Self {
        self.request.force = force;
        self
    }

    /// With `force`: the word goes for peers too, whose leases may live without refreshing.
    pub fn peer_is_dead(mut self, dead: bool) -> Self {
        self.request.peer_is_dead = dead;
        self
    }

    /// How long the writers may take to leave; 10 minutes unless said otherwise.
    pub fn drain_budget(mut self, budget: Duration) -> Self {
        self.request.drain_budget = budget;
        self
    }

    /// What the job is; `status`, refusals and the history show it.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.request.reason = Some(reason.into());
        self
    }

    /// What `status` shows for this lease, instead of the coordinator's label.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.request.label = Some(label.into());
        self
    }

    /// Whether the exclusive phase raises the generation, which ends leases that slept through it. On unless
    /// the job changes nothing.
    pub fn bump_generation(mut self, bump: bool) -> Self {
        self.request.bump_generation = bump;
        self
    }

    /// Who the drain waits for, while this acquisition is awaited. One item per look that changed something,
    /// and the last at the end; it never holds the drain up.
    pub fn progress(&mut self) -> impl Stream<Item = DrainProgress> + Send + Unpin + use<> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.request.progress = Some(sender);
        futures::stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|item| (item, receiver)) })
            .boxed()
    }
}

impl IntoFuture for AcquireFsck {
    type Output = Result<FsckLease>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    ///
    /// `StoreLocked`: `FsckHeld` when the wait is over, `StaleWriters` without `force`, `FsckFresh` with it.
    /// `DrainTimeout` naming who was left. `LeaseLost` if it was displaced, or its own deadline passed, before
    /// the grant. `Invalid`, `Unavailable`, `Denied`. After an error no fsck lease stands.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            check_text("label", self.request.label.as_deref())?;
            check_text("reason", self.request.reason.as_deref())?;
            let hold = self.coordinator.ask(|reply| Command::Fsck(self.request, reply)).await?;
            Ok(FsckLease::new(hold, self.coordinator))
        })
    }
}

/// A clearing of dead leases; await it.
#[must_use = "nothing is cleared until it is awaited"]
#[derive(Debug)]
pub struct Clear {
    coordinator: Coordinator,
    request: ClearRequest,
    verb: fn(ClearRequest, Reply<Cleared>) -> Command,
}

impl Clear {
    /// Only the leases with these ids.
    pub fn ids<I: Into<String>>(mut self, ids: impl IntoIterator<Item = I>) -> Self {
        self.request.ids = ids.into_iter().map(Into::into).collect();
        self
    }

    /// A person's word that the peers whose leases look dead are dead: a peer's lease may live without
    /// refreshing.
    pub fn peer_is_dead(mut self, dead: bool) -> Self {
        self.request.peer_is_dead = dead;
        self
    }

    /// Only says what looks dead, without watching it and without a write.
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.request.dry_run = dry_run;
        self
    }
}

impl IntoFuture for Clear {
    type Output = Result<Cleared>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Watches each lease that looks dead for its whole stale age, so it takes that long.
    ///
    /// # Errors
    ///
    /// `StoreLocked`: `FsckFresh` if the fsck lease is fresh, `NotDead` if what was to be cleared was spared.
    /// `Denied`, `Unavailable`.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.coordinator.ask(|reply| (self.verb)(self.request, reply)).await })
    }
}

fn check_text(what: &str, text: Option<&str>) -> Result<()> {
    match text {
        Some(text) if text.len() > LONGEST_TEXT => {
            Err(Error::invalid(format!("the {what} has {} bytes; at most {LONGEST_TEXT} are kept", text.len())))
        }
        _ => Ok(()),
    }
}

/// What a coordinator connects to.
#[derive(Debug, Clone)]
enum Target {
    Url(StoreUrl),
    Memory(MemoryStore),
}

/// Options of a [`Coordinator`].
#[derive(Debug, Clone)]
pub struct CoordinatorBuilder {
    target: Target,
    timing: Option<LeaseTiming>,
    collection: Option<String>,
    label: Option<String>,
    reason: Option<String>,
    clock: Arc<dyn Clock>,
}

impl CoordinatorBuilder {
    fn new(target: Target) -> Self {
        CoordinatorBuilder {
            target,
            timing: None,
            collection: None,
            label: None,
            reason: None,
            clock: Arc::new(SystemClock),
        }
    }

    /// The timing of leases. Without it [`LeaseTiming::for_failover`] on a replica set,
    /// [`LeaseTiming::default`] elsewhere and on a collection shared with httk-store.
    pub fn timing(mut self, timing: LeaseTiming) -> Self {
        self.timing = Some(timing);
        self
    }

    /// The collection that holds the leases: `lockhouse` unless said otherwise. Two names are two locks.
    pub fn collection(mut self, name: impl Into<String>) -> Self {
        self.collection = Some(name.into());
        self
    }

    /// What this process calls itself in `status`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The reason of leases that are acquired without one of their own.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// The clock of deadlines and sleeps: [`SystemClock`] unless said otherwise.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Starts the supervisor's thread and connects.
    ///
    /// # Errors
    ///
    /// `Invalid` for bad timing or a collection that the protocol cannot trust, `Unavailable` if the store does
    /// not answer within ten seconds, `Denied` if authentication fails.
    ///
    /// # Cancellation
    ///
    /// Dropping the future ends the thread.
    pub async fn connect(self) -> Result<Coordinator> {
        check_text("label", self.label.as_deref())?;
        check_text("reason", self.reason.as_deref())?;
        if let Some(timing) = &self.timing {
            timing.validate()?;
        }
        let (connected, answer) = oneshot::channel();
        let (end, ended) = blocking::channel();
        let thread = std::thread::Builder::new()
            .name("lockhouse".to_owned())
            .spawn(move || {
                run_thread(self, connected);
                // Nobody may wait any more.
                let _ = end.send(());
            })
            .map_err(|error| Error::internal(format!("the supervisor's thread cannot be started: {error}")))?;
        let mut handle = answer
            .await
            .unwrap_or_else(|_| Err(Error::internal("the supervisor's thread ended while it connected")))?;
        handle.thread = Some(Thread { id: thread.thread().id(), ended: std::sync::Mutex::new(ended) });
        Ok(Coordinator(Arc::new(handle)))
    }
}

/// The supervisor's thread, from connecting to the end.
fn run_thread(builder: CoordinatorBuilder, connected: oneshot::Sender<Result<Handle>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = connected.send(Err(Error::internal(format!("no runtime for the supervisor: {error}"))));
            return;
        }
    };
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        match &builder.target {
            Target::Memory(store) => {
                let backend = Memory::new(store.clone());
                supervise(backend, &builder, connected).await;
            }
            #[cfg(feature = "mongo")]
            Target::Url(StoreUrl::Mongo(url)) => {
                let backend = crate::backend::mongo::Mongo::connect(url, builder.collection.as_deref());
                match crate::clock::within(&*builder.clock, CONNECT_LIMIT, backend).await {
                    Some(Ok(backend)) => supervise(backend, &builder, connected).await,
                    Some(Err(error)) => drop(connected.send(Err(error))),
                    None => {
                        let name = StoreName::new(url.to_string());
                        let waited = crate::describe::duration(CONNECT_LIMIT);
                        let error = Error::unavailable_at(&name, format!("no answer within {waited}"));
                        drop(connected.send(Err(error)));
                    }
                }
            }
            #[cfg(not(feature = "mongo"))]
            Target::Url(url @ StoreUrl::Mongo(_)) => {
                let error = Error::invalid(format!(
                    "store {url}: this build has no MongoDB backend; build with the feature mongo"
                ));
                let _ = connected.send(Err(error));
            }
            Target::Url(url @ StoreUrl::Local(_)) => {
                let error = Error::invalid(format!(
                    "store {url}: local stores are not supported yet; use mongodb://HOST/DATABASE"
                ));
                let _ = connected.send(Err(error));
            }
        }
    });
    // Dropping the local set and the runtime ends the driver's tasks.
}

async fn supervise<B: Backend>(backend: B, builder: &CoordinatorBuilder, connected: oneshot::Sender<Result<Handle>>) {
    match prepare(backend, builder, Entropy::system()) {
        Ok((handle, supervising)) => {
            let store = handle.store.clone();
            supervising
                .run(|ready| {
                    let ready = ready.map(|()| handle);
                    drop(connected.send(ready));
                })
                .await;
            tracing::debug!(%store, "supervisor ended");
        }
        Err(error) => drop(connected.send(Err(error))),
    }
}

/// A supervisor that waits to be run.
struct Supervising<B: Backend> {
    supervisor: std::rc::Rc<Supervisor<B>>,
    commands: mpsc::UnboundedReceiver<Command>,
}

impl<B: Backend> Supervising<B> {
    async fn run(self, ready: impl FnOnce(Result<()>)) {
        match self.supervisor.check_store().await {
            Ok(()) => {
                ready(Ok(()));
                self.supervisor.run(self.commands).await;
            }
            Err(error) => ready(Err(error)),
        }
    }
}

fn prepare<B: Backend>(backend: B, builder: &CoordinatorBuilder, entropy: Entropy) -> Result<(Handle, Supervising<B>)> {
    let traits = backend.traits();
    let store = backend.store().clone();
    let timing = builder
        .timing
        .unwrap_or_else(|| if traits.fails_over { LeaseTiming::for_failover() } else { LeaseTiming::default() });
    timing.validate()?;
    if traits.shared_with_peer && timing.stale_after() > PEER_STALE_AFTER {
        return Err(Error::invalid_at(
            &store,
            format!(
                "the stale age is {:?} ({:?} × {}), but httk-store judges every lease on its collection by {PEER_STALE_AFTER:?}; use a stale age of at most {PEER_STALE_AFTER:?}",
                timing.stale_after(),
                timing.refresh_interval,
                timing.stale_multiplier
            ),
        ));
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    let holder = Holder::here(builder.label.clone());
    let events = broadcast::Sender::new(events::EVENTS_KEPT);
    let supervisor = Supervisor::new(
        backend,
        builder.clock.clone(),
        entropy,
        timing,
        holder.clone(),
        builder.reason.clone(),
        events.clone(),
        sender.clone(),
    );
    let handle = Handle { store, timing, commands: sender, events, holder, thread: None };
    Ok((handle, Supervising { supervisor, commands: receiver }))
}

/// A coordinator without a thread, for whoever polls its supervisor himself.
#[cfg(test)]
pub(crate) fn detached<B: Backend>(
    backend: B,
    builder: &CoordinatorBuilder,
    entropy: Entropy,
    rules: crate::lease::Rules,
) -> Result<(Coordinator, impl std::future::Future<Output = ()> + use<B>)> {
    let (handle, mut supervising) = prepare(backend, builder, entropy)?;
    std::rc::Rc::get_mut(&mut supervising.supervisor).expect("nobody else has it yet").rules = rules;
    let Supervising { supervisor, commands } = supervising;
    Ok((Coordinator(Arc::new(handle)), supervisor.run(commands)))
}
