//! `owner hold`: a command that has a local store to itself, as its owner.

use std::future::IntoFuture;

use futures::StreamExt;
use lockhouse::LeaseKind;
use lockhouse::owner::{StatusOnly, exclusive, serve_control};

use super::super::Context;
use super::super::acquire::acquire;
use super::super::exit::Failure;
use super::super::store::Store;
use super::super::wrap::{self, Held};
use super::args::HoldArgs;

/// Runs the command and returns its exit code.
pub(super) async fn hold(context: &mut Context, args: HoldArgs) -> Result<i32, Failure> {
    let job = args.job;
    let path = super::path(&context.global)?;
    let store = Store::for_lease(context, &job).await?;
    let build = args.build.unwrap_or_default();
    let mut acquiring = exclusive(path, build).wait(job.wait).coordinator(&store.coordinator);
    for kind in &context.global.allow_filesystem {
        acquiring = acquiring.allow_file_system(kind);
    }
    if let Some(reason) = &job.reason {
        acquiring = acquiring.reason(reason);
    }
    let held = acquire(
        context,
        &store.coordinator,
        LeaseKind::Writer,
        job.wait,
        acquiring.into_future(),
        futures::stream::empty().boxed(),
    )
    .await?;
    // Whoever looks can tell a living holder from one whose command has outlived it; nothing else depends on it.
    let server = serve_control(held.owner(), StatusOnly::of(held.owner()));
    if let Err(error) = &server {
        tracing::warn!(%error, "no control socket");
    }
    wrap::run(context, &store, Held::Owner(Box::new(held)), &job).await
}
