//! What the fault tests share: timings, both kinds of server, looks behind the product's back.

use std::time::{Duration, Instant};

use futures::TryStreamExt;
use lockhouse::{Coordinator, CoordinatorBuilder, Error, Lease, LeaseTiming, Locked, LossReason};
use mongodb::Collection;
use mongodb::bson::{Document, doc};

use crate::support::database::{TestDatabase, database, standalone_database};
use crate::support::poll::eventually;
use crate::support::proxy::Proxy;

/// For what should happen at once, on a machine that is busy with other tests.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// Short, and long enough for a busy machine.
pub(crate) const TIMING: LeaseTiming = LeaseTiming {
    refresh_interval: Duration::from_secs(1),
    stale_multiplier: 3,
    poll_initial: Duration::from_millis(5),
    poll_max: Duration::from_millis(50),
};

/// For tests that wait for no stale age: each answer has all the time that it needs.
pub(crate) const PATIENT: LeaseTiming = LeaseTiming {
    refresh_interval: Duration::from_secs(3),
    stale_multiplier: 3,
    poll_initial: Duration::from_millis(5),
    poll_max: Duration::from_millis(100),
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Server {
    ReplicaSet,
    Standalone,
}

impl Server {
    pub(crate) fn database(self) -> TestDatabase {
        match self {
            Server::ReplicaSet => database(),
            Server::Standalone => standalone_database(),
        }
    }
}

pub(crate) fn builder(uri: &str) -> CoordinatorBuilder {
    Coordinator::builder(uri).unwrap().timing(TIMING)
}

/// A coordinator of its own, as another process would have it.
pub(crate) async fn connect(uri: &str, label: &str) -> Coordinator {
    eventually(BOUND, "to connect", || builder(uri).label(label).connect()).await
}

/// The same on a store that was made usable.
pub(crate) async fn first(uri: &str, label: &str) -> Coordinator {
    let coordinator = connect(uri, label).await;
    eventually(BOUND, "the layout to be made", || coordinator.init()).await;
    coordinator
}

pub(crate) async fn collection(database: &TestDatabase) -> Collection<Document> {
    database.raw().await.collection("lockhouse")
}

/// Every lease document as it is stored.
pub(crate) async fn leases(collection: &Collection<Document>) -> Vec<Document> {
    let leases = doc! { "_id": { "$gte": "lease/", "$lt": "lease0" } };
    collection.find(leases).await.unwrap().try_collect().await.unwrap()
}

/// Waits until no lease document is left.
pub(crate) async fn until_none(collection: &Collection<Document>) {
    eventually(BOUND, "no lease document to be left", || async {
        let left = leases(collection).await;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

pub(crate) async fn generation(collection: &Collection<Document>) -> i64 {
    let layout = collection.find_one(doc! { "_id": "layout" }).await.unwrap().unwrap();
    layout.get_i64("generation").or(layout.get_i32("generation").map(i64::from)).unwrap()
}

/// The document of a writer that died so many seconds ago by the server's clock.
pub(crate) async fn dead_writer(collection: &Collection<Document>, id: &str, seconds: i64) {
    let owner = format!("owner of {id}");
    let document = doc! {
        "kind": "writer",
        "owner": &owner,
        "heartbeat": { "$dateSubtract": { "startDate": "$$NOW", "unit": "second", "amount": seconds } },
        "lockhouse": {
            "for": &owner, "version": 1, "beats": 3_i64, "acquired": "$$NOW",
            "refresh_interval_ms": 250, "stale_after_ms": 1000,
            "holder": { "host": "gone", "pid": 1, "user": "nobody", "program": "died" },
        },
    };
    collection.update_one(doc! { "_id": id }, vec![doc! { "$set": document }]).upsert(true).await.unwrap();
}

/// Waits until a lease is lost for good, whatever its deadline did before.
pub(crate) async fn finally_lost(lease: &Lease) -> LossReason {
    eventually(BOUND, "the lease to be lost for good", || async {
        match lease.check() {
            Err(Error::LeaseLost(lost)) if lost.why != LossReason::Deadline => Ok(lost.why),
            other => Err(other),
        }
    })
    .await
}

/// A confirmed refresh, on a machine that may be too busy for one at once.
pub(crate) async fn beat(lease: &Lease) {
    eventually(BOUND, "a refresh to be confirmed", || lease.refresh_heartbeat(true)).await;
}

#[track_caller]
pub(crate) fn locked(error: Error) -> Locked {
    match error {
        Error::StoreLocked(locked) => locked.cause,
        other => panic!("not StoreLocked: {other:?}"),
    }
}

/// What was sent through a proxy, but for what the driver sends by itself to know the server.
pub(crate) fn sent(proxy: &Proxy) -> Vec<String> {
    const MONITORING: [&str; 5] = ["hello", "isMaster", "ismaster", "ping", "endSessions"];
    proxy.commands().into_iter().filter(|name| !MONITORING.contains(&name.as_str())).collect()
}

/// Ends the test when something takes longer than everything here should.
pub(crate) async fn soon<T>(what: impl IntoFuture<Output = T>) -> T {
    let start = Instant::now();
    tokio::time::timeout(BOUND, what.into_future())
        .await
        .unwrap_or_else(|_| panic!("not done after {:?}", start.elapsed()))
}

/// Everything that an error says, to people and to programmers, causes included.
pub(crate) fn said(error: &Error) -> String {
    let mut said = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        said.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    said
}
