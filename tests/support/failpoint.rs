//! The server's own faults: `failCommand`, in a guard that switches it off.
//!
//! A server has one `failCommand` for all its clients. So a fault should name the application it is
//! meant for (`TestDatabase::fail_command` does), and only one test at a time has one switched on:
//! the others wait, in whatever process they run.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use mongodb::bson::{Document, doc};

use super::database::{blocking, connect};
use super::poll::eventually;
use super::scratch::tests_home;
use super::uri::Uri;

/// How long another test may have its own fault switched on.
const TURN_BOUND: Duration = Duration::from_secs(120);

/// A fault being described; `on()` switches it on.
#[derive(Debug)]
#[must_use = "a fault does nothing before on()"]
pub(crate) struct FailCommand {
    server: String,
    data: Document,
    mode: Document,
}

impl FailCommand {
    /// For the server of this connection string, until switched off.
    pub(crate) fn new(server: &str) -> Self {
        Self { server: server.to_owned(), data: Document::new(), mode: doc! { "mode": "alwaysOn" } }
    }

    /// The commands that it meets, by name.
    pub(crate) fn commands(self, names: &[&str]) -> Self {
        self.with("failCommands", names.to_vec())
    }

    /// The command is not executed; the reply is this error.
    pub(crate) fn error_code(self, code: i32) -> Self {
        self.with("errorCode", code)
    }

    /// What the server adds to an error of its own; some codes cannot do without.
    pub(crate) fn extra_info(self, info: Document) -> Self {
        self.with("errorExtraInfo", info)
    }

    /// The command is executed; the reply carries this write concern error.
    pub(crate) fn write_concern_error(self, code: i32) -> Self {
        self.with("writeConcernError", doc! { "code": code, "errmsg": "asked for by a test" })
    }

    /// The connection is closed, the command not executed.
    pub(crate) fn close_connection(self) -> Self {
        self.with("closeConnection", true)
    }

    /// The command waits for so long before it is executed (or fails).
    pub(crate) fn block(self, wait: Duration) -> Self {
        let millis = i64::try_from(wait.as_millis()).expect("a wait in range");
        self.with("blockConnection", true).with("blockTimeMS", millis)
    }

    /// Only for clients of this application name.
    pub(crate) fn app_name(self, name: &str) -> Self {
        self.with("appName", name)
    }

    /// The labels of the error, instead of those that the server would give.
    pub(crate) fn labels(self, labels: &[&str]) -> Self {
        self.with("errorLabels", labels.to_vec())
    }

    /// So many times, then no more.
    pub(crate) fn times(mut self, times: i32) -> Self {
        self.mode = doc! { "mode": { "times": times } };
        self
    }

    /// The first `skip` matching commands pass, all later ones meet the fault.
    pub(crate) fn skip(mut self, skip: i32) -> Self {
        self.mode = doc! { "mode": { "skip": skip } };
        self
    }

    /// Switches the fault on. Waits while another test has one on the same server.
    ///
    /// # Panics
    ///
    /// When the server refuses: it needs `--setParameter enableTestCommands=1`.
    pub(crate) async fn on(self) -> FailPoint {
        let turn = turn(&self.server).await;
        let mut command = doc! { "configureFailPoint": "failCommand", "data": self.data };
        command.extend(self.mode);
        let reply = configure(&self.server, command)
            .await
            .expect("configureFailPoint, for which the server needs --setParameter enableTestCommands=1");
        FailPoint {
            server: self.server,
            met_before: reply.get_i64("count").or(reply.get_i32("count").map(i64::from)).unwrap_or(0),
            _turn: turn,
            on: true,
        }
    }

    fn with(mut self, key: &str, value: impl Into<mongodb::bson::Bson>) -> Self {
        self.data.insert(key, value);
        self
    }
}

/// A fault that is switched on, until `off()` or drop.
#[derive(Debug)]
#[must_use = "the fault is switched off when this is dropped"]
pub(crate) struct FailPoint {
    server: String,
    met_before: i64,
    // Released after the fault is off: by then `drop` has run.
    _turn: File,
    on: bool,
}

impl FailPoint {
    /// Switches the fault off, and says how many commands met it.
    pub(crate) async fn off(mut self) -> i64 {
        self.on = false;
        let reply = configure(&self.server, off()).await.expect("switch the fail point off");
        let met = reply.get_i64("count").or(reply.get_i32("count").map(i64::from));
        met.expect("the server counts what met the fail point") - self.met_before
    }
}

impl Drop for FailPoint {
    fn drop(&mut self) {
        if self.on {
            let server = self.server.clone();
            let _ = blocking(Duration::from_secs(5), async move {
                let _ = configure(&server, off()).await;
            });
        }
    }
}

fn off() -> Document {
    doc! { "configureFailPoint": "failCommand", "mode": "off" }
}

async fn configure(server: &str, command: Document) -> mongodb::error::Result<Document> {
    // A client of its own: the one under test may be cut off, and has another application name.
    connect(&Uri::parse(server)).await.database("admin").run_command(command).await
}

async fn turn(server: &str) -> File {
    let mut hash = DefaultHasher::new();
    Uri::parse(server).first_host().hash(&mut hash);
    let path = tests_home().join(format!("failcommand-{:016x}.lock", hash.finish()));
    let file = File::create(&path).expect("make the lock file of the fail point");
    eventually(TURN_BOUND, "other tests to switch their fault off", || async { file.try_lock() }).await;
    file
}
