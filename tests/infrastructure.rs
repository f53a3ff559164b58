//! The tests' own tools, each proved against a real server: what a fault injector does not inject
//! proves nothing.
#![cfg(feature = "mongo")]

mod support;

use std::time::{Duration, Instant};

use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::{Client, Collection};
use support::database::{TestDatabase, database, standalone_database};
use support::mongod::{Mongod, Options};
use support::poll::eventually;
use support::proxy::{Action, Proxy};
use support::replica_set::ReplicaSet;

const BOUND: Duration = Duration::from_secs(20);
/// Longer than any answer of the server takes, even on a busy machine.
const SILENCE: Duration = Duration::from_millis(700);

async fn hello(client: &Client) -> Document {
    let admin = client.database("admin");
    admin.run_command(doc! { "hello": 1 }).await.expect("hello")
}

#[tokio::test]
async fn the_shared_replica_set_has_transactions() {
    let database = database();
    let client = database.client().await;
    assert!(hello(&client).await.contains_key("setName"));
    let things: Collection<Document> = client.database(database.name()).collection("things");
    let mut session = client.start_session().await.expect("a session");
    session.start_transaction().await.expect("a transaction");
    let thing = doc! { "_id": 1 };
    things.insert_one(thing).session(&mut session).await.expect("insert");
    let outside = things.count_documents(doc! {}).await.expect("count");
    assert_eq!(outside, 0, "seen before the commit");
    session.commit_transaction().await.expect("commit");
    assert_eq!(things.count_documents(doc! {}).await.expect("count"), 1);
}

#[tokio::test]
async fn the_shared_standalone_is_no_replica_set() {
    let client = standalone_database().client().await;
    assert!(!hello(&client).await.contains_key("setName"));
}

#[tokio::test]
async fn a_database_goes_with_its_test() {
    let first = database();
    let keeper = database();
    let client = keeper.client().await;
    let name = first.name().to_owned();
    let things = first.raw().await.collection::<Document>("things");
    things.insert_one(doc! {}).await.expect("insert");
    let names = client.list_database_names().await.expect("list");
    assert!(names.contains(&name));
    drop(first);
    let names = client.list_database_names().await.expect("list");
    assert!(!names.contains(&name));
}

async fn server_now(database: &TestDatabase) -> DateTime {
    let pipeline = [doc! { "$documents": [{ "now": "$$NOW" }] }];
    let raw = database.raw().await;
    let mut cursor = raw.aggregate(pipeline).await.expect("$$NOW");
    assert!(cursor.advance().await.expect("one document"));
    let document = cursor.deserialize_current().expect("a document");
    *document.get_datetime("now").expect("a time")
}

#[tokio::test]
async fn a_servers_clock_is_shifted_while_it_runs() {
    let options = Options { faketime: true, ..Options::replica_set() };
    let server = Mongod::start(options).await;
    let database = server.database();
    let client = server.client().await;
    let before = hello(&client).await;
    for (shift, hour) in [(0, 0), (3600, 1), (-3600, -1), (0, 0)] {
        server.clock().shift_seconds(shift);
        let ahead = server_now(&database).await.timestamp_millis() - DateTime::now().timestamp_millis();
        let off = ahead - hour * 3_600_000;
        assert!(off.abs() < 30_000, "shifted by {shift} s, but {ahead} ms ahead");
    }
    let after = hello(&client).await;
    assert_eq!(after.get("electionId"), before.get("electionId"), "an election because of a shift");
}

#[tokio::test]
async fn a_server_of_ones_own_asks_for_a_password() {
    let server = Mongod::start(Options {
        auth: true,
        parameters: vec![("cursorTimeoutMillis".into(), "12345".into())],
        ..Options::replica_set()
    })
    .await;
    let admin = server.client().await.database("admin");
    let ask = doc! { "getParameter": 1, "cursorTimeoutMillis": 1 };
    let reply = admin.run_command(ask.clone()).await.expect("with a password");
    assert_eq!(reply.get_i64("cursorTimeoutMillis").ok(), Some(12345));
    let open = format!("mongodb://{}/?directConnection=true", server.address());
    let stranger = Client::with_uri_str(open).await.expect("a client");
    let refused = stranger.database("admin").run_command(ask).await.expect_err("no password");
    assert!(matches!(*refused.kind, ErrorKind::Command(ref error) if error.code == 13), "{refused}");
    let raw = server.database().raw().await;
    raw.collection("things").insert_one(doc! {}).await.expect("the database's uri has the password");
}

#[tokio::test]
async fn a_killed_server_comes_back_with_its_data() {
    let mut server = Mongod::start(Options::default()).await;
    let database = server.database();
    let things = database.raw().await.collection::<Document>("things");
    let durable = mongodb::options::WriteConcern::builder().journal(true).build();
    things.insert_one(doc! {}).write_concern(durable).await.expect("insert");
    server.kill();
    assert!(!server.is_running());
    server.restart().await;
    let things = database.raw().await.collection::<Document>("things");
    assert_eq!(things.count_documents(doc! {}).await.expect("count"), 1);
    server.stop();
}

#[tokio::test]
async fn three_members_elect_a_successor() {
    let mut set = ReplicaSet::start(3).await;
    let things = set.database().raw().await.collection::<Document>("things");
    things.insert_one(doc! { "_id": 1 }).await.expect("insert");
    let killed = set.kill_primary().await;
    let second = set.primary().await;
    assert_ne!(second, killed);
    set.restart(killed).await;
    let stepped_down = set.step_down().await;
    let third = set.primary().await;
    assert_ne!(third, stepped_down);
    things.insert_one(doc! { "_id": 2 }).await.expect("insert by the same client");
}

fn code_of(error: &mongodb::error::Error) -> Option<i32> {
    match *error.kind {
        ErrorKind::Command(ref error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(ref error)) => Some(error.code),
        ErrorKind::InsertMany(ref error) => Some(error.write_concern_error.as_ref()?.code),
        _ => None,
    }
}

#[tokio::test]
async fn a_failing_command_fails_until_it_is_switched_off() {
    let database = database();
    let once = database.raw().await;
    let things = once.collection::<Document>("things");
    let ping = || async { once.run_command(doc! { "ping": 1 }).await };

    let fault = database.fail_command().commands(&["ping"]).error_code(2).labels(&["Odd"]).on().await;
    let error = ping().await.expect_err("fails");
    assert_eq!(code_of(&error), Some(2));
    assert!(error.contains_label("Odd"));
    let bystander = support::database::database().raw().await;
    bystander.run_command(doc! { "ping": 1 }).await.expect("others are spared");
    assert_eq!(fault.off().await, 1, "commands that met the fault");
    ping().await.expect("switched off");

    let fault = database.fail_command().commands(&["ping"]).error_code(2).times(1).on().await;
    ping().await.expect_err("fails once");
    ping().await.expect("and no more");
    fault.off().await;

    let fault = database.fail_command().commands(&["insert"]).write_concern_error(64).on().await;
    let error = things.insert_one(doc! { "_id": 1 }).await.expect_err("fails");
    assert_eq!(code_of(&error), Some(64));
    drop(fault);
    assert_eq!(things.count_documents(doc! {}).await.expect("count"), 1, "executed all the same");

    let fault = database.fail_command().commands(&["ping"]).close_connection().on().await;
    let error = ping().await.expect_err("fails");
    assert!(matches!(*error.kind, ErrorKind::Io(_)), "{error}");
    fault.off().await;

    let fault = database.fail_command().commands(&["ping"]).block(SILENCE).times(1).on().await;
    let start = Instant::now();
    ping().await.expect("late, but good");
    assert!(start.elapsed() >= SILENCE);
    drop(fault);
    ping().await.expect("switched off by drop");
}

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
