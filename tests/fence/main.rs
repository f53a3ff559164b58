//! Transactions whose commit depends on a lease: on a real replica set, with processes that are stopped in the middle.
//!
//! `transactions` is what a user of fences relies on, `stopped` what the fence is for.
#![cfg(feature = "mongo")]

#[path = "../support/mod.rs"]
mod support;

mod probe;
mod stopped;
mod transactions;

use std::time::Duration;

use lockhouse::mongodb::bson::{Document, doc};
use lockhouse::mongodb::{Client, ClientSession, Collection};
use lockhouse::{Coordinator, LeaseTiming};

use crate::support::database::TestDatabase;
use crate::support::poll::eventually;

/// For what should happen soon, on a machine that is busy with other tests.
const BOUND: Duration = Duration::from_secs(60);

/// Short, and long enough for a busy machine.
const TIMING: LeaseTiming = LeaseTiming {
    refresh_interval: Duration::from_secs(1),
    stale_multiplier: 4,
    poll_initial: Duration::from_millis(5),
    poll_max: Duration::from_millis(50),
};

async fn connect(uri: &str, label: &str) -> Coordinator {
    let coordinator =
        eventually(BOUND, "to connect", || Coordinator::builder(uri).unwrap().timing(TIMING).label(label).connect())
            .await;
    eventually(BOUND, "the layout to be made", || coordinator.init()).await;
    coordinator
}

/// The user's own client, session and data.
struct User {
    client: Client,
    data: Collection<Document>,
    leases: Collection<Document>,
}

impl User {
    async fn of(database: &TestDatabase) -> User {
        let client = database.client().await;
        let own = client.database(database.name());
        // A transaction makes no collection on every server.
        let _ = own.create_collection("data").await;
        User { data: own.collection("data"), leases: own.collection("lockhouse"), client }
    }

    async fn session(&self) -> ClientSession {
        self.client.start_session().await.unwrap()
    }

    async fn written(&self) -> u64 {
        self.data.count_documents(doc! {}).await.unwrap()
    }

    async fn fences(&self) -> u64 {
        self.leases.count_documents(doc! { "_id": { "$gte": "fence/", "$lt": "fence0" } }).await.unwrap()
    }
}
