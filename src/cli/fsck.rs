//! `fsck`: a command with the store alone.

use std::future::IntoFuture;

use futures::StreamExt;
use lockhouse::LeaseKind;

use super::Context;
use super::acquire::acquire;
use super::args::FsckArgs;
use super::exit::Failure;
use super::store::Store;
use super::wrap::{self, Held};

/// Waits for the writers, runs the command and returns its exit code.
pub(crate) async fn fsck(context: &mut Context, args: FsckArgs) -> Result<i32, Failure> {
    let job = args.job;
    let store = Store::for_lease(context, &job).await?;
    let mut acquiring = store
        .coordinator
        .acquire_fsck()
        .wait(job.wait)
        .force(args.force)
        .peer_is_dead(args.peer_is_dead)
        .drain_budget(args.drain_budget)
        .bump_generation(!args.no_bump);
    if let Some(reason) = &job.reason {
        acquiring = acquiring.reason(reason);
    }
    let progress = acquiring.progress().boxed();
    let lease =
        acquire(context, &store.coordinator, LeaseKind::Fsck, job.wait, acquiring.into_future(), progress).await?;
    wrap::run(context, &store, Held::Fsck(lease), &job).await
}
