//! The statements against a real server.
//!
//! | file | what |
//! | --- | --- |
//! | `protocol` | each method as the engine uses it, on a replica set and on a standalone |
//! | `shapes` | malformed documents, peers' documents, texts that look like paths, exact pulses |
//! | `faults` | errors that the server was told to give, late duplicates, dropped calls |
//! | `stores` | stores that are refused, and users with few privileges |
//! | `history` | the audit trail |
//! | `speed` | figures, on request |

mod faults;
mod history;
mod protocol;
mod shapes;
mod speed;
mod stores;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bson::{Document, doc};
use mongodb::Collection;

use super::*;
use crate::holder::Holder;
use crate::store_url::{MongoUrl, StoreUrl};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    ReplicaSet,
    Standalone,
}

const BOTH: [Server; 2] = [Server::ReplicaSet, Server::Standalone];

impl Server {
    fn uri(self) -> String {
        let variable = match self {
            Server::ReplicaSet => "LOCKHOUSE_TEST_MONGODB_URI",
            Server::Standalone => "LOCKHOUSE_TEST_STANDALONE_URI",
        };
        std::env::var(variable)
            .unwrap_or_else(|_| panic!("{variable} is not set; run the tests with scripts/test, which starts servers"))
    }
}

/// A name that no other test uses, in this run or beside it.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("lh{}x{next}x{}", std::process::id(), fastrand::u32(..))
}

/// The connection string with this database and one more option.
fn url(uri: &str, database: &str, option: &str) -> MongoUrl {
    let (hosts, options) = uri.split_once('?').unwrap_or((uri, ""));
    let (scheme, hosts) = hosts.split_once("://").unwrap();
    let hosts = hosts.split('/').next().unwrap();
    let text = [option, options].into_iter().filter(|option| !option.is_empty()).collect::<Vec<_>>().join("&");
    let text = format!("{scheme}://{hosts}/{database}?{text}");
    match text.trim_end_matches('?').parse().unwrap() {
        StoreUrl::Mongo(url) => url,
        other => panic!("{other:?}"),
    }
}

/// A store in a database of its own, which is dropped at the end. The application name is unique, so that
/// a fail point can be meant for it alone.
struct Store {
    mongo: Mongo,
    server: Server,
    app: String,
}

impl std::ops::Deref for Store {
    type Target = Mongo;
    fn deref(&self) -> &Mongo {
        &self.mongo
    }
}

impl Store {
    async fn open(server: Server, collection: Option<&str>) -> Store {
        let app = unique();
        let url = url(&server.uri(), &app, &format!("appName={app}"));
        let mongo = Mongo::connect(&url, collection).await.unwrap();
        Store { mongo, server, app }
    }

    /// A store with its layout, at generation 0.
    async fn ready(server: Server) -> Store {
        let store = Store::open(server, None).await;
        assert_eq!(store.init().await.unwrap(), Init::Made);
        store
    }

    fn documents(&self) -> Collection<Document> {
        self.database.collection(self.collection.name())
    }

    async fn put(&self, document: Document) {
        self.documents().insert_one(document).await.unwrap();
    }

    async fn get(&self, id: &str) -> Option<Document> {
        self.documents().find_one(doc! { "_id": id }).await.unwrap()
    }

    async fn set(&self, id: &str, update: Document) {
        let updated = self.documents().update_one(doc! { "_id": id }, update).await;
        assert_eq!(updated.unwrap().matched_count, 1);
    }

    async fn only(&self, id: &str) -> Record<Pulse> {
        let look = self.look().await.unwrap();
        look.leases.into_iter().find(|lease| lease.id == id).unwrap()
    }

    async fn close(self) {
        self.database.drop().await.unwrap();
    }
}

fn key(id: &str) -> LeaseKey {
    LeaseKey { id: id.to_owned(), owner: uuid::Uuid::new_v4().to_string() }
}

fn writer() -> NewLease {
    lease(&format!("lease/{}", uuid::Uuid::new_v4()))
}

fn fsck() -> NewLease {
    lease(FSCK_ID)
}

fn lease(id: &str) -> NewLease {
    NewLease {
        key: key(id),
        refresh_interval: Duration::from_secs(2),
        stale_after: Duration::from_secs(8),
        reason: None,
        holder: Holder::here(None),
    }
}

/// A line of the audit trail in which a path would be seen.
fn line(what: &'static str) -> HistoryLine {
    HistoryLine {
        name: crate::entropy::unique(),
        what,
        lease: Some("$owner".to_owned()),
        holder: Holder::here(Some("$$ROOT\0\n".to_owned())),
        reason: Some("$$FOO".to_owned()),
    }
}
