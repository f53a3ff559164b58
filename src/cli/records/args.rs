//! `records` as it was typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use lockhouse::records::{KindName, StreamName};

use super::super::duration;

/// The commands of `records`.
#[derive(Debug, Subcommand)]
pub(crate) enum RecordsCommand {
    /// Adds rows to a stream: one JSON object a line, from stdin or a file.
    ///
    /// The rows go in batches, each of them whole or not at all. A bad row ends it: it is named by its line and column,
    /// nothing of its batch is stored, and what came before its batch stays. What a killed `append` had handed over is
    /// applied all the same; a kind with a key makes it safe to give the same rows again.
    Append(AppendArgs),
    /// Prints the rows of a stream as they were appended, one JSON object a line.
    ///
    /// Takes no lease, is in nobody's way, and goes on while an fsck has the store.
    Scan(ScanArgs),
    /// Shows what is known of a stream.
    Meta(StreamArgs),
    /// Lists the streams.
    Streams,
    /// Lists the kinds of rows: their columns, keys and what happens to a row whose key is there.
    Kinds,
    /// Ends a stream: it takes no more rows.
    Seal(ChangeArgs),
    /// Lets a sealed stream take rows again.
    Reopen(ChangeArgs),
    /// Removes the oldest rows of a stream.
    Trim(TrimArgs),
    /// Says how long a stream, or each of its rows, lives from now on: as the kind's retention says.
    Expire(ExpireArgs),
    /// Removes a stream with all its rows. Without --yes it only says what would go.
    Delete(DeleteArgs),
    /// Waits for a batch that was handed over, and shows what became of it.
    Await(AwaitArgs),
}

/// How long to wait for an outcome.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Patience {
    /// How long to wait for the store's owner, and for the outcome of a batch. What is not known by then is exit code
    /// 79: the rows are safe, and `records await` tells later.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    pub(crate) wait: Duration,

    /// Ends when the rows are durable, and prints the ids of their batches.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
}

/// `records append`.
#[derive(Debug, Args)]
pub(crate) struct AppendArgs {
    /// The stream. It is made where there is none.
    pub(crate) stream: StreamName,

    /// The kind of the rows.
    #[arg(long, value_name = "KIND", required_unless_present = "schema")]
    pub(crate) kind: Option<KindName>,

    /// A file with the kind's schema as JSON [default: what the store has, or else what the first rows show].
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,

    /// For a schema that the rows show: the columns that tell a row from the others of its stream.
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', conflicts_with = "schema")]
    pub(crate) key: Vec<String>,

    /// How long the stream, or each of these rows, lives from now on.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    /// Takes no more rows after these.
    #[arg(long)]
    pub(crate) seal: bool,

    /// Only if the stream is still this one: another that was made after it was deleted refuses.
    #[arg(long, value_name = "N")]
    pub(crate) generation: Option<u64>,

    #[command(flatten)]
    pub(crate) patience: Patience,

    /// The rows [default: stdin].
    pub(crate) file: Option<PathBuf>,
}

/// `records scan`.
#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// The stream.
    pub(crate) stream: StreamName,

    /// The first seq.
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    pub(crate) from: u64,

    /// At most so many rows.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,

    /// Goes on with what is appended later, until Ctrl-C. Waits for a stream that is not there yet.
    #[arg(long)]
    pub(crate) follow: bool,

    /// Prints {"seq": …, "row": …}.
    #[arg(long)]
    pub(crate) with_seq: bool,
}

/// `records meta`.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// The stream.
    pub(crate) stream: StreamName,
}

/// What is done to a stream as a whole.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// The stream.
    pub(crate) stream: StreamName,

    /// Only if the stream is still this one.
    #[arg(long, value_name = "N")]
    pub(crate) generation: Option<u64>,

    #[command(flatten)]
    pub(crate) patience: Patience,
}

/// `records trim`.
#[derive(Debug, Args)]
pub(crate) struct TrimArgs {
    /// The first seq that stays.
    #[arg(long, value_name = "SEQ")]
    pub(crate) before: u64,

    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// `records expire`.
#[derive(Debug, Args)]
pub(crate) struct ExpireArgs {
    /// So long.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// `records delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// Yes, remove it.
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// `records await`.
#[derive(Debug, Args)]
pub(crate) struct AwaitArgs {
    /// The batch.
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// How long to wait.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    pub(crate) wait: Duration,
}
