//! From the command line to a connected store.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use lockhouse::clock::{Clock, SystemClock};
use lockhouse::{Coordinator, CoordinatorBuilder, Error, LeaseInfo, LeaseTiming, StoreName, StoreUrl};

use super::Context;
use super::args::{Global, Job};
use super::console::Console;
use super::exit::Failure;

/// How long connecting may take before somebody who watches is told.
const SILENCE: Duration = Duration::from_secs(2);

/// The variable with the owner of the innermost lease around a command.
pub(crate) const OWNER: &str = "LOCKHOUSE_OWNER";
/// The variable with the owners of all leases around a command, outermost first: wrappers of other stores may
/// stand in between.
pub(crate) const ENCLOSING: &str = "LOCKHOUSE_ENCLOSING";

/// A connected store.
pub(crate) struct Store {
    pub(crate) coordinator: Coordinator,
    /// As given, secrets included: for the environment of a command alone.
    pub(crate) url: OsString,
    pub(crate) local: bool,
}

/// The store that was given, and how to connect to it.
///
/// # Errors
///
/// `Usage` without a store, `Invalid` if its URL names none.
pub(crate) fn given(global: &Global) -> Result<(StoreUrl, CoordinatorBuilder), Failure> {
    let Some(url) = &global.store else {
        return Err(none_given());
    };
    let parsed = StoreUrl::from_os_str(url)?;
    let mut builder = Coordinator::on(parsed.clone());
    for kind in &global.allow_filesystem {
        builder = builder.allow_file_system(kind);
    }
    if let Some(timing) = timing(global) {
        builder = builder.timing(timing);
    }
    if let Some(collection) = &global.collection {
        builder = builder.collection(collection);
    }
    Ok((parsed, builder))
}

/// Connects.
///
/// # Errors
///
/// As [`given`]; what [`lockhouse::CoordinatorBuilder::connect`] says.
pub(crate) async fn open(global: &Global, console: &Console, job: Option<&Job>) -> Result<Store, Failure> {
    let (parsed, mut builder) = given(global)?;
    let url = global.store.clone().unwrap_or_default();
    if let Some(job) = job {
        builder = builder.label(label(job)).watch(job.watch.into());
    }
    let coordinator = connect(builder, &parsed, console).await?;
    let (url, local) = match &parsed {
        // A command may change its directory before it looks for the store.
        StoreUrl::Local(path) => (std::path::absolute(path).unwrap_or_else(|_| path.clone()).into_os_string(), true),
        StoreUrl::Mongo(_) => (url, false),
    };
    Ok(Store { coordinator, url, local })
}

/// There is no store on the command line.
pub(crate) fn none_given() -> Failure {
    Failure::Usage("no store is given: use --store URL (or a path), or set LOCKHOUSE_STORE".to_owned())
}

/// Connects, and says so when it takes long.
async fn connect(builder: CoordinatorBuilder, url: &StoreUrl, console: &Console) -> Result<Coordinator, Error> {
    let mut connecting = Box::pin(builder.connect());
    let told = SystemClock.sleep_until(SystemClock.now() + SILENCE);
    tokio::select! {
        biased;
        connected = &mut connecting => return connected,
        () = told => console.say("connecting", &format!("still connecting to {url}")),
    }
    connecting.await
}

/// The timing that was asked for, if any was.
fn timing(global: &Global) -> Option<LeaseTiming> {
    let (interval, multiplier) = (global.refresh_interval, global.stale_multiplier);
    if interval.is_none() && multiplier.is_none() {
        return None;
    }
    let default = LeaseTiming::default();
    let refresh_interval = interval.unwrap_or(default.refresh_interval);
    Some(LeaseTiming { refresh_interval, stale_multiplier: multiplier.unwrap_or(default.stale_multiplier), ..default })
}

impl Store {
    /// Connects for a job that takes a lease. A signal ends it at once: nothing is held yet.
    ///
    /// # Errors
    ///
    /// As [`open`]; `Invalid` under an enclosing lease on the same store.
    pub(crate) async fn for_lease(context: &mut Context, job: &Job) -> Result<Store, Failure> {
        #[cfg(feature = "service")]
        {
            context.beside = super::listen::Beside::start(context, &job.listen)?;
        }
        let connecting = async {
            let store = open(&context.global, &context.console, Some(job)).await?;
            #[cfg(feature = "service")]
            if let Some(beside) = &context.beside {
                beside.connected(&store.coordinator);
            }
            store.refuse_within_own_lease().await?;
            Ok(store)
        };
        tokio::select! {
            biased;
            signal = context.signals.interrupted() => Err(Failure::interrupted(signal)),
            store = connecting => store,
        }
    }

    /// The store's name for people.
    pub(crate) fn name(&self) -> &StoreName {
        self.coordinator.store()
    }

    /// How long a lease is kept after a signal ended its command: a server finishes what it has begun, a kernel
    /// has nothing to finish.
    pub(crate) fn settle(&self) -> Duration {
        if self.local { Duration::ZERO } else { self.coordinator.timing().stale_after() }
    }

    /// Refuses to take a lease under another lease on the same store, which would wait for itself as soon as an fsck
    /// is involved.
    async fn refuse_within_own_lease(&self) -> Result<(), Failure> {
        match self.lease_around().await? {
            None => Ok(()),
            Some(lease) => Err(waits_for_itself(self.name(), &lease)),
        }
    }

    /// The lease on this store that this process runs under.
    ///
    /// What counts is whether an enclosing lease stands on this store: names of hosts and collections can differ
    /// for the same store, and a shell that outlived its wrapper encloses nothing any more.
    pub(crate) async fn lease_around(&self) -> Result<Option<LeaseInfo>, Failure> {
        let enclosing = enclosing();
        if enclosing.is_empty() {
            return Ok(None);
        }
        let status = self.coordinator.status().await?;
        let own = |lease: &LeaseInfo| {
            let owner = lease.owner.as_ref();
            owner.is_some_and(|owner| enclosing.contains(owner))
        };
        Ok(status.fsck.into_iter().chain(status.writers).find(own))
    }
}

/// What would wait for a lease that it runs under.
pub(crate) fn waits_for_itself(store: &StoreName, lease: &LeaseInfo) -> Failure {
    Failure::Invalid {
        store: store.clone(),
        message: format!(
            "this would wait for itself: it runs under the {} lease {} of an enclosing lockhouse; call the command itself, or call lockhouse outside of that one",
            lease.kind, lease.id
        ),
    }
}

/// What `status` calls the job: as it was told, or by its command's name. Not by the arguments, which may hold
/// secrets.
fn label(job: &Job) -> String {
    let command = job.command.first().map(Path::new).and_then(Path::file_name);
    match &job.label {
        Some(label) => label.clone(),
        None => command.unwrap_or_default().to_string_lossy().into_owned(),
    }
}

/// The owners of the leases that this process runs under.
pub(crate) fn enclosing() -> Vec<String> {
    let mut owners: Vec<String> = [ENCLOSING, OWNER]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .flat_map(|owners| owners.split(',').map(str::to_owned).collect::<Vec<_>>())
        .filter(|owner| !owner.is_empty())
        .collect();
    owners.dedup();
    owners
}
