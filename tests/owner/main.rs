//! The owner of a local store: real processes, real signals, real files.
//!
//! - `election`: who becomes the owner, how an owner notices that it is none any more, forks and children.
//! - `racing`: many elections in a row, among processes.
//! - `state`: what a look finds, whatever is in the files.
//! - `paths`: one store by many names, long names.
//! - `control`: the socket, its protocol and its address.
//! - `crowd`: too many clients, and bad ones.
//! - `takeover`: the next owner.
//! - `program`: `lockhouse owner`.
//! - `probe`: the process that the others start: this binary once more, with a role.

mod control;
mod crowd;
mod election;
mod paths;
mod probe;
mod program;
mod racing;
mod state;
#[path = "../support/mod.rs"]
mod support;
mod takeover;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockhouse::Error;
use support::scratch::Scratch;

/// How long anything may take that ought to happen soon.
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory for one store, and the store's path in it. The store itself need not exist.
struct Store {
    scratch: Scratch,
}

impl Store {
    fn new() -> Store {
        Store { scratch: Scratch::new("owner") }
    }

    fn directory(&self) -> &Path {
        self.scratch.path()
    }

    fn path(&self) -> PathBuf {
        self.directory().join("p")
    }

    /// A file beside the store.
    fn beside(&self, suffix: &str) -> PathBuf {
        self.directory().join(format!("p{suffix}"))
    }
}

/// A count that a longer run can raise.
fn count(variable: &str, otherwise: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")),
        Err(_) => otherwise,
    }
}

/// Whether the ownership is over for good.
fn is_lost(error: &Error) -> bool {
    matches!(error, Error::LeaseLost(lost) if lost.identifier == "owner")
}
