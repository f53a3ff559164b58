//! The same calls by the bare driver: as many, of the same kind, on documents of the same shape, with the same
//! write concern and in one session, on a collection of their own in the same database.

use std::time::{Duration, Instant};

use futures::StreamExt;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::options::{Acknowledgment, ClientOptions, ReadConcern, ReturnDocument, WriteConcern};
use mongodb::{Client, ClientSession, Collection};

use crate::support::database::TestDatabase;
use crate::support::poll::eventually;

/// Our collection, to fill it and to look behind the scenes.
const OURS: &str = "lockhouse";
const BATCH: u32 = 1_000_000;
const CHUNK: usize = 5_000;

/// One lease of the driver's.
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) owner: String,
}

pub(crate) struct Lease {
    key: Key,
    session: ClientSession,
}

impl AsRef<Key> for Lease {
    fn as_ref(&self) -> &Key {
        &self.key
    }
}

impl AsRef<Key> for Key {
    fn as_ref(&self) -> &Key {
        self
    }
}

pub(crate) struct Driver {
    client: Client,
    collection: Collection<RawDocumentBuf>,
    ours: Collection<RawDocumentBuf>,
}

impl Driver {
    pub(crate) async fn new(database: &TestDatabase) -> Driver {
        let mut options = ClientOptions::parse(database.uri()).await.expect("a connection string");
        options.write_concern = Some(durable());
        options.read_concern = Some(ReadConcern::majority());
        let client = Client::with_options(options).expect("options");
        let database = client.database(database.name());
        let driver = Driver {
            client: client.clone(),
            collection: database.collection("driver"),
            ours: database.collection(OURS),
        };
        let layout = doc! { "$setOnInsert": { "generation": 0 } };
        driver.collection.update_one(doc! { "_id": "layout" }, layout).upsert(true).await.expect("layout");
        driver
    }

    pub(crate) async fn acquire_writer(&self) -> Lease {
        let mut session = self.client.start_session().await.expect("session");
        let key = new_key();
        self.collection
            .update_one(doc! { "_id": &key.id }, register(&key))
            .upsert(true)
            .session(&mut session)
            .await
            .expect("register");
        let ids = [key.id.as_str(), "lease/fsck", "layout"];
        let mut look =
            self.collection.find(doc! { "_id": { "$in": &ids[..] } }).session(&mut session).await.expect("look");
        let mut seen = 0;
        while let Some(document) = look.next(&mut session).await {
            document.expect("a document");
            seen += 1;
        }
        assert_eq!(seen, 2);
        Lease { key, session }
    }

    pub(crate) async fn release(&self, lease: Lease) {
        let Lease { key, mut session } = lease;
        let gone = self.collection.delete_one(held(&key)).session(&mut session).await.expect("release");
        assert_eq!(gone.deleted_count, 1);
    }

    /// An exclusive phase leaves the writers a turn.
    pub(crate) async fn release_fsck(&self, lease: Lease) {
        let until = doc! { "$add": ["$$NOW", 5_000_i64] };
        let turn = vec![doc! { "$set": { "until": until } }];
        self.collection.update_one(doc! { "_id": "turn" }, turn).upsert(true).await.expect("turn");
        self.release(lease).await;
    }

    pub(crate) async fn refresh(&self, leases: &[impl AsRef<Key>]) {
        refresh(&self.collection, leases).await;
    }

    /// Of leases of ours.
    pub(crate) async fn timed_refresh(&self, leases: &[Key]) -> Duration {
        let began = Instant::now();
        refresh(&self.ours, leases).await;
        began.elapsed()
    }

    pub(crate) async fn acquire_fsck(&self, transactions: bool) -> Lease {
        let mut session = self.client.start_session().await.expect("session");
        let key = Key { id: "lease/fsck".to_owned(), ..new_key() };
        let owned = doc! { "$ne": [{ "$type": "$owner" }, "missing"] };
        let mut fsck = doc! { "_id": &key.id };
        fsck.extend(lease(&key));
        self.collection
            .find_one_and_update(
                doc! { "_id": &key.id, "owner": { "$exists": true } },
                vec![doc! { "$replaceWith": { "$cond": [owned, "$$ROOT", fsck] } }],
            )
            .upsert(true)
            .return_document(ReturnDocument::After)
            .session(&mut session)
            .await
            .expect("install");
        let look = self.collection.aggregate(look(self.collection.name())).batch_size(BATCH).session(&mut session);
        let mut look = look.await.expect("look");
        let mut seen = 0;
        while let Some(document) = look.next(&mut session).await {
            document.expect("a document");
            seen += 1;
        }
        assert_eq!(seen, 2);
        if transactions {
            let begin = session.start_transaction().read_concern(ReadConcern::majority()).write_concern(durable());
            begin.await.expect("begin");
        }
        let mut phase = beat();
        phase.insert("lockhouse.phase", "exclusive");
        self.collection
            .find_one_and_update(held(&key), vec![doc! { "$set": phase }])
            .session(&mut session)
            .await
            .expect("phase")
            .expect("the own lease");
        let raise = vec![doc! { "$set": { "generation": { "$add": ["$generation", 1] } } }];
        self.collection.update_one(doc! { "_id": "layout" }, raise).session(&mut session).await.expect("raise");
        if transactions {
            session.commit_transaction().await.expect("commit");
        }
        Lease { key, session }
    }

    /// So many writers of ours that are believed for an hour.
    pub(crate) async fn fill(&self, count: usize) {
        let keys: Vec<Key> = (0..count).map(|_| new_key()).collect();
        let documents = keys.iter().map(|key| {
            let mut document = doc! { "_id": &key.id, "kind": "writer", "heartbeat": mongodb::bson::DateTime::now() };
            document.extend(lease(key));
            let lockhouse = document.get_document_mut("lockhouse").expect("the sub-document");
            lockhouse.insert("stale_after_ms", 3_600_000_i64);
            lockhouse.insert("acquired", mongodb::bson::DateTime::now());
            document.insert("heartbeat", mongodb::bson::DateTime::now());
            RawDocumentBuf::try_from(&document).expect("a document")
        });
        self.ours.insert_many(documents.collect::<Vec<_>>()).await.expect("insert");
    }

    /// A look over all writers of ours, document by document.
    pub(crate) async fn timed_look(&self) -> Duration {
        let began = Instant::now();
        let mut seen = self.ours.aggregate(look(OURS)).batch_size(BATCH).await.expect("look");
        while let Some(document) = seen.next().await {
            document.expect("a document");
        }
        began.elapsed()
    }

    /// A writer of ours goes without ours knowing.
    pub(crate) async fn delete_ours(&self, key: &Key) {
        let gone = self.ours.delete_one(held(key)).await.expect("delete");
        assert_eq!(gone.deleted_count, 1);
    }

    /// Waits until our history has so many lines.
    pub(crate) async fn wait_for_history(&self, lines: u64) {
        eventually(Duration::from_secs(10), "the history to be written", || async {
            let range = doc! { "_id": { "$gte": "history/", "$lt": "history0" } };
            let there = self.ours.count_documents(range).await.expect("count");
            if there >= lines.min(1_000) { Ok(()) } else { Err(there) }
        })
        .await;
    }
}

async fn refresh(collection: &Collection<RawDocumentBuf>, leases: &[impl AsRef<Key>]) {
    for chunk in leases.chunks(CHUNK) {
        let (ids, owners): (Vec<&str>, Vec<&str>) = chunk
            .iter()
            .map(|lease| {
                let key = lease.as_ref();
                (key.id.as_str(), key.owner.as_str())
            })
            .unzip();
        let held = doc! { "_id": { "$in": ids }, "owner": { "$in": owners } };
        let refreshed = collection.update_many(held, vec![doc! { "$set": beat() }]).await.expect("refresh");
        assert_eq!(refreshed.matched_count, chunk.len() as u64);
    }
    let mut look = collection.find(doc! { "_id": { "$in": ["lease/fsck", "layout"] } }).await.expect("look");
    while let Some(document) = look.next().await {
        document.expect("a document");
    }
}

fn durable() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build()
}

fn new_key() -> Key {
    Key { id: format!("lease/{}", uuid::Uuid::new_v4()), owner: uuid::Uuid::new_v4().to_string() }
}

fn held(key: &Key) -> Document {
    doc! { "_id": &key.id, "owner": &key.owner }
}

fn register(key: &Key) -> Vec<Document> {
    let mut fields = doc! { "kind": "writer" };
    fields.extend(lease(key));
    vec![doc! { "$set": fields }]
}

fn lease(key: &Key) -> Document {
    doc! {
        "owner": &key.owner,
        "heartbeat": "$$NOW",
        "lockhouse": {
            "for": &key.owner, "version": 1, "beats": 0_i64, "acquired": "$$NOW",
            "refresh_interval_ms": 5_000_i64, "stale_after_ms": 25_000_i64, "phase": "draining",
            "holder": { "host": "a-host-of-some-length", "pid": 12_345_i64, "user": "somebody", "program": "leases",
                "boot_id": "00000000-0000-0000-0000-000000000000" },
        },
    }
}

fn beat() -> Document {
    let beats = "$lockhouse.beats";
    doc! { "heartbeat": "$$NOW", "lockhouse.beats": { "$add": [{ "$cond": [{ "$isNumber": beats }, beats, 0] }, 1] } }
}

/// The leases and the layout, with the server's time.
fn look(collection: &str) -> Vec<Document> {
    let view = doc! { "$project": {
        "owner": 1, "heartbeat": 1, "kind": 1, "generation": 1,
        "lockhouse.for": 1, "lockhouse.version": 1, "lockhouse.beats": 1, "lockhouse.phase": 1,
        "lockhouse.refresh_interval_ms": 1, "lockhouse.stale_after_ms": 1,
        "now": "$$NOW",
    } };
    vec![
        doc! { "$match": { "_id": { "$gte": "lease/", "$lt": "lease0" } } },
        view.clone(),
        doc! { "$unionWith": { "coll": collection, "pipeline": [{ "$match": { "_id": "layout" } }, view] } },
    ]
}
