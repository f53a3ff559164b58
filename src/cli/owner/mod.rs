//! `owner`: the one process that writes a local store.

mod hold;
mod status;

use std::path::PathBuf;

use lockhouse::StoreUrl;
use serde_json::Value;

use super::Context;
use super::args::{Global, OwnerCommand};
use super::exit::Failure;
use super::interruptible;

pub(crate) use status::line;

/// Runs one of its commands.
pub(crate) async fn owner(context: &mut Context, command: OwnerCommand) -> Result<i32, Failure> {
    match command {
        OwnerCommand::Status => interruptible(context, |global, _| status::status(global)).await,
        OwnerCommand::Hold(args) => hold::hold(context, args).await,
    }
}

/// The path of the local store that was given.
fn path(global: &Global) -> Result<PathBuf, Failure> {
    let Some(url) = &global.store else { return Err(super::store::none_given()) };
    match StoreUrl::from_os_str(url)? {
        StoreUrl::Local(path) => Ok(path),
        StoreUrl::Mongo(url) => Err(Failure::Usage(format!(
            "only a local store has an owner, and {url} is a MongoDB store: use --store PATH"
        ))),
    }
}

/// What the JSON of `status` has in its field `owner`: `null` without an owner, on another store, and where it cannot be
/// looked at.
pub(crate) fn value(global: &Global) -> Option<Value> {
    let look = path(global).ok().and_then(|path| lockhouse::owner::read_state(path).ok())?;
    Some(serde_json::json!(look)).filter(|value| !value.is_null())
}
