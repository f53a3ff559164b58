//! `owner` as it was typed.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use lockhouse::owner::OnPoison;

use super::super::args::Job;
use super::super::duration;

/// The commands of `owner`.
#[derive(Debug, Subcommand)]
pub(crate) enum OwnerCommand {
    /// Shows who owns the store, and what lies in its spool. Takes no lease and writes nothing.
    ///
    /// Exit code 0: an owner that is ready, or none. 69: one that is not ready, or does not answer. 81: a batch failed
    /// and needs a person.
    Status,
    /// Runs a command that has a local store to itself, as its owner.
    ///
    /// For a store that only one process can open at all. The command inherits the locks: they stand until it and all
    /// that it started are gone, should this program be killed.
    Hold(HoldArgs),
    /// Owns a record store until it is stopped: applies what others hand over.
    ///
    /// While another process owns the store it stands by, and takes over the moment that one is gone. TERM or Ctrl-C
    /// ends it when what is in the spool is applied; a second one ends it at once, and nothing is lost either.
    Serve(ServeArgs),
    /// Applies what was handed over: asks the owner to do it now, or does it where nobody owns the store.
    Ingest(IngestArgs),
    /// What could not be applied: list, show, retry, drop.
    #[command(subcommand)]
    Failed(FailedCommand),
}

/// `owner hold`.
#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    /// What the owner calls its build; refusals and `owner status` show it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) build: Option<String>,

    #[command(flatten)]
    pub(crate) job: Job,
}

/// `owner serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// What the owner calls its build; `owner status` shows it [default: the program's version].
    #[arg(long, value_name = "TEXT")]
    pub(crate) build: Option<String>,

    /// What happens to a producer whose batch cannot be applied.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Poison::Pass)]
    pub(crate) on_poison: Poison,

    #[cfg(feature = "service")]
    #[command(flatten)]
    pub(crate) listen: super::super::listen::ListenArgs,
}

/// `--on-poison`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Poison {
    /// The batch goes to `failed/`, and its producer's next one is applied.
    Pass,
    /// Its producer's batches wait until somebody mends it, or ends this owner and types `owner ingest`, which passes it
    /// over.
    Stop,
}

impl From<Poison> for OnPoison {
    fn from(poison: Poison) -> OnPoison {
        match poison {
            Poison::Pass => OnPoison::Pass,
            Poison::Stop => OnPoison::Stop,
        }
    }
}

/// `owner ingest`.
#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    /// Waits until these batches, or all that wait now, are done with: so long, a minute unless it is said.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "1m", require_equals = true,
        value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// The batches.
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

/// `owner failed`.
#[derive(Debug, Subcommand)]
pub(crate) enum FailedCommand {
    /// Lists what could not be applied, and why.
    List,
    /// Shows one in whole: why it failed, and what it would have done.
    Show(WhichArgs),
    /// Hands one over again, as a new batch at the end of the order.
    Retry(WhichArgs),
    /// Removes one for good. Without --yes it only says what would go.
    Drop(DropArgs),
}

/// Which one.
#[derive(Debug, Args)]
pub(crate) struct WhichArgs {
    /// The batch's id, or its name in the list.
    #[arg(value_name = "ID")]
    pub(crate) id: OsString,
}

/// `owner failed drop`.
#[derive(Debug, Args)]
pub(crate) struct DropArgs {
    /// Yes, remove it.
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) which: WhichArgs,
}
