//! The process that is stopped. It holds a writer lease and a transaction, and is told what to do in it.

use lockhouse::mongodb::Client;
use lockhouse::mongodb::bson::{Document, doc};

use crate::connect;
pub(crate) use crate::support::probe::Probe;
use crate::support::probe::{own_binary, say};

const URI: &str = "LOCKHOUSE_FENCE_PROBE";
const DATABASE: &str = "LOCKHOUSE_FENCE_PROBE_DATABASE";

impl Probe {
    /// One with a writer lease and a transaction that has begun. It is told `fence`, `write` or `commit`, and answers
    /// with `ok`, or with what went wrong.
    pub(crate) fn start(uri: &str, database: &str) -> Probe {
        let mut command = own_binary();
        command.env(URI, uri).env(DATABASE, database);
        let probe = Probe::by(command);
        assert_eq!(probe.answer(), "ready");
        probe
    }
}

/// Not a test of its own: what a [`Probe`] runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe() {
    let Ok(uri) = std::env::var(URI) else { return };
    let database = std::env::var(DATABASE).unwrap();
    let coordinator = connect(&uri, "the probe").await;
    let lease = coordinator.acquire_writer().await.unwrap();
    let client = Client::with_uri_str(&uri).await.unwrap();
    let data = client.database(&database).collection::<Document>("data");
    let mut session = client.start_session().await.unwrap();
    // Its fence is there before the transaction that matters begins.
    lease.fenced(&mut session, async |_| Ok(())).await.unwrap();
    session.start_transaction().await.unwrap();
    say("ready");
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let done: Result<(), String> = match order.as_str() {
            "fence" => lease.fence(&mut session).await.map_err(|error| format!("{:?}: {error}", error.kind())),
            "write" => {
                let written = data.insert_one(doc! { "by": "the probe" }).session(&mut session).await;
                written.map(drop).map_err(|error| error.to_string())
            }
            "commit" => session.commit_transaction().await.map_err(|error| error.to_string()),
            _ => Err("what?".to_owned()),
        };
        say(done.err().unwrap_or_else(|| "ok".to_owned()));
    }
}
