//! What is really sent, whatever the connection string asks for: seen on the wire.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mongodb::bson::{Bson, Document, RawDocument, doc};

use crate::common::{Server, beat, connect, first};
use crate::support::proxy::Action;

const WEAK: &str = "&w=1&journal=false&wtimeoutMS=5&readPreference=secondary&readConcernLevel=local&retryWrites=false&retryReads=false&maxStalenessSeconds=120";

#[tokio::test]
async fn no_connection_string_weakens_what_is_sent() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        first(&database.uri(), "first").await;
        let proxy = database.proxy();
        let sent: Arc<Mutex<Vec<Document>>> = Arc::default();
        let ear = sent.clone();
        let listen = move |body: &RawDocument| {
            ear.lock().unwrap().push(body.try_into().unwrap());
            false
        };
        proxy.on_matching(listen, Action::Cut, 1);
        let weak = connect(&format!("{}{WEAK}", database.uri_through(&proxy)), "weak").await;
        let writer = weak.acquire_writer().await.unwrap();
        beat(&writer).await;
        writer.release().await.unwrap();
        weak.acquire_fsck().await.unwrap().release().await.unwrap();
        weak.prune_stale_writers().await.unwrap();
        weak.status().await.unwrap();
        weak.shutdown().await;

        let durable = doc! { "w": "majority", "j": true };
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for body in sent.lock().unwrap().iter() {
            let name = body.keys().next().unwrap().clone();
            let in_transaction = body.contains_key("autocommit");
            let shown = format!("{server:?}: {body}");
            match name.as_str() {
                "update" | "findAndModify" | "delete" if !in_transaction => {
                    assert_eq!(body.get_document("writeConcern").ok(), Some(&durable), "{shown}");
                }
                "commitTransaction" => assert_eq!(body.get_document("writeConcern").ok(), Some(&durable), "{shown}"),
                "find" | "aggregate" if !in_transaction => {
                    let concern = body.get_document("readConcern").unwrap_or_else(|_| panic!("{shown}"));
                    assert_eq!(concern.get_str("level").ok(), Some("majority"), "{shown}");
                }
                _ => {}
            }
            let preference = body.get_document("$readPreference").and_then(|preference| preference.get_str("mode"));
            let primary = preference.map_or(true, |mode| mode.starts_with("primary"));
            assert!(primary, "{shown}");
            let retryable = name == "findAndModify" && !in_transaction;
            if retryable && server == Server::ReplicaSet {
                assert!(matches!(body.get("txnNumber"), Some(Bson::Int64(_))), "not retryable: {shown}");
            }
            *seen.entry(name).or_default() += 1;
        }
        for name in ["update", "findAndModify", "delete", "find"] {
            assert!(seen.contains_key(name), "{server:?}: no {name} among {seen:?}");
        }
        assert_eq!(seen.contains_key("commitTransaction"), server == Server::ReplicaSet, "{seen:?}");
    }
}
