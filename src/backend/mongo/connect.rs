//! Connecting: which options are forced whatever the connection string says, and what kind of deployment
//! answers.
//!
//! A lease is only as good as its write concern: one that a majority does not have can be rolled back while
//! its holder writes. Hence majority and journal, reads of majority data from the primary, and retryable
//! writes, always.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use mongodb::Client;
use mongodb::options::{Acknowledgment, ClientOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern};

use crate::backend::{Answer, BackendError, Fault, Namespace};
use crate::error::Error;
use crate::store_url::{MongoUrl, StoreName};

use super::Mongo;
use super::checks;
use super::faults::Faults;
use super::history::Untrimmed;
use super::scrub::Scrub;

/// The collection of leases unless another is named.
pub(super) const OWN_COLLECTION: &str = "lockhouse";
/// httk-store's collection: named, a Rust process and the Python library coordinate.
pub(super) const PEER_COLLECTION: &str = "_httk_store_metadata";

/// How long the driver looks for a primary: about as long as an election takes. Calls of the engine end
/// earlier by their own limits; this one is what a person waits for when nothing answers.
const SELECTION: Duration = Duration::from_secs(10);
/// How long a connection may take, the monitoring ones included: a server that swallows packets has to be
/// given up well before a lease's deadline.
const CONNECTING: Duration = Duration::from_secs(3);
/// How often a server is looked at that does not report by itself.
const MONITORING: Duration = Duration::from_secs(2);
/// One thread speaks to the server; more connections than this would only wait for each other.
const POOL: u32 = 16;

/// What kind of deployment answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topology {
    /// No transactions, no retryable writes, no majority.
    Standalone,
    /// A replica set, or the routers of a sharded cluster.
    Replicated {
        /// Through routers.
        sharded: bool,
    },
}

/// Everywhere the same: confirmed by a majority, in the journal, without a time limit of its own.
pub(super) fn durable() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build()
}

impl Mongo {
    /// Connects, and learns what answers. `collection` is what the user named, if anything.
    pub(crate) async fn connect(url: &MongoUrl, collection: Option<&str>) -> Result<Mongo, Error> {
        let named = collection.is_some();
        let collection = collection.unwrap_or(OWN_COLLECTION);
        let name = StoreName::new(format!("{url}.{collection}"));
        match Mongo::open(url, collection, named, &name).await {
            Ok(mongo) => Ok(mongo),
            Err(error) => Err(error.at(&name)),
        }
    }

    async fn open(url: &MongoUrl, collection: &str, named: bool, name: &StoreName) -> Answer<Mongo> {
        let faults = Faults::new(Scrub::new(url.expose()), url.database());
        checks::collection_name(url.database(), collection)?;
        let mut options = ClientOptions::parse(url.expose()).await.map_err(|error| faults.url(error))?;
        force(&mut options);
        let direct = options.direct_connection == Some(true);
        let client = Client::with_options(options).map_err(|error| faults.url(error))?;
        let database = client.database(url.database());
        let hello = database.run_command(doc! { "hello": 1 }).await.map_err(|error| faults.look(error))?;
        if !hello.get_bool("isWritablePrimary").unwrap_or(false) {
            return Err(match direct {
                true => BackendError::new(
                    Fault::Invalid,
                    "this is a direct connection to a member that is not the primary; name all members and the replicaSet in the store URL, and leave directConnection out",
                ),
                false => BackendError::new(Fault::Busy, "the primary has just stepped down; try again"),
            });
        }
        let sharded = hello.get_str("msg").ok() == Some("isdbgrid");
        let topology = if sharded || hello.get_str("setName").is_ok() {
            Topology::Replicated { sharded }
        } else {
            Topology::Standalone
        };
        Ok(Mongo {
            name: name.clone(),
            namespace: Arc::new(Namespace { database: url.database().to_owned(), collection: collection.to_owned() }),
            collection: database.collection(collection),
            database,
            topology,
            named,
            faults: Rc::new(faults),
            departures: RefCell::default(),
            arrivals: RefCell::default(),
            untrimmed: Untrimmed::default(),
        })
    }
}

/// Sets what no connection string may change, and bounds what it may.
fn force(options: &mut ClientOptions) {
    options.write_concern = Some(durable());
    options.read_concern = Some(ReadConcern::majority());
    // A plain primary: without tags and staleness, which another preference in the URI may have brought.
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    options.retry_writes = Some(true);
    options.retry_reads = Some(true);
    let at_most = |set: &mut Option<Duration>, bound: Duration| {
        *set = Some(set.map_or(bound, |set| set.min(bound)));
    };
    at_most(&mut options.server_selection_timeout, SELECTION);
    at_most(&mut options.connect_timeout, CONNECTING);
    at_most(&mut options.heartbeat_freq, MONITORING);
    let pool = options.max_pool_size.filter(|size| *size > 0);
    options.max_pool_size = Some(pool.map_or(POOL, |size| size.min(POOL)));
    options.min_pool_size = options.min_pool_size.map(|size| size.min(POOL));
    options.app_name.get_or_insert_with(|| "lockhouse".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn forced(uri: &str) -> ClientOptions {
        let mut options = ClientOptions::parse(uri).await.unwrap();
        force(&mut options);
        options
    }

    #[tokio::test]
    async fn no_connection_string_weakens_a_lease() {
        let options = forced(
            "mongodb://h/db?w=1&journal=false&wtimeoutMS=5&readPreference=secondary&maxStalenessSeconds=120\
             &readPreferenceTags=dc:ny&readConcernLevel=local&retryWrites=false&retryReads=false\
             &serverSelectionTimeoutMS=600000&connectTimeoutMS=600000",
        )
        .await;
        assert_eq!(options.write_concern, Some(durable()));
        assert_eq!(durable().w_timeout, None);
        assert_eq!(options.read_concern, Some(ReadConcern::majority()));
        assert!(matches!(options.selection_criteria, Some(SelectionCriteria::ReadPreference(ReadPreference::Primary))));
        assert_eq!((options.retry_writes, options.retry_reads), (Some(true), Some(true)));
        assert_eq!(options.server_selection_timeout, Some(SELECTION));
        assert_eq!(options.connect_timeout, Some(CONNECTING));
        assert_eq!(options.max_pool_size, Some(POOL));
        assert_eq!(options.app_name.as_deref(), Some("lockhouse"));
    }

    #[tokio::test]
    async fn what_is_stricter_or_a_name_stays() {
        let options =
            forced("mongodb://h/db?serverSelectionTimeoutMS=50&connectTimeoutMS=60&maxPoolSize=3&appName=shop").await;
        assert_eq!(options.server_selection_timeout, Some(Duration::from_millis(50)));
        assert_eq!(options.connect_timeout, Some(Duration::from_millis(60)));
        assert_eq!(options.max_pool_size, Some(3));
        assert_eq!(options.app_name.as_deref(), Some("shop"));
    }
}
