//! `records`: streams of rows in a local store.
//!
//! | file | what it does |
//! | --- | --- |
//! | `args` | the command line as typed |
//! | `writing` | a store that is open for writing: what is around this process, handing over, waiting, closing |
//! | `append` | rows in: `input` reads and checks them on a thread, `progress` and `tally` say how far it is |
//! | `scan`, `rows` | rows out, and the thread that writes them |
//! | `change`, `outcome` | what is done to whole streams, and what became of a batch |
//! | `look` | streams and kinds |
//!
//! Whatever only looks opens the store for reading: it never elects, ingests or waits for writers.

mod append;
mod args;
mod change;
mod input;
mod look;
mod outcome;
mod progress;
mod rows;
mod scan;
mod tally;
mod writing;

use lockhouse::owner::ReadOnly;
use lockhouse::records::Operation;

pub(crate) use args::RecordsCommand;
pub(crate) use outcome::result_of;
pub(crate) use writing::{Around, Builds, Writing, around};

use super::args::Global;
use super::exit::Failure;
use super::{Context, interruptible, owner};

/// Runs one of its commands.
pub(crate) async fn records(context: &mut Context, command: RecordsCommand) -> Result<i32, Failure> {
    match command {
        RecordsCommand::Append(args) => append::append(context, args).await,
        RecordsCommand::Scan(args) => scan::scan(context, args).await,
        RecordsCommand::Meta(args) => interruptible(context, |global, _| look::meta(global, args.stream)).await,
        RecordsCommand::Streams => interruptible(context, |global, _| look::streams(global)).await,
        RecordsCommand::Kinds => interruptible(context, |global, _| look::kinds(global)).await,
        RecordsCommand::Seal(args) => change::change(context, args, Operation::Seal).await,
        RecordsCommand::Reopen(args) => change::change(context, args, Operation::Reopen).await,
        RecordsCommand::Trim(args) => {
            change::change(context, args.change, Operation::Trim { before: args.before }).await
        }
        RecordsCommand::Expire(args) => change::change(context, args.change, Operation::Expire { ttl: args.ttl }).await,
        RecordsCommand::Delete(args) => change::delete(context, args).await,
        RecordsCommand::Await(args) => outcome::wait(context, args).await,
    }
}

/// The store, for looking alone.
pub(crate) fn read_only(global: &Global) -> Result<ReadOnly, Failure> {
    Ok(ReadOnly::allowing(&owner::path(global)?, &global.allow_filesystem)?)
}
