//! `owner`: the one process that writes a local store.

mod args;
mod failed;
mod hold;
mod ingest;
mod serve;
mod status;

use std::path::PathBuf;

use lockhouse::StoreUrl;
use lockhouse::spool::{Spool, SpoolStatus};
use serde_json::Value;

use super::Context;
use super::args::Global;
use super::exit::Failure;
use super::interruptible;

pub(crate) use args::OwnerCommand;
pub(crate) use status::{line, spool_value_line};

/// Runs one of its commands.
pub(crate) async fn owner(context: &mut Context, command: OwnerCommand) -> Result<i32, Failure> {
    match command {
        OwnerCommand::Status => interruptible(context, |global, _| status::status(global)).await,
        OwnerCommand::Hold(args) => hold::hold(context, args).await,
        OwnerCommand::Serve(args) => serve::serve(context, args).await,
        OwnerCommand::Ingest(args) => ingest::ingest(context, args).await,
        OwnerCommand::Failed(command) => failed::failed(context, command).await,
    }
}

/// The path of the local store that was given.
pub(crate) fn path(global: &Global) -> Result<PathBuf, Failure> {
    let Some(url) = &global.store else { return Err(super::store::none_given()) };
    match StoreUrl::from_os_str(url)? {
        StoreUrl::Local(path) => Ok(path),
        StoreUrl::Mongo(url) => Err(Failure::Usage(format!(
            "only a local store has an owner and records, and {url} is a MongoDB store: use --store PATH"
        ))),
    }
}

/// What the JSON of `status` has in its field `owner`: `null` without an owner, on another store, and where it cannot be
/// looked at.
pub(crate) fn value(global: &Global) -> Option<Value> {
    let look = path(global).ok().and_then(|path| lockhouse::owner::read_state(path).ok())?;
    Some(serde_json::json!(look)).filter(|value| !value.is_null())
}

/// What lies in the store's spool. `None`: it has none, or it cannot be looked at.
pub(crate) fn spool(global: &Global) -> Option<SpoolStatus> {
    let path = path(global).ok()?;
    Spool::find(&path, &global.allow_filesystem).ok()??.status().ok()
}
