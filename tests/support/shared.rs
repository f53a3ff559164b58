//! The servers that all tests share: one replica set of a single member, one standalone. `scripts/test`
//! starts both once and exports where they are; without it each test process finds or starts its own on
//! first use, in this order: the variable, a container, a process.

use std::sync::OnceLock;
use std::time::Duration;

use mongodb::bson::doc;

use super::container;
use super::database::{blocking, connect};
use super::mongod::{self, Mongod, Options};
use super::uri::Uri;

/// What to do when there is no server.
pub(crate) const ADVICE: &str = "\
The tests need a real MongoDB server. Run scripts/test, which finds or fetches one. Or set one of:
  LOCKHOUSE_TEST_MONGODB_URI     a replica set that is running, e.g. mongodb://127.0.0.1:27017/?replicaSet=rs0,
                                 with --setParameter enableTestCommands=1
  LOCKHOUSE_TEST_STANDALONE_URI  a standalone server that is running, likewise
  LOCKHOUSE_TEST_IMAGE           an image of MongoDB that the Docker engine has (default: mongo:7)
  LOCKHOUSE_TEST_MONGOD          the path of a mongod program";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    ReplicaSet,
    Standalone,
}

impl Kind {
    fn variable(self) -> &'static str {
        match self {
            Kind::ReplicaSet => "LOCKHOUSE_TEST_MONGODB_URI",
            Kind::Standalone => "LOCKHOUSE_TEST_STANDALONE_URI",
        }
    }
}

/// A running server, and what keeps it running.
enum Server {
    Given(Uri),
    Contained(Uri),
    // Never dropped: the kernel ends it with this process, the next test process sweeps its directory.
    Own(Uri, #[expect(dead_code, reason = "held, so that the server runs on")] Box<Mongod>),
}

impl Server {
    fn uri(&self) -> &Uri {
        match self {
            Server::Given(uri) | Server::Contained(uri) | Server::Own(uri, _) => uri,
        }
    }
}

/// Where the shared replica set is.
///
/// # Panics
///
/// When there is none and none can be started; the message says what to do.
pub(crate) fn replica_set() -> &'static Uri {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| find(Kind::ReplicaSet)).uri()
}

/// Where the shared standalone server is. Panics as `replica_set` does.
pub(crate) fn standalone() -> &'static Uri {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| find(Kind::Standalone)).uri()
}

fn find(kind: Kind) -> Server {
    let found = blocking(Duration::from_secs(120), async move {
        if let Ok(given) = std::env::var(kind.variable()) {
            let uri = Uri::parse(&given);
            check(kind, &uri).await?;
            return Ok(Server::Given(uri));
        }
        let no_container = match container::start(kind).await {
            Ok(uri) => return Ok(Server::Contained(uri)),
            Err(why) => why,
        };
        match mongod::binary() {
            Ok(_) => {
                let options = Options { replica_set: kind == Kind::ReplicaSet, ..Options::default() };
                let server = Mongod::start(options).await;
                Ok(Server::Own(Uri::parse(&server.uri()), Box::new(server)))
            }
            Err(no_binary) => Err(format!("no server: {} is not set; {no_container}; {no_binary}", kind.variable())),
        }
    });
    match found {
        Some(Ok(server)) => server,
        Some(Err(why)) => panic!("{why}\n{ADVICE}"),
        None => panic!("starting a server took too long or failed, see above\n{ADVICE}"),
    }
}

/// A variable that names the wrong server is an error at once, not a puzzle in some test.
async fn check(kind: Kind, uri: &Uri) -> Result<(), String> {
    let variable = kind.variable();
    let admin = connect(uri).await.database("admin");
    let hello = admin
        .run_command(doc! { "hello": 1 })
        .await
        .map_err(|error| format!("{variable} names a server that does not answer: {error}"))?;
    if hello.contains_key("setName") == (kind == Kind::ReplicaSet) {
        Ok(())
    } else {
        Err(format!("{variable} must name a server of the kind {kind:?}, this one is the other"))
    }
}
