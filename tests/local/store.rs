//! A store of a test's own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockhouse::Coordinator;
use serde_json::Value;
use tempfile::TempDir;

use super::support::poll::eventually_blocking;
pub(crate) use super::support::running::{FOR_LONG, Finished, PATIENCE, Running, UNTIL_EOF, lives, program};

pub(crate) struct Store {
    directory: TempDir,
    /// How the program is told of the store.
    pub(crate) at: PathBuf,
}

impl Store {
    /// With a layout.
    pub(crate) fn new() -> Store {
        let store = Store::bare();
        store.run(["init"]).assert(0);
        store
    }

    /// Without one.
    pub(crate) fn bare() -> Store {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("store");
        Store { directory, at }
    }

    /// The directory that the store is in.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A file of the store's leases.
    pub(crate) fn leases(&self, name: &str) -> PathBuf {
        self.directory().join("store.leases").join(name)
    }

    /// The presence files of writers, and whatever else is there.
    pub(crate) fn writers(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.leases("writers")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = program(args);
        command.env("LOCKHOUSE_STORE", &self.at);
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Finished {
        Running::start(self.command(args)).finish()
    }

    /// Starts a wrapper, and waits until its command runs.
    pub(crate) fn wrapped(&self, args: &[&str], command: [&str; 3]) -> Running {
        let mut running = Running::start(self.command(args.iter().chain(&["--"]).chain(&command)));
        running.until_out("started");
        running
    }

    /// `status --json`.
    pub(crate) fn status(&self) -> Value {
        self.run(["status", "--json"]).json()
    }

    /// Waits until a status shows what is looked for.
    pub(crate) fn until(&self, what: &str, shows: impl Fn(&Value) -> bool) -> Value {
        eventually_blocking(PATIENCE, what, || {
            let status = self.status();
            if shows(&status) { Ok(status) } else { Err(status) }
        })
    }

    pub(crate) async fn connect(&self, label: &str) -> Coordinator {
        Coordinator::builder(self.at.to_str().unwrap()).unwrap().label(label).connect().await.unwrap()
    }
}

/// Runs a script where it may mount: root in a mount namespace of its own, anybody else in a user namespace too.
pub(crate) fn with_mounts(script: &str, store: &Store) -> Finished {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--propagation", "private", "sh", "-euc", script]);
    command.env("LOCKHOUSE", env!("CARGO_BIN_EXE_lockhouse")).env("D", store.directory()).env_remove("LOCKHOUSE_STORE");
    Running::start(command).finish()
}
