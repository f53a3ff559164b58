//! Servers, databases, clocks and the server's own faults.

use std::time::{Duration, Instant};

use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::{Client, Collection};

use crate::support;
use crate::support::database::{TestDatabase, database, standalone_database};
use crate::support::mongod::{Mongod, Options};
use crate::support::replica_set::ReplicaSet;

/// Clearly longer than an answer takes.
const WAIT: Duration = Duration::from_millis(300);

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

    let fault = database.fail_command().commands(&["ping"]).block(WAIT).times(1).on().await;
    let start = Instant::now();
    ping().await.expect("late, but good");
    assert!(start.elapsed() >= WAIT);
    drop(fault);
    ping().await.expect("switched off by drop");
}
