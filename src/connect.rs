//! Connecting: options, and the supervisor's thread from its start to its end.

use std::sync::Arc;
use std::sync::mpsc as blocking;

use tokio::sync::{broadcast, mpsc, oneshot};

use crate::backend::Backend;
#[cfg(feature = "local")]
use crate::backend::local::Local;
use crate::backend::memory::{Memory, MemoryStore};
#[cfg(feature = "mongo")]
use crate::backend::mongo::Mongo;
use crate::clock::{Clock, SystemClock};
use crate::coordinator::{Coordinator, Handle, Thread, check_text};
use crate::entropy::Entropy;
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::lease::command::Command;
#[cfg(feature = "mongo")]
use crate::lease::supervisor::CONNECT_LIMIT;
use crate::lease::supervisor::Supervisor;
use crate::lease::{Watch, events};
use crate::store_url::StoreUrl;
use crate::timing::{LeaseTiming, PEER_STALE_AFTER};

/// What a coordinator connects to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
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
    file_systems: Vec<String>,
    watch: Watch,
}

impl CoordinatorBuilder {
    pub(crate) fn new(target: Target) -> Self {
        CoordinatorBuilder {
            target,
            timing: None,
            collection: None,
            label: None,
            reason: None,
            clock: Arc::new(SystemClock),
            file_systems: Vec::new(),
            watch: Watch::default(),
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

    /// A type of file system that a local store may live on although it is not known here, as
    /// `/proc/self/mountinfo` names it: the word of somebody who knows that its flock(2) holds between all processes
    /// that use the store. No network file system can be allowed.
    pub fn allow_file_system(mut self, kind: impl Into<String>) -> Self {
        self.file_systems.push(kind.into());
        self
    }

    /// Whether the store tells of changes, or is only asked: [`Watch::Auto`] unless said otherwise.
    pub fn watch(mut self, watch: Watch) -> Self {
        self.watch = watch;
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
            Target::Url(StoreUrl::Mongo(url)) => match reach(url, &builder).await {
                Ok(backend) => supervise(backend, &builder, connected).await,
                Err(error) => drop(connected.send(Err(error))),
            },
            #[cfg(not(feature = "mongo"))]
            Target::Url(url @ StoreUrl::Mongo(_)) => {
                let error = Error::invalid(format!(
                    "store {url}: this build has no MongoDB backend; build with the feature mongo"
                ));
                let _ = connected.send(Err(error));
            }
            #[cfg(feature = "local")]
            Target::Url(StoreUrl::Local(path)) => match Local::open(path, &builder.file_systems) {
                Ok(backend) => supervise(backend, &builder, connected).await,
                Err(error) => drop(connected.send(Err(error))),
            },
            #[cfg(not(feature = "local"))]
            Target::Url(url @ StoreUrl::Local(_)) => {
                let error = Error::invalid(format!(
                    "store {url}: this build has no local stores; build with the feature local"
                ));
                let _ = connected.send(Err(error));
            }
        }
    });
    // Dropping the local set and the runtime ends the driver's tasks.
}

/// Connects to a server, over and over while it cannot be reached or has no primary.
#[cfg(feature = "mongo")]
async fn reach(url: &crate::store_url::MongoUrl, builder: &CoordinatorBuilder) -> Result<Mongo> {
    let clock = &*builder.clock;
    let give_up = clock.now() + CONNECT_LIMIT;
    loop {
        let left = give_up.since(clock.now());
        let connecting = Mongo::connect(url, builder.collection.as_deref());
        match crate::clock::within(clock, left, connecting).await {
            Some(Err(Error::Unavailable(_))) if clock.now() < give_up => {
                clock.sleep_until(clock.now() + LeaseTiming::default().poll_max).await;
            }
            Some(result) => return result,
            None => {
                let name = crate::store_url::StoreName::new(url.to_string());
                let waited = crate::describe::duration(CONNECT_LIMIT);
                return Err(Error::unavailable_at(&name, format!("no answer within {waited}; is the server up?")));
            }
        }
    }
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
        builder.watch,
        holder.clone(),
        builder.reason.clone(),
        events.clone(),
        sender.clone(),
    );
    let handle = Handle { store, timing, commands: sender, events, holder, thread: None, pid: std::process::id() };
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
