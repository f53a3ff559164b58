//! Together with httk-store, the Python library that shares the wire format: a real store that it made, its
//! own code in a process of its own, and us on its collection.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `exclusion` | each side's leases hold off the other's, drain them, and end with them; both at once in a tangle |
//! | `dead` | what is left behind by a dead one of either side: who is spared, who is cleared, who notices |
//! | `store` | a store on which both are at work; which coordinators may be there at all |
//! | `agent` | the process |
#![cfg(feature = "mongo")]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod dead;
mod exclusion;
mod store;

use std::time::Duration;

use lockhouse::{Coordinator, CoordinatorBuilder, Error, LeaseInfo, Locked};
use mongodb::bson::{Document, doc};

use agent::{Agent, Refusal};
use support::database::{TestDatabase, database};
use support::poll::eventually;

/// httk-store's collection.
const SHARED: &str = "_httk_store_metadata";
const BOUND: Duration = Duration::from_secs(30);

/// A database with a store that httk-store made, the agent that made it, and a coordinator.
struct Scene {
    agent: Agent,
    ours: Coordinator,
    database: TestDatabase,
}

impl Scene {
    async fn new() -> Scene {
        Scene::on(database()).await
    }

    async fn on(database: TestDatabase) -> Scene {
        let agent = Agent::with_store(&database).await;
        let ours = builder(&database.uri()).connect().await.expect("connect to httk-store's collection");
        Scene { agent, ours, database }
    }

    /// A document of the shared collection as it is.
    async fn stored(&self, id: &str) -> Option<Document> {
        let collection = self.database.raw().await.collection(SHARED);
        collection.find_one(doc! { "_id": id }).await.expect("find")
    }
}

/// A coordinator on httk-store's collection that is about to connect.
fn builder(uri: &str) -> CoordinatorBuilder {
    Coordinator::builder(uri).expect("a store URL").collection(SHARED).label("ours")
}

/// The fsck lease that a refusal names.
#[track_caller]
fn fsck_held(refused: &Error) -> &LeaseInfo {
    match refused {
        Error::StoreLocked(locked) => match &locked.cause {
            Locked::FsckHeld { lease, .. } => lease,
            other => panic!("another reason: {other:?}"),
        },
        other => panic!("another error: {other}"),
    }
}

/// The leases that a refusal spared because they may be a living peer's.
#[track_caller]
fn spared(refused: &Error) -> &[LeaseInfo] {
    match refused {
        Error::StoreLocked(locked) => match &locked.cause {
            Locked::NotDead { leases } => leases,
            other => panic!("another reason: {other:?}"),
        },
        other => panic!("another error: {other}"),
    }
}

/// A lease of httk-store as we show it: a peer's, of whom nothing is known.
#[track_caller]
fn assert_peers(lease: &LeaseInfo) {
    assert!(lease.peer, "{lease:?}");
    assert!(lease.holder.is_none() && lease.phase.is_none() && lease.reason.is_none(), "{lease:?}");
    assert!(lease.to_string().contains("a peer"), "{lease}");
}

/// httk-store refused because a lease is in its way.
#[track_caller]
fn assert_locked(refusal: &Refusal, because: &str) {
    assert_eq!(refusal.class, "StoreLockedError", "{refusal:?}");
    assert!(refusal.message.contains(because), "{refusal:?}");
}
