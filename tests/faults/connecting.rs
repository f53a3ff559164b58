//! What goes wrong at the door, and what a user may do with which privileges. Errors name the next step and
//! no password.

use std::time::{Duration, Instant};

use lockhouse::{Coordinator, Error, ErrorKind};
use mongodb::bson::{Document, doc};

use crate::common::{
    Server, TIMING, beat, builder, collection, connect, dead_writer, first, leases, locked, said, soon,
};
use crate::support::database::TestDatabase;
use crate::support::mongod::{Mongod, Options};
use crate::support::uri::Uri;

const PASSWORD: &str = "sw0rdf1sh%2Fsecret";
const DECODED: &str = "sw0rdf1sh/secret";

async fn refused(uri: &str) -> Error {
    let start = Instant::now();
    let error = builder(uri).connect().await.map(drop).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(25), "refused only after {:?}", start.elapsed());
    says_nothing_secret(&said(&error));
    error
}

fn says_nothing_secret(text: &str) {
    for secret in [PASSWORD, DECODED, "sw0rdf1sh"] {
        assert!(!text.contains(secret), "the password is in: {text}");
    }
}

/// The same store for another user.
fn as_user(server: &Mongod, database: &TestDatabase, user: &str) -> String {
    let uri = format!("mongodb://{user}:{PASSWORD}@{}/{}", server.address(), database.name());
    Uri::parse(&uri).with_option("authSource", database.name()).with_option("replicaSet", "lockhouse").to_string()
}

async fn with_users(server: &Mongod) -> TestDatabase {
    let database = server.database();
    let raw = database.raw().await;
    for role in ["read", "readWrite"] {
        let user = doc! { "createUser": role, "pwd": DECODED, "roles": [{ "role": role, "db": database.name() }] };
        raw.run_command(user).await.unwrap();
    }
    database
}

#[tokio::test]
async fn privileges_decide_what_a_user_may_do() {
    let server = Mongod::start(Options { auth: true, ..Options::replica_set() }).await;
    let database = with_users(&server).await;
    let collection = collection(&database).await;

    let wrong = as_user(&server, &database, "read").replace(PASSWORD, "sw0rdf1sh-wrong");
    let error = refused(&wrong).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.to_string().contains("password"), "{error}");
    assert!(!error.is_retryable());

    // readWrite on the database is enough for everything.
    let writing = as_user(&server, &database, "readWrite");
    let coordinator = first(&writing, "writes").await;
    let writer = coordinator.acquire_writer().await.unwrap();
    beat(&writer).await;
    writer.release().await.unwrap();
    coordinator.acquire_fsck().reason("check").await.unwrap().release().await.unwrap();
    dead_writer(&collection, "lease/dead", 60).await;
    assert_eq!(soon(coordinator.prune_stale_writers()).await.unwrap().cleared.len(), 1);
    dead_writer(&collection, "lease/fsck", 60).await;
    assert_eq!(soon(coordinator.clear_stale_lock()).await.unwrap().cleared.len(), 1);
    dead_writer(&collection, "lease/dead", 60).await;
    soon(coordinator.acquire_fsck().force(true)).await.unwrap().release().await.unwrap();
    coordinator.record("noted", None, None).await.unwrap();

    // read is enough for looking.
    dead_writer(&collection, "lease/dead", 60).await;
    let reading = connect(&as_user(&server, &database, "read"), "reads").await;
    let status = reading.status().await.unwrap();
    assert_eq!((status.generation, status.writers.len()), (Some(2), 1));
    assert!(reading.history().await.unwrap().iter().any(|line| line.what == "granted"));
    assert_eq!(reading.prune_stale_writers().dry_run(true).await.unwrap().cleared.len(), 1);
    assert!(reading.clear_stale_lock().dry_run(true).await.unwrap().cleared.is_empty());
    for error in [
        reading.acquire_writer().await.map(drop).unwrap_err(),
        reading.acquire_fsck().await.map(drop).unwrap_err(),
        reading.prune_stale_writers().await.map(drop).unwrap_err(),
        reading.init().await.map(drop).unwrap_err(),
        reading.record("noted", None, None).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(error.to_string().contains("readWrite"), "{error}");
        says_nothing_secret(&said(&error));
    }
    assert_eq!(leases(&collection).await.len(), 1, "a look left something behind");

    // Nor is a password in anything else that is shown or stored.
    let shown = format!("{coordinator:?} {:?} {} {status:?}", builder(&writing), coordinator.store());
    says_nothing_secret(&shown);
    let stored: Vec<Document> = {
        use futures::TryStreamExt;
        collection.find(doc! {}).await.unwrap().try_collect().await.unwrap()
    };
    says_nothing_secret(&format!("{stored:?}"));

    // Privileges may go while a lease is held.
    let writer = coordinator.acquire_writer().await.unwrap();
    let grant = doc! { "updateUser": "readWrite", "roles": [{ "role": "read", "db": database.name() }] };
    database.raw().await.run_command(grant).await.unwrap();
    let start = Instant::now();
    let lost = soon(writer.lost()).await;
    assert!(start.elapsed() < TIMING.stale_after() + Duration::from_secs(1));
    assert_eq!(lost.kind(), ErrorKind::LeaseLost);
    let error = soon(writer.release()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    says_nothing_secret(&said(&error));
}

#[tokio::test]
async fn whoever_cannot_be_reached_is_unavailable() {
    let port = crate::support::mongod::free_port();
    let nobody = format!("mongodb://user:{PASSWORD}@127.0.0.1:{port}/shop?serverSelectionTimeoutMS=1000");
    let error = refused(&nobody).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_retryable());
    assert!(error.to_string().contains(&port.to_string()), "{error}");

    let unknown = format!("mongodb://user:{PASSWORD}@no-such-host.invalid/shop?serverSelectionTimeoutMS=1000");
    assert_eq!(refused(&unknown).await.kind(), ErrorKind::Unavailable);

    // Accepts and never answers.
    let database = crate::common::Server::ReplicaSet.database();
    let proxy = database.proxy();
    proxy.blackhole();
    let error = refused(&database.uri_through(&proxy)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");

    // A set without a primary: its only member was never told what it belongs to.
    let server = Mongod::start_bare(Options::replica_set()).await;
    let orphan = format!("mongodb://{}/shop?replicaSet=lockhouse&serverSelectionTimeoutMS=1000", server.address());
    assert_eq!(refused(&orphan).await.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn stores_that_cannot_be_meant_are_invalid() {
    let database = crate::common::Server::ReplicaSet.database();
    let coordinator = connect(&database.uri(), "one").await;
    let error = coordinator.acquire_writer().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("init") && error.to_string().contains(database.name()), "{error}");
    coordinator.init().await.unwrap();
    coordinator.acquire_writer().await.unwrap().release().await.unwrap();
    // A mistyped name is another database: without a layout, and no lock on this one.
    let mistyped = database.uri().replace(database.name(), &format!("{}x", database.name()));
    let error = connect(&mistyped, "two").await.acquire_fsck().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);

    for bad in ["mongodb://h", "mongodb://h/", "mongodb://h/a.b", "ftp://h/db"] {
        let error = Coordinator::builder(bad).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
        says_nothing_secret(&said(&error));
    }
    // A character that should have been encoded: the driver refuses, and no part of it is shown.
    assert_eq!(refused("mongodb://user:sw0rdf1sh/secret@h/db").await.kind(), ErrorKind::Invalid);
    let odd_option = format!("{}&authMechanism=PIGEON", database.uri());
    assert_eq!(refused(&odd_option).await.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_mistyped_database_is_refused_and_left_as_it_is() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        let raw = database.raw().await;
        let nothing_there = async || raw.list_collection_names().await.unwrap().is_empty();
        let coordinator = connect(&database.uri(), "mistyped").await;
        for error in [
            coordinator.acquire_writer().await.map(drop).unwrap_err(),
            coordinator.acquire_writer().wait(TIMING.refresh_interval).await.map(drop).unwrap_err(),
            coordinator.acquire_fsck().await.map(drop).unwrap_err(),
            coordinator.acquire_fsck().force(true).await.map(drop).unwrap_err(),
            coordinator.record("noted", None, None).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
            assert!(error.to_string().contains("lockhouse init"), "{error}");
        }
        assert!(coordinator.clear_stale_lock().await.unwrap().cleared.is_empty());
        assert!(coordinator.prune_stale_writers().await.unwrap().cleared.is_empty());
        assert!(nothing_there().await, "{server:?}");
        // It was the right one after all.
        coordinator.init().await.unwrap();
        coordinator.acquire_writer().await.unwrap().release().await.unwrap();
        assert!(!nothing_there().await);
        coordinator.shutdown().await;
    }
}

#[tokio::test]
async fn a_store_of_the_peer_must_be_named() {
    let database = crate::common::Server::ReplicaSet.database();
    let theirs = database.raw().await.collection::<Document>("_httk_store_metadata");
    theirs.insert_one(doc! { "_id": "layout", "generation": 3 }).await.unwrap();
    let error = refused(&database.uri()).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("--collection _httk_store_metadata"), "{error}");
    let named = builder(&database.uri()).collection("_httk_store_metadata").connect().await.unwrap();
    assert_eq!(named.status().await.unwrap().generation, Some(3));
    let writer = named.acquire_writer().await.unwrap();
    assert_eq!(writer.generation(), 3);
    writer.release().await.unwrap();
    let own = builder(&database.uri()).collection("lockhouse").connect().await.unwrap();
    own.init().await.unwrap();
    // Longer than the peer waits before it calls anybody dead.
    let long = lockhouse::LeaseTiming::for_failover();
    let error = builder(&database.uri()).collection("_httk_store_metadata").timing(long).connect().await;
    assert_eq!(error.map(drop).unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn nothing_depends_on_the_ttl_monitor() {
    let parameters = vec![("ttlMonitorEnabled".to_owned(), "false".to_owned())];
    let server = Mongod::start(Options { parameters, ..Options::replica_set() }).await;
    let database = server.database();
    let coordinator = first(&database.uri(), "one").await;
    let collection = collection(&database).await;
    coordinator.acquire_writer().await.unwrap().release().await.unwrap();
    coordinator.acquire_fsck().await.unwrap().release().await.unwrap();
    assert!(leases(&collection).await.is_empty());
    dead_writer(&collection, "lease/dead", 60).await;
    let refused = soon(connect(&database.uri(), "two").await.acquire_fsck()).await.map(drop).unwrap_err();
    locked(refused);
    assert_eq!(soon(coordinator.prune_stale_writers()).await.unwrap().cleared.len(), 1);

    // And an index of somebody's that would let the server delete leases is refused before the first one.
    let expiring = doc! { "createIndexes": "lockhouse", "indexes": [
        { "key": { "heartbeat": 1 }, "name": "expiry", "expireAfterSeconds": 60 },
    ] };
    database.raw().await.run_command(expiring).await.unwrap();
    let late = connect(&database.uri(), "late").await;
    let error = late.acquire_writer().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("expiry"), "{error}");
}
