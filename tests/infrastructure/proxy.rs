//! The proxy between client and server.

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::{Client, Collection};

use crate::support::database::{TestDatabase, database};
use crate::support::poll::eventually;
use crate::support::proxy::{Action, Proxy};

const BOUND: Duration = Duration::from_secs(20);
/// Longer than any answer of the server takes, even on a busy machine.
const SILENCE: Duration = Duration::from_millis(700);

/// A database, a proxy before its server, and a client that goes through it and retries nothing.
struct Proxied {
    database: TestDatabase,
    proxy: Proxy,
    things: Collection<Document>,
}

impl Proxied {
    async fn new() -> Self {
        let database = database();
        let proxy = database.proxy();
        let things = Self::connect(&database, &proxy).await;
        things.insert_one(doc! { "_id": "first" }).await.expect("everything passes");
        Self { database, proxy, things }
    }

    async fn connect(database: &TestDatabase, proxy: &Proxy) -> Collection<Document> {
        let uri =
            format!("{}&retryWrites=false&retryReads=false&serverSelectionTimeoutMS=1000", database.uri_through(proxy));
        let client = Client::with_uri_str(uri).await.expect("a client");
        client.database(database.name()).collection("things")
    }

    /// Inserts through the proxy; `None` when no answer came for a while.
    async fn insert(&self, id: &str) -> Option<mongodb::error::Result<()>> {
        let insert = self.things.insert_one(doc! { "_id": id });
        let answer = tokio::time::timeout(SILENCE, insert.into_future()).await.ok()?;
        Some(answer.map(|_| ()))
    }

    /// Looks past the proxy.
    async fn is_there(&self, id: &str) -> bool {
        let things = self.database.raw().await.collection::<Document>("things");
        things.find_one(doc! { "_id": id }).await.expect("find").is_some()
    }

    async fn wait_until_there(&self, id: &str) {
        eventually(BOUND, "the server to execute the insert", || async {
            if self.is_there(id).await { Ok(()) } else { Err("not there") }
        })
        .await;
    }
}

#[tokio::test]
async fn the_proxy_counts_delays_and_cuts() {
    let it = Proxied::new().await;
    assert_eq!(it.proxy.count("insert"), 1);
    it.proxy.forget_commands();

    it.proxy.delay(Duration::from_millis(150), Duration::from_millis(150));
    let start = Instant::now();
    it.insert("delayed").await.expect("an answer").expect("inserted");
    assert!(start.elapsed() >= Duration::from_millis(300));
    it.proxy.delay(Duration::ZERO, Duration::ZERO);
    assert_eq!(it.proxy.count("insert"), 1);

    it.proxy.cut();
    let refused = tokio::net::TcpStream::connect(it.proxy.address()).await;
    assert_eq!(refused.expect_err("cut").kind(), std::io::ErrorKind::ConnectionRefused);
    let error = it.things.insert_one(doc! { "_id": "cut" }).await.expect_err("cut");
    let is_network = matches!(*error.kind, ErrorKind::Io(_) | ErrorKind::ServerSelection { .. });
    assert!(is_network, "{error}");

    it.proxy.pass();
    eventually(BOUND, "the client to connect again", || async {
        it.insert("again").await.ok_or("silence")?.map_err(|_| "error")
    })
    .await;
    assert!(it.is_there("again").await && !it.is_there("cut").await);
}

#[tokio::test]
async fn the_proxy_swallows_both_ways_or_only_replies() {
    let it = Proxied::new().await;
    it.proxy.blackhole();
    assert!(it.insert("swallowed").await.is_none(), "an answer out of a black hole");
    let connected = tokio::net::TcpStream::connect(it.proxy.address()).await;
    connected.expect("a black hole accepts");
    assert!(!it.is_there("swallowed").await);

    it.proxy.pass();
    let things = Proxied::connect(&it.database, &it.proxy).await;
    things.count_documents(doc! {}).await.expect("a new client passes");
    it.proxy.drop_replies();
    let insert = things.insert_one(doc! { "_id": "unanswered" });
    let answer = tokio::time::timeout(SILENCE, insert.into_future()).await;
    assert!(answer.is_err(), "an answer that should have been swallowed");
    it.wait_until_there("unanswered").await;
    assert!(it.proxy.dropped_replies() >= 1);
}

#[tokio::test]
async fn a_held_statement_arrives_after_its_client_has_gone() {
    let it = Proxied::new().await;
    it.proxy.hold_requests();
    assert!(it.insert("late").await.is_none(), "an answer to a request that was held");
    it.proxy.pass();
    // The client gave up and closes; the network is cut too, for good measure.
    it.things.client().clone().shutdown().immediate(true).await;
    it.proxy.cut();
    assert!(it.proxy.held().contains(&"insert".to_owned()));
    assert!(!it.is_there("late").await);
    it.proxy.release_held().await;
    assert!(it.is_there("late").await, "applied after its client had gone");
}

#[tokio::test]
async fn a_fault_hits_only_the_command_that_was_named() {
    let it = Proxied::new().await;
    let proxy = &it.proxy;

    proxy.on_command("insert", Action::DropReply, 1);
    it.things.count_documents(doc! {}).await.expect("another command passes");
    assert!(it.insert("reply dropped").await.is_none());
    assert!(it.is_there("reply dropped").await);
    assert_eq!(proxy.dropped_replies(), 1);

    proxy.on_command("insert", Action::CutReply, 1);
    let error = it.insert("reply cut").await.expect("an answer").expect_err("reset");
    assert!(matches!(*error.kind, ErrorKind::Io(_)), "{error}");
    assert!(it.is_there("reply cut").await);

    proxy.on_command("insert", Action::Cut, 1);
    eventually(BOUND, "the fault to have happened", || async {
        match it.insert("cut").await {
            Some(Err(_)) if proxy.count("insert") == 4 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(!it.is_there("cut").await);

    let waits = [Action::Delay(SILENCE / 2), Action::DelayReply(SILENCE / 2)];
    for (wait, id) in waits.into_iter().zip(["delayed", "answered late"]) {
        proxy.on_command("insert", wait, 1);
        let start = Instant::now();
        it.things.insert_one(doc! { "_id": id }).await.expect("inserted");
        assert!(start.elapsed() >= SILENCE / 2);
    }

    // Held, while the client waits on and other commands pass; then it gets its answer after all.
    let here = |body: &mongodb::bson::RawDocument| body.get_str("insert").is_ok_and(|name| name == "things");
    proxy.on_matching(here, Action::HoldRequest, 1);
    let insert = it.things.insert_one(doc! { "_id": "held" });
    let rest = async {
        proxy.wait_held(1).await;
        assert_eq!(proxy.held(), ["insert"]);
        it.things.count_documents(doc! {}).await.expect("another command passes");
        assert!(!it.is_there("held").await);
        assert_eq!(proxy.release_held().await, 1);
        assert!(it.is_there("held").await);
    };
    let (inserted, ()) = tokio::join!(insert.into_future(), rest);
    inserted.expect("the answer comes late, but it comes");
}
