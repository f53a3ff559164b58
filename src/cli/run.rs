//! `run`: a command under a writer lease.

use std::future::IntoFuture;

use futures::StreamExt;
use lockhouse::LeaseKind;

use super::Context;
use super::acquire::acquire;
use super::args::RunArgs;
use super::exit::Failure;
use super::store::Store;
use super::wrap::{self, Held};

/// Runs the command and returns its exit code.
pub(crate) async fn run(context: &mut Context, args: RunArgs) -> Result<i32, Failure> {
    let job = args.job;
    let store = Store::for_lease(context, &job).await?;
    let mut acquiring = store.coordinator.acquire_writer().wait(job.wait);
    if let Some(reason) = &job.reason {
        acquiring = acquiring.reason(reason);
    }
    let lease = acquire(
        context,
        &store.coordinator,
        LeaseKind::Writer,
        job.wait,
        acquiring.into_future(),
        futures::stream::empty().boxed(),
    )
    .await?;
    wrap::run(context, &store, Held::Writer(lease), &job).await
}
