//! Documents that no holder of ours wrote: halves, wrecks and peers. They block like any other lease, are
//! listed, and can be cleared.

use lockhouse::{LeaseState, Locked, StoreState};
use mongodb::bson::{DateTime, Document, doc};

use crate::common::{Server, collection, first, leases, locked, soon};

fn wrecks() -> Vec<Document> {
    let now = DateTime::now();
    vec![
        doc! { "_id": "lease/only-an-id" },
        doc! { "_id": "lease/no-heartbeat", "kind": "writer", "owner": "x" },
        doc! { "_id": "lease/null", "kind": "writer", "owner": "x", "heartbeat": null },
        doc! { "_id": "lease/text", "kind": "writer", "owner": "x", "heartbeat": "yesterday" },
        doc! { "_id": "lease/number", "kind": "writer", "owner": 5, "heartbeat": now },
        doc! { "_id": "lease/odd-kind", "kind": 7, "owner": "x", "heartbeat": now },
        doc! { "_id": "lease/half", "kind": "writer", "owner": { "a": 1 }, "lockhouse": "text" },
    ]
}

#[tokio::test]
async fn wrecks_block_are_listed_and_can_be_cleared() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        let admin = first(&database.uri(), "admin").await;
        let collection = collection(&database).await;
        let wrecks = wrecks();
        collection.insert_many(&wrecks).await.unwrap();
        let status = admin.status().await.unwrap();
        assert_eq!(status.writers.len(), wrecks.len());
        assert!(status.writers.iter().all(|lease| lease.state == LeaseState::Malformed), "{status:?}");
        // Writers get in beside them, an fsck does not, and says behind whom.
        admin.acquire_writer().await.unwrap().release().await.unwrap();
        let refusal = soon(admin.acquire_fsck()).await.map(drop).unwrap_err();
        let text = refusal.to_string();
        let Locked::StaleWriters { writers } = locked(refusal) else { panic!("{text}") };
        assert_eq!(writers.len(), wrecks.len(), "{text}");
        let pruned = soon(admin.prune_stale_writers()).await.unwrap();
        assert_eq!(pruned.cleared.len(), wrecks.len(), "{pruned:?}");
        assert!(leases(&collection).await.is_empty());

        for wreck in [doc! { "_id": "lease/fsck" }, doc! { "_id": "lease/fsck", "owner": "x", "heartbeat": null }] {
            collection.insert_one(&wreck).await.unwrap();
            assert_eq!(admin.status().await.unwrap().state, StoreState::Blocked);
            let refusals = [
                admin.acquire_writer().await.map(drop).unwrap_err(),
                admin.acquire_fsck().await.map(drop).unwrap_err(),
            ];
            for refusal in refusals {
                let text = refusal.to_string();
                assert!(matches!(locked(refusal), Locked::FsckHeld { stale: true, .. }), "{text}");
            }
            assert_eq!(leases(&collection).await, [wreck]);
            assert_eq!(soon(admin.clear_stale_lock()).await.unwrap().cleared.len(), 1);
        }
        soon(admin.acquire_fsck()).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_peers_lease_is_spared_without_a_persons_word() {
    let database = Server::ReplicaSet.database();
    let admin = first(&database.uri(), "admin").await;
    let collection = collection(&database).await;
    let hour_ago = DateTime::from_millis(DateTime::now().timestamp_millis() - 3_600_000);
    collection
        .insert_one(doc! { "_id": "lease/peer", "kind": "writer", "owner": "peer", "heartbeat": hour_ago })
        .await
        .unwrap();
    let shown = &admin.status().await.unwrap().writers[0];
    assert_eq!((shown.peer, shown.state), (true, LeaseState::Stale));
    for refusal in [
        admin.prune_stale_writers().await.map(drop).unwrap_err(),
        soon(admin.acquire_fsck().force(true)).await.map(drop).unwrap_err(),
    ] {
        assert!(refusal.to_string().contains("--peer-is-dead"), "{refusal}");
        let Locked::NotDead { leases } = locked(refusal) else { panic!("not NotDead") };
        assert_eq!(leases[0].id, "lease/peer");
    }
    assert_eq!(leases(&collection).await.len(), 1);
    let pruned = soon(admin.prune_stale_writers().peer_is_dead(true)).await.unwrap();
    assert_eq!(pruned.cleared.len(), 1);
}
