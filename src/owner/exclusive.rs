//! A store that one process has to itself, from its first open to its last close: for what has no read-only mode to
//! fall back to, such as a directory of files.

use std::future::IntoFuture;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;

use super::candidate::Candidate;
use super::lock::OwnerLock;
use super::state::{Ownership, Phase, State};
use super::takeover::Takeover;
use crate::clock::{Clock, Moment, SystemClock, within};
use crate::connect::{CoordinatorBuilder, Target};
use crate::coordinator::Coordinator;
use crate::error::{Error, Locked, Result};
use crate::lease::{Lease, WriterLease};
use crate::store_url::{StoreName, StoreUrl};

/// How long a store that is just coming or going is looked at again, although nobody waits for it.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two of those looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Holds the store at `path` for this process when awaited: takes its P.lock and then a writer lease, and gives both
/// back together. `build` is what a process that is refused is told. Makes the store's layout if it has none.
///
/// ```no_run
/// # async fn example() -> lockhouse::Result<()> {
/// let store = lockhouse::owner::exclusive("/srv/rows", env!("CARGO_PKG_VERSION")).await?;
/// store.check()?;
/// store.release().await?;
/// # Ok(())
/// # }
/// ```
pub fn exclusive(path: impl AsRef<Path>, build: impl Into<String>) -> AcquireExclusive {
    AcquireExclusive {
        path: path.as_ref().to_owned(),
        build: build.into(),
        wait: Duration::ZERO,
        label: None,
        reason: None,
        file_systems: Vec::new(),
        coordinator: None,
    }
}

/// An acquisition of a whole store; await it.
#[must_use = "nothing is acquired until it is awaited"]
#[derive(Debug)]
pub struct AcquireExclusive {
    path: PathBuf,
    build: String,
    wait: Duration,
    label: Option<String>,
    reason: Option<String>,
    file_systems: Vec<String>,
    coordinator: Option<Coordinator>,
}

impl AcquireExclusive {
    /// How long to wait in all while another process owns the store or an fsck holds it. Zero, the default, tries
    /// once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// What `status` shows for the writer lease.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// What the writer lease is for.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// As [`CoordinatorBuilder::allow_file_system`].
    pub fn allow_file_system(mut self, kind: impl Into<String>) -> Self {
        self.file_systems.push(kind.into());
        self
    }

    /// Takes the writer lease through this coordinator, which must be on the same store, instead of one of its own.
    pub fn coordinator(mut self, coordinator: &Coordinator) -> Self {
        self.coordinator = Some(coordinator.clone());
        self
    }

    async fn acquire(self) -> Result<Exclusive> {
        let give_up = SystemClock.now() + self.wait;
        let candidate = Candidate::allowing(&self.path, self.build.clone(), &self.file_systems)?;
        let given = self.coordinator.as_ref();
        let coordinator = connected(given, &self.path, &self.file_systems, &candidate.name).await?;
        if !candidate.store.layout().exists() {
            init(&coordinator).await?;
        }
        let lock = elect(candidate, give_up).await?;
        let lease = match self.lease(&coordinator, Duration::ZERO).await {
            Err(Error::StoreLocked(locked))
                if matches!(locked.cause, Locked::FsckHeld { .. }) && left(give_up).is_some() =>
            {
                lock.update(|state| state.phase = Phase::Waiting);
                self.lease(&coordinator, left(give_up).unwrap_or_default()).await
            }
            lease => lease,
        }?;
        lock.check()?;
        lock.update(|state| state.phase = Phase::Ready);
        Ok(Exclusive { lease, coordinator, lock })
    }

    async fn lease(&self, coordinator: &Coordinator, wait: Duration) -> Result<WriterLease> {
        let mut acquiring = coordinator.acquire_writer().wait(wait);
        if let Some(label) = &self.label {
            acquiring = acquiring.label(label);
        }
        if let Some(reason) = &self.reason {
            acquiring = acquiring.reason(reason);
        }
        acquiring.await
    }
}

impl IntoFuture for AcquireExclusive {
    type Output = Result<Exclusive>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    ///
    /// `StoreLocked` naming the owner (`Owned`) or the fsck (`FsckHeld`) that is in the way when the wait is over;
    /// `Invalid` or `Denied` for a path, a file system or files that cannot be trusted; `Unavailable` while the disk is
    /// full or too many files are open.
    ///
    /// # Cancellation
    ///
    /// Dropping the future gives back what it had.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

fn left(give_up: Moment) -> Option<Duration> {
    Some(give_up.since(SystemClock.now())).filter(|left| !left.is_zero())
}

/// The coordinator that was given, if it is one of this store, or one of its own.
pub(super) async fn connected(
    given: Option<&Coordinator>,
    path: &Path,
    file_systems: &[String],
    name: &StoreName,
) -> Result<Coordinator> {
    match given {
        Some(coordinator) if coordinator.store() == name => Ok(coordinator.clone()),
        Some(coordinator) => {
            Err(Error::invalid_at(name, format!("the coordinator is one of the store {}", coordinator.store())))
        }
        None => {
            let builder = CoordinatorBuilder::new(Target::Url(StoreUrl::Local(path.to_owned())));
            file_systems.iter().fold(builder, CoordinatorBuilder::allow_file_system).connect().await
        }
    }
}

/// Makes the layout. Of two that do it at once, one is told to come again.
pub(super) async fn init(coordinator: &Coordinator) -> Result<()> {
    let give_up = SystemClock.now() + PATIENCE;
    loop {
        match coordinator.init().await {
            Err(error @ Error::Unavailable(_)) if left(give_up).is_none() => return Err(error),
            Err(Error::Unavailable(_)) => SystemClock.sleep_until(SystemClock.now() + LOOK_AGAIN).await,
            made => return made.map(drop),
        }
    }
}

/// Becomes the owner, or names the one that is.
async fn elect(candidate: Candidate, give_up: Moment) -> Result<OwnerLock> {
    if let Some(owner) = candidate.elect()? {
        return Ok(owner);
    }
    let mut takeover = Takeover::of(candidate);
    if let Some(left) = left(give_up)
        && let Some(elected) = within(&SystemClock, left, takeover.elected()).await
    {
        return elected;
    }
    let give_up = SystemClock.now() + PATIENCE;
    loop {
        // An owner that has locked and not said so yet is about to; one that says nothing more is about to go.
        let seen = takeover.candidate().look();
        if matches!(seen, Ownership::Named(_)) || left(give_up).is_none() {
            let seen = if seen == Ownership::Nobody { Ownership::Unnamed(None) } else { seen };
            return Err(takeover.candidate().owned(seen));
        }
        SystemClock.sleep_until(SystemClock.now() + LOOK_AGAIN).await;
        if let Some(owner) = takeover.candidate().elect()? {
            return Ok(owner);
        }
    }
}

/// The whole store in this process's hand. Given back when dropped, and by the kernel when the process ends.
///
/// Its advisory state is refreshed every five seconds by a thread of its own, its writer lease by the coordinator's.
#[must_use = "a store that is held by a guard that is dropped is given back at once"]
#[derive(Debug)]
pub struct Exclusive {
    // Given back in this order.
    lease: WriterLease,
    coordinator: Coordinator,
    lock: OwnerLock,
}

impl Exclusive {
    /// The store's name.
    pub fn store(&self) -> &StoreName {
        self.lock.store()
    }

    /// The ownership.
    pub fn owner(&self) -> &OwnerLock {
        &self.lock
    }

    /// The writer lease.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// What the owner says about itself.
    pub fn state(&self) -> State {
        self.lock.state()
    }

    /// Whether the holder may go on. To be called before each write; costs a handful of system calls.
    ///
    /// # Errors
    ///
    /// `LeaseLost` if P.lock, P.leases or the lease was removed or replaced, and in a forked child.
    pub fn check(&self) -> Result<()> {
        self.lock.check()?;
        self.lease().check()
    }

    /// Completes with the `LeaseLost` error when the store is lost.
    pub async fn lost(&self) -> Error {
        tokio::select! {
            biased;
            error = self.lock.lost() => error,
            error = self.lease().lost() => error,
        }
    }

    /// Descriptors of all the locked files, those of the lease too: a command that inherits them keeps the store when
    /// its starter is killed. Closed on execution until somebody says otherwise.
    ///
    /// # Errors
    ///
    /// `Unavailable` if there are too many open files.
    pub async fn descriptors(&self) -> Result<Vec<OwnedFd>> {
        let mut descriptors = self.lock.descriptors()?;
        descriptors.extend(self.lease().descriptors().await?);
        Ok(descriptors)
    }

    /// Gives the store back: the lease first, then the lock.
    ///
    /// # Errors
    ///
    /// As [`WriterLease::release`]; the lock is given back all the same.
    ///
    /// # Cancellation
    ///
    /// Dropping the future gives the store back too.
    pub async fn release(self) -> Result<()> {
        // If nobody waits to the end, the lock goes last too.
        let Exclusive { lock, lease, coordinator } = self;
        lock.update(|state| state.phase = Phase::Draining);
        let released = lease.release().await;
        // Before the handle, which may wait for its thread.
        drop(lock);
        drop(coordinator);
        released
    }
}
