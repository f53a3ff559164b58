//! The binary on a store of a test's own.

use std::ffi::OsStr;
use std::future::Future;
use std::process::Command;
use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use serde_json::Value;

use super::support::database::{TestDatabase, database};
use super::support::failpoint::FailPoint;
use super::support::poll::eventually_blocking;
use super::support::proxy::Proxy;
pub(crate) use super::support::running::{FOR_LONG, Finished, PATIENCE, Running, UNTIL_EOF, program};

/// The stale age of every lease here: 500 ms × 4.
pub(crate) const STALE: Duration = Duration::from_secs(2);

/// A store of a test's own.
pub(crate) struct Store {
    database: TestDatabase,
    pub(crate) url: String,
}

impl Store {
    /// With a layout, through a proxy.
    pub(crate) fn through_proxy() -> (Store, Proxy) {
        let mut store = Store::new();
        let proxy = store.database.proxy();
        store.url = store.database.uri_through(&proxy);
        (store, proxy)
    }

    /// With a layout.
    pub(crate) fn new() -> Store {
        let store = Store::bare();
        store.run(["init"]).assert(0);
        store
    }

    /// Without one.
    pub(crate) fn bare() -> Store {
        let database = database();
        let url = database.uri();
        Store { database, url }
    }

    /// The binary with these arguments, this store and short timing.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = program(args);
        self.set(&mut command);
        command
    }

    /// This store and short timing for a command.
    pub(crate) fn set(&self, command: &mut Command) {
        command
            .env("LOCKHOUSE_STORE", &self.url)
            .env("LOCKHOUSE_REFRESH_INTERVAL", "500ms")
            .env("LOCKHOUSE_STALE_MULTIPLIER", "4");
    }

    /// Runs the binary to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Finished {
        Running::start(self.command(args)).finish()
    }

    /// Starts the binary.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running::start(self.command(args))
    }

    /// Starts a wrapper, and waits until its command runs. `command` is one of those above.
    pub(crate) fn wrapped(&self, args: &[&str], command: [&str; 3]) -> Running {
        let words = args.iter().chain(&["--"]).chain(&command);
        let mut running = self.start(words);
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

    /// Looks and writes behind the product's back.
    pub(crate) fn behind<T, F: Future<Output = T>>(&self, work: impl FnOnce(Collection<Document>) -> F) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { work(self.database.raw().await.collection("lockhouse")).await })
    }

    /// From now on no document can be deleted, until the guard is dropped.
    pub(crate) fn fail_deletes(&self) -> FailPoint {
        let fault = self.database.fail_command().commands(&["delete", "findAndModify"]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // No primary: worth another try, for ever.
        runtime.block_on(fault.error_code(10107).on())
    }

    /// Everything that is stored, in a fixed order.
    pub(crate) fn content(&self) -> Vec<Document> {
        self.behind(|leases| async move {
            use futures::TryStreamExt;
            let cursor = leases.find(doc! {}).sort(doc! { "_id": 1 }).await;
            cursor.unwrap().try_collect().await.unwrap()
        })
    }

    /// A writer that died: its lease stands and is not refreshed. Returns its id.
    pub(crate) fn dead_writer(&self, label: &str) -> String {
        let mut writer = self.wrapped(&["run", "--label", label], FOR_LONG);
        let id = self.writer_of(label);
        writer.kill();
        id
    }

    /// The id of the writer with a label.
    pub(crate) fn writer_of(&self, label: &str) -> String {
        let status = self.status();
        let writers = status["writers"].as_array().unwrap();
        let own = writers.iter().find(|writer| writer["holder"]["label"] == label);
        own.unwrap()["id"].as_str().unwrap().to_owned()
    }
}
