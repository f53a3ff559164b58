//! Getting a lease: telling who is in the way meanwhile, and withdrawing when a signal comes.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use lockhouse::describe::duration;
use lockhouse::{Coordinator, DrainProgress, Error, LeaseKind};
use nix::sys::signal::Signal;

use super::Context;
use super::exit::Failure;
use super::wait::Reporter;

/// Awaits an acquisition.
///
/// # Errors
///
/// What the acquisition says; `Interrupted` when a signal came first, after the store has confirmed that nothing is left,
/// or at once when a second one came.
pub(crate) async fn acquire<T>(
    context: &mut Context,
    coordinator: &Coordinator,
    kind: LeaseKind,
    patience: Duration,
    mut acquiring: BoxFuture<'static, Result<T, Error>>,
    mut progress: BoxStream<'static, DrainProgress>,
) -> Result<T, Failure> {
    let mut events = coordinator.events().fuse();
    let signal = {
        let mut reporter = Reporter::new(&context.console, patience);
        loop {
            tokio::select! {
                biased;
                signal = context.signals.interrupted() => break signal,
                result = &mut acquiring => return Ok(result?),
                Some(event) = events.next() => reporter.on_event(event),
                Some(seen) = progress.next() => reporter.on_progress(seen),
                () = reporter.due() => reporter.tell(),
            }
        }
    };
    drop(acquiring);
    Err(withdraw(context, coordinator, kind, signal).await)
}

/// Nobody waits for the acquisition any more, so it is withdrawn: waits until the store has confirmed that.
async fn withdraw(
    context: &mut Context,
    coordinator: &Coordinator,
    kind: LeaseKind,
    signal: io::Result<Signal>,
) -> Failure {
    if let Ok(signal) = &signal {
        let text = format!("{signal}: withdrawing, until the store has confirmed it; again to leave at once");
        context.console.say("withdrawing", &text);
    }
    tokio::select! {
        biased;
        second = context.signals.interrupted() => leave(coordinator, kind, second),
        () = coordinator.shutdown() => Failure::interrupted(signal),
    }
}

/// A second signal: ends without waiting for the store.
pub(crate) fn leave(coordinator: &Coordinator, kind: LeaseKind, signal: io::Result<Signal>) -> Failure {
    // The last clone to go would wait for the store.
    std::mem::forget(coordinator.clone());
    match signal {
        Ok(signal) => Failure::Interrupted { signal, left: Some(standing(coordinator, kind)) },
        Err(error) => Failure::system("the signals cannot be read", error),
    }
}

/// What becomes of a lease that nobody gives back.
fn standing(coordinator: &Coordinator, kind: LeaseKind) -> String {
    let command = match kind {
        LeaseKind::Fsck => "clear",
        LeaseKind::Writer => "prune",
    };
    format!(
        "a {kind} lease may be left: it looks fresh until {} and then blocks until it is cleared with `lockhouse {command}`",
        until(coordinator.timing().stale_after())
    )
}

/// A moment ahead, for people.
#[expect(clippy::disallowed_methods, reason = "shown to people, by whose clock nothing is judged")]
pub(crate) fn until(ahead: Duration) -> String {
    let length = duration(ahead);
    match Timestamp::now().checked_add(ahead) {
        Ok(at) => format!("{} UTC ({length} from now)", at.strftime("%H:%M:%S")),
        Err(_) => format!("{length} from now"),
    }
}
