//! What is refused before any lease: stores on which the protocol would not hold.
//!
//! Most refusals guard the one thing that everything rests on: that two documents with one `_id` cannot
//! stand, and that a document stays until somebody deletes it.

use bson::{Document, doc};

use crate::backend::{Access, Answer, BackendError, Detail, Fault, NO_LAYOUT};
use crate::describe::printable;

use super::connect::{OWN_COLLECTION, PEER_COLLECTION, Topology};
use super::{Mongo, look, statements};

/// The bound of a namespace, database and collection with a point between.
const NAMESPACE_BYTES: usize = 235;

/// What httk-store has to do before there can be leases on its collection.
pub(super) const NO_PEER_LAYOUT: &str =
    "this collection has no layout yet, and httk-store makes its own: open the store with httk-store first";

/// Refuses what the server would not take as a collection's name, and its own collections.
pub(super) fn collection_name(database: &str, collection: &str) -> Answer<()> {
    let wrong = if collection.is_empty() {
        "is empty"
    } else if collection.contains(['$', '\0']) {
        "contains $ or a NUL"
    } else if collection.starts_with("system.") || collection.starts_with('.') {
        "is reserved"
    } else if database.len() + 1 + collection.len() > NAMESPACE_BYTES {
        "is too long"
    } else {
        return Ok(());
    };
    Err(refuse(format!(
        "the collection's name \"{}\" {wrong}; name another with --collection, or none for \"{OWN_COLLECTION}\"",
        printable(collection)
    )))
}

fn refuse(message: impl Into<String>) -> BackendError {
    BackendError::new(Fault::Invalid, message)
}

impl Mongo {
    /// Whether leases can be looked at, or made, here.
    pub(super) async fn check(&self, access: Access) -> Answer<()> {
        let exists = self.check_collection().await?;
        // Even a lease that is withdrawn at once would leave the collection. Where a name was mistyped nobody
        // wants one, and httk-store makes its store only where there is none.
        match access {
            Access::Init | Access::Remove | Access::Write if !exists && self.shared() => {
                return Err(refuse(NO_PEER_LAYOUT));
            }
            Access::Write if !exists => return Err(refuse(NO_LAYOUT)),
            Access::Look | Access::Init | Access::Remove | Access::Write => {}
        }
        look::look(&self.collection, None, statements::try_look(self.collection.name()), Detail::Lean)
            .await
            .map_err(|error| self.faults.look(error))?;
        match access {
            Access::Look => Ok(()),
            Access::Init | Access::Remove | Access::Write => {
                self.check_indexes().await?;
                self.collection
                    .update_one(statements::nothing(), statements::refresh())
                    .await
                    .map(drop)
                    .map_err(|error| self.faults.write(error))
            }
        }
    }

    /// Also tells whether the collection is there: without it a write makes it.
    async fn check_collection(&self) -> Answer<bool> {
        let mut exists = false;
        let own = self.collection.name();
        let command = doc! {
            "listCollections": 1,
            "filter": { "name": { "$in": [own, PEER_COLLECTION] } },
        };
        for found in self.listed(command).await? {
            match found.get_str("name") {
                Ok(name) if name == own => {
                    collection(own, &found).map_err(refuse)?;
                    exists = true;
                }
                Ok(PEER_COLLECTION) if !self.named => {
                    return Err(refuse(format!(
                        "this is a store of httk-store; give --collection {PEER_COLLECTION} to coordinate with it \
                         (with any other, leases would not hold it off, and its check would not sweep beside them)"
                    )));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(exists)
    }

    async fn check_indexes(&self) -> Answer<()> {
        let found = self.listed(doc! { "listIndexes": self.collection.name() }).await?;
        for found in &found {
            index(found).map_err(refuse)?;
        }
        match self.topology {
            Topology::Replicated { sharded: true } => self.check_shard_key(&found).await,
            Topology::Replicated { sharded: false } | Topology::Standalone => Ok(()),
        }
    }

    /// Only an administrator may read the shard key. Without that right the indexes tell enough: a shard
    /// key needs an index that begins with it.
    async fn check_shard_key(&self, indexes: &[Document]) -> Answer<()> {
        let namespace = self.collection.namespace().to_string();
        let sharded = self
            .database
            .client()
            .database("config")
            .collection::<Document>("collections")
            .find_one(doc! { "_id": namespace, "dropped": { "$ne": true } })
            .await;
        let suspect = match sharded {
            Ok(Some(entry)) => entry.get_document("key").ok().cloned(),
            Ok(None) => None,
            Err(_) => {
                indexes.iter().filter_map(|index| index.get_document("key").ok()).find(|key| !by_id(key)).cloned()
            }
        };
        match suspect.filter(|key| !by_id(key)) {
            None => Ok(()),
            Some(key) => Err(refuse(format!(
                "the collection is, or may be, sharded on {key}, and then an _id is not unique; shard it on _id, or name another with --collection"
            ))),
        }
    }

    /// The first batch of a listing, which is all of it for one collection.
    async fn listed(&self, command: Document) -> Answer<Vec<Document>> {
        const NAMESPACE_NOT_FOUND: i32 = 26;
        let reply = match self.database.run_command(command).await {
            Ok(reply) => reply,
            Err(error) if super::faults::code(&error) == Some(NAMESPACE_NOT_FOUND) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(self.faults.look(error)),
        };
        let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        Ok(batch.into_iter().flatten().filter_map(|found| found.as_document().cloned()).collect())
    }
}

/// Exactly `_id`, plain or hashed.
fn by_id(key: &Document) -> bool {
    key.len() == 1 && key.contains_key("_id")
}

/// What is wrong with the collection, from its entry in listCollections.
fn collection(name: &str, found: &Document) -> Result<(), String> {
    let kind = found.get_str("type").unwrap_or("collection");
    let options = found.get_document("options").cloned().unwrap_or_default();
    let locale =
        options.get_document("collation").and_then(|collation| collation.get_str("locale")).unwrap_or("simple");
    let wrong = if kind == "timeseries" {
        "is a time-series collection"
    } else if kind != "collection" {
        "is a view"
    } else if options.get_bool("capped").unwrap_or(false) {
        "is capped: it would delete leases by itself"
    } else if locale != "simple" {
        "has a default collation: it would take different ids for the same"
    } else if options.contains_key("expireAfterSeconds") {
        "expires its documents: it would delete live leases"
    } else {
        return Ok(());
    };
    Err(format!(
        "the collection {} {wrong}; drop it if nothing else needs it, or name another with --collection",
        printable(name)
    ))
}

/// What is wrong with an index, from its entry in listIndexes.
fn index(found: &Document) -> Result<(), String> {
    let key = found.get_document("key").cloned().unwrap_or_default();
    let is_id = key == doc! { "_id": 1 };
    let wrong = if found.contains_key("expireAfterSeconds") {
        "is a TTL index: it would delete live leases"
    } else if !is_id && (found.get_bool("unique").unwrap_or(false) || found.get_bool("prepareUnique").unwrap_or(false))
    {
        "is unique: it would keep leases from being made"
    } else {
        return Ok(());
    };
    Err(format!(
        "the index {} {wrong}; drop it, or name another collection with --collection",
        printable(found.get_str("name").unwrap_or("?"))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_collection_can_have_are_refused() {
        for name in ["", "a$b", "system.views", ".a", "a\0", &"x".repeat(300)] {
            let error = collection_name("db", name).unwrap_err();
            assert_eq!(error.fault, Fault::Invalid);
            assert!(error.message.contains("--collection"), "{}", error.message);
        }
        assert!(collection_name("db", PEER_COLLECTION).is_ok());
        assert!(collection_name("db", "a.b").is_ok());
    }

    #[test]
    fn a_plain_collection_and_its_id_index_pass() {
        let found = doc! { "name": "lockhouse", "type": "collection", "options": {} };
        assert!(collection("lockhouse", &found).is_ok());
        assert!(index(&doc! { "name": "_id_", "key": { "_id": 1 } }).is_ok());
        assert!(index(&doc! { "name": "k", "key": { "kind": 1 } }).is_ok());
        assert!(by_id(&doc! { "_id": "hashed" }) && !by_id(&doc! { "_id": 1, "a": 1 }));
    }
}
