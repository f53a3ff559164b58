//! The record store from a shell: the real binary, real files, processes that are really killed.
//!
//! - `appending`: rows in, schemas, bad input, a long input.
//! - `scanning`: rows out, and following.
//! - `changing`: what is done to whole streams.
//! - `owning`: `owner serve`, `ingest` and `failed`, and what `status` says of the spool.
//! - `poison`: batches that cannot be applied, and an owner that failed.
//! - `enclosed`: under an fsck, and under a run.
//! - `contract`: the JSON forms, field by field; completions and manual pages.

mod appending;
mod changing;
mod contract;
mod enclosed;
mod owning;
mod poison;
#[path = "../support/pty.rs"]
#[expect(dead_code, reason = "the tests of commands on terminals use the rest")]
mod pty;
mod scanning;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::poll::eventually_blocking;
use support::running::{Finished, PATIENCE, Running, program};
use support::scratch::Scratch;

/// A directory for one store, and the store's path in it.
struct Store {
    scratch: Scratch,
}

impl Store {
    fn new() -> Store {
        Store { scratch: Scratch::new("records") }
    }

    fn directory(&self) -> &Path {
        self.scratch.path()
    }

    fn path(&self) -> PathBuf {
        self.directory().join("p")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = program(words);
        command.env("LOCKHOUSE_STORE", self.path());
        command
    }

    fn start(&self, words: &[&str]) -> Running {
        Running::start(self.command(words))
    }

    /// Runs it to its end, with nothing on stdin.
    fn run(&self, words: &[&str]) -> Finished {
        self.start(words).finish()
    }

    /// Runs it to its end with this on stdin.
    fn feed(&self, words: &[&str], rows: &str) -> Finished {
        let mut running = self.start(words);
        running.feed(rows);
        running.finish()
    }

    /// An owner that is ready.
    fn serve(&self, words: &[&str]) -> Running {
        let words: Vec<&str> = ["owner", "serve"].iter().chain(words).copied().collect();
        let mut serving = self.start(&words);
        serving.until_err("owns the store");
        serving
    }

    /// A file in the store's directory.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The rows of a stream.
    fn rows(&self, stream: &str) -> Vec<Value> {
        lines(&self.run(&["records", "scan", stream]).assert(0).out)
    }

    /// What lies in a directory of the spool.
    fn spooled(&self, part: &str) -> Vec<PathBuf> {
        let path = self.directory().join("p.spool").join(part);
        std::fs::read_dir(path).map_or_else(|_| Vec::new(), |all| all.map(|entry| entry.unwrap().path()).collect())
    }
}

/// Lines of JSON.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Rows `{"n": …}`.
fn numbers(range: std::ops::Range<u64>) -> String {
    range.map(|n| format!("{{\"n\":{n}}}\n")).collect()
}

/// Waits until nobody owns a store.
fn until_free(store: &Store) {
    eventually_blocking(PATIENCE, "the store to be free", || {
        match lockhouse::owner::read_state(store.path()).unwrap() {
            lockhouse::owner::Ownership::Nobody => Ok(()),
            other => Err(other),
        }
    });
}
