//! A command under a lease: starting it, keeping the lease while what it asked for may still be running, and
//! giving the lease back.

use std::ffi::OsString;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, LocalBoxFuture};
use futures::stream::StreamExt;
use lockhouse::clock::{Clock, SystemClock};
#[cfg(feature = "local")]
use lockhouse::owner::Exclusive;
use lockhouse::{Coordinator, Error, Event, FsckLease, Lease, LeaseKind, LeaseLost, LossReason, WriterLease};
use serde_json::json;

use super::Context;
use super::acquire::{leave, until};
use super::args::Job;
use super::child::{self, ChildEnd, End, Hold, Spec};
use super::console::Console;
use super::exit::{Failure, millis};
use super::store::{self, Store};

/// How soon a lease that passed its deadline is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The longest reason that the history takes.
const LONGEST_REASON: usize = 4096;

/// The lease that a command runs under.
pub(crate) enum Held {
    /// Of `run`.
    Writer(WriterLease),
    /// Of `fsck`.
    Fsck(FsckLease),
    /// Of `owner hold`: a writer lease, and the ownership with it.
    #[cfg(feature = "local")]
    Owner(Box<Exclusive>),
}

impl Deref for Held {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            Held::Writer(lease) => lease,
            Held::Fsck(lease) => lease,
            #[cfg(feature = "local")]
            Held::Owner(owner) => owner.lease(),
        }
    }
}

impl Held {
    fn release(self) -> BoxFuture<'static, Result<(), Error>> {
        match self {
            Held::Writer(lease) => lease.release().boxed(),
            Held::Fsck(lease) => lease.release().boxed(),
            #[cfg(feature = "local")]
            Held::Owner(owner) => owner.release().boxed(),
        }
    }

    /// The locked files that the command inherits, so that the kernel keeps the store for it should this process be
    /// killed.
    async fn descriptors(&self) -> Result<Vec<OwnedFd>, Error> {
        match self {
            Held::Writer(_) | Held::Fsck(_) => Lease::descriptors(self).await,
            #[cfg(feature = "local")]
            Held::Owner(owner) => owner.descriptors().await,
        }
    }

    /// As [`Lease::check`]: of all that is held.
    fn check_all(&self) -> Result<(), Error> {
        match self {
            Held::Writer(_) | Held::Fsck(_) => self.check(),
            #[cfg(feature = "local")]
            Held::Owner(owner) => owner.check(),
        }
    }

    /// Completes when what is held is lost for good.
    async fn gone(&self) -> String {
        match self {
            Held::Writer(_) | Held::Fsck(_) => gone(self).await,
            #[cfg(feature = "local")]
            Held::Owner(owner) => tokio::select! {
                biased;
                error = owner.owner().lost() => error.to_string(),
                why = gone(self) => why,
            },
        }
    }
}

/// Runs the job's command under the lease, gives the lease back, and returns the command's exit code.
pub(crate) async fn run(context: &mut Context, store: &Store, held: Held, job: &Job) -> Result<i32, Failure> {
    tracing::info!(store = %store.name(), lease = held.identifier(), generation = held.generation(), "granted");
    let end = run_child(context, store, &held, job).await;
    if held.kind() == LeaseKind::Fsck {
        chronicle(context, &store.coordinator, &held, job, &end).await;
    }
    let result = outcome(&held, job, &end);
    let settle = job.settle.unwrap_or_else(|| store.settle());
    if let Some(signal) = ended_by_signal(&end)
        && !settle.is_zero()
    {
        let kept = keep(context, &store.coordinator, &held, signal, settle).await;
        if let Err(left) = kept {
            // Given back now, it would let others in while the server may still be at work.
            std::mem::forget(held);
            return Err(left);
        }
    }
    release(context, &store.coordinator, held).await?;
    result
}

/// What the end of a command means for the program.
fn outcome(lease: &Held, job: &Job, end: &io::Result<End>) -> Result<i32, Failure> {
    let command = || job.command.first().map_or(String::new(), |word| word.to_string_lossy().into_owned());
    let again = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
    match end {
        Ok(End::Lost { .. }) => Err(lost(lease).into()),
        Ok(End::NotFound(error)) => Err(Failure::Command { command: command(), missing: true, error: again(error) }),
        Ok(End::NotExecutable(error)) => {
            Err(Failure::Command { command: command(), missing: false, error: again(error) })
        }
        Ok(end @ (End::Exited(_) | End::Signaled(_))) => Ok(end.exit_code()),
        Err(error) => Err(Failure::system("the command cannot be watched", again(error))),
    }
}

/// The error of a lease whose command was ended because of it.
fn lost(lease: &Held) -> Error {
    match lease.check_all() {
        Err(error) => error,
        // It was confirmed again after the decision; the command has been ended all the same.
        Ok(()) => LeaseLost {
            store: lease.database().clone(),
            identifier: lease.identifier().to_owned(),
            kind: lease.kind(),
            why: LossReason::Deadline,
        }
        .into(),
    }
}

fn ended_by_signal(end: &io::Result<End>) -> Option<i32> {
    match end {
        Ok(End::Signaled(signal)) | Ok(End::Lost { child: Some(ChildEnd::Signaled(signal)), .. }) => Some(*signal),
        _ => None,
    }
}

async fn run_child(context: &mut Context, store: &Store, lease: &Held, job: &Job) -> io::Result<End> {
    // Kept open until the command has ended, which inherits them: killed alone, we leave the lease to it.
    let inherited = lease.descriptors().await.map_err(io::Error::other)?;
    let mut words = job.command.iter().cloned();
    let spec = Spec {
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        env: environment(context, store, lease),
        inherit_fds: inherited.iter().map(AsRawFd::as_raw_fd).collect(),
        on_lost: job.on_lost.into(),
    };
    let mut events = store.coordinator.events().fuse();
    let console = context.console.clone();
    let mut log = |note: child::Note| console.say("child", &note.to_string());
    let hold = Standing { lease, unlimited: store.local };
    let mut running = std::pin::pin!(child::run(spec, &mut context.signals, &hold, &mut log));
    loop {
        tokio::select! {
            biased;
            end = &mut running => return end,
            Some(event) = events.next() => tell(&context.console, lease, &event),
        }
    }
}

/// What the command finds about its lease.
fn environment(context: &Context, store: &Store, lease: &Lease) -> Vec<(OsString, OsString)> {
    let mut enclosing = store::enclosing();
    enclosing.push(lease.owner().to_owned());
    let mut env: Vec<(OsString, OsString)> = vec![("LOCKHOUSE_STORE".into(), store.url.clone())];
    let mut set = |name: &str, value: String| env.push((name.into(), value.into()));
    set("LOCKHOUSE_LEASE", lease.identifier().to_owned());
    set(store::OWNER, lease.owner().to_owned());
    set("LOCKHOUSE_GENERATION", lease.generation().to_string());
    set(store::ENCLOSING, enclosing.join(","));
    if let Some(collection) = &context.global.collection {
        set("LOCKHOUSE_COLLECTION", collection.clone());
    }
    if !context.global.allow_filesystem.is_empty() {
        set("LOCKHOUSE_ALLOW_FILESYSTEM", context.global.allow_filesystem.join(","));
    }
    env
}

/// What happens to the lease while the command runs.
fn tell(console: &Console, lease: &Lease, event: &Event) {
    let id = lease.identifier();
    match event {
        Event::Doubtful { id: of, .. } if of == id => {
            let left = lease.remaining();
            if left == Duration::MAX {
                console.event("doubtful", json!({"id": id}), "the lease could not be checked; it is tried again");
                return;
            }
            console.event(
                "doubtful",
                json!({"id": id, "left_ms": millis(left)}),
                &format!(
                    "the lease could not be refreshed; it is valid for another {}",
                    lockhouse::describe::duration(left)
                ),
            );
        }
        Event::Recovered { id: of, .. } if of == id => {
            console.event("recovered", json!({"id": id}), "the lease was refreshed again");
        }
        // The end of the command is announced by the one who ends it.
        _ => {}
    }
}

/// Writes how a job failed into the history, so that whoever finds the store in a bad state finds the reason too.
async fn chronicle(context: &Context, coordinator: &Coordinator, lease: &Lease, job: &Job, end: &io::Result<End>) {
    let how = match end {
        Ok(End::Exited(0)) => return,
        Ok(End::Exited(code)) => format!("exit code {code}"),
        Ok(End::Signaled(signal)) => format!("ended by signal {signal}"),
        Ok(End::Lost { why, .. }) => format!("lease lost: {why}"),
        Ok(End::NotFound(_)) => "the command was not found".to_owned(),
        Ok(End::NotExecutable(_)) => "the command cannot be executed".to_owned(),
        Err(error) => format!("the command cannot be watched: {error}"),
    };
    let mut reason = match &job.reason {
        Some(reason) => format!("{how}: {reason}"),
        None => how,
    };
    while reason.len() > LONGEST_REASON {
        reason.pop();
    }
    let recording = coordinator.record("job-failed", Some(lease.identifier()), Some(reason));
    let give_up = SystemClock.now() + coordinator.timing().refresh_interval;
    let why = tokio::select! {
        biased;
        recorded = recording => match recorded {
            Ok(()) => return,
            Err(error) => error.to_string(),
        },
        () = SystemClock.sleep_until(give_up) => "the store did not answer in time".to_owned(),
    };
    let text = format!("the failure could not be written to the history: {why}");
    context.console.say("warning", &text);
}

/// Keeps the lease after a signal ended its command, as long as it stands.
async fn keep(
    context: &mut Context,
    coordinator: &Coordinator,
    lease: &Lease,
    signal: i32,
    settle: Duration,
) -> Result<(), Failure> {
    let end = SystemClock.now() + settle;
    let why = "what it had sent to the server may still be running there";
    context.console.event(
        "settling",
        json!({"id": lease.identifier(), "signal": signal, "for_ms": millis(settle)}),
        &format!(
            "signal {signal} ended the command; {why}, so the lease is kept until {}; see --settle",
            until(settle)
        ),
    );
    let mut insisted = false;
    loop {
        tokio::select! {
            biased;
            signal = context.signals.interrupted() => {
                if insisted || signal.is_err() {
                    return Err(leave(coordinator, lease.kind(), signal));
                }
                insisted = true;
                let left = end.since(SystemClock.now());
                context.console.say("note", &format!("the lease is kept until {}; again to leave at once", until(left)));
            }
            _ = gone(lease) => return Ok(()),
            () = SystemClock.sleep_until(end) => return Ok(()),
        }
    }
}

/// Gives the lease back and waits until the store has confirmed it.
async fn release(context: &mut Context, coordinator: &Coordinator, held: Held) -> Result<(), Failure> {
    let kind = held.kind();
    let mut releasing = held.release();
    let mut insisted = false;
    loop {
        tokio::select! {
            biased;
            result = &mut releasing => {
                if let Err(error) = result {
                    // The command has done its work, so its own exit code stays.
                    context.console.failure(&error.into());
                }
                return Ok(());
            }
            signal = context.signals.interrupted() => {
                if insisted || signal.is_err() {
                    return Err(leave(coordinator, kind, signal));
                }
                insisted = true;
                context.console.say("releasing", "giving the lease back; again to leave at once");
            }
        }
    }
}

/// The lease as a running command sees it.
struct Standing<'a> {
    lease: &'a Held,
    /// It has no deadline: the kernel keeps it.
    unlimited: bool,
}

impl Hold for Standing<'_> {
    fn remaining(&self) -> Option<Duration> {
        (!self.unlimited).then(|| self.lease.remaining())
    }

    fn check(&self) -> Result<(), String> {
        self.lease.check_all().map_err(|error| error.to_string())
    }

    fn lost(&self) -> LocalBoxFuture<'_, String> {
        self.lease.gone().boxed_local()
    }

    fn revalidate(&self) -> LocalBoxFuture<'_, Result<(), String>> {
        async {
            match self.lease.refresh_heartbeat(true).await {
                Ok(()) => self.check(),
                // A store that does not answer takes no lease away before its deadline.
                Err(_) => self.check(),
            }
        }
        .boxed_local()
    }
}

/// Completes when the lease is lost for good. Past its deadline only, it may still be confirmed again; who must not
/// go on after the deadline reads `remaining`.
async fn gone(lease: &Lease) -> String {
    loop {
        let error = lease.lost().await;
        match &error {
            Error::LeaseLost(lost) if matches!(lost.why, LossReason::Deadline | LossReason::Suspended) => {
                SystemClock.sleep_until(SystemClock.now() + LOOK_AGAIN).await;
            }
            _ => return error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signal_makes_the_lease_stay() {
        assert_eq!(ended_by_signal(&Ok(End::Exited(0))), None);
        assert_eq!(ended_by_signal(&Ok(End::Exited(137))), None);
        assert_eq!(ended_by_signal(&Ok(End::Signaled(9))), Some(9));
        let lost = |child| Ok(End::Lost { why: String::new(), child });
        assert_eq!(ended_by_signal(&lost(Some(ChildEnd::Signaled(15)))), Some(15));
        assert_eq!(ended_by_signal(&lost(Some(ChildEnd::Exited(1)))), None);
        assert_eq!(ended_by_signal(&lost(None)), None);
    }
}
