//! Documents that no holder of ours wrote: halves, wrecks, peers, and what a restore brought back. They block
//! like any other lease, are listed, and can be cleared.

use futures::future::{join, join_all};
use lockhouse::{Coordinator, Error, ErrorKind, LeaseState, Locked, StoreState};
use mongodb::bson::{DateTime, Document, doc};

use crate::common::{BOUND, Server, beat, collection, connect, first, leases, locked, soon};
use crate::support::poll::eventually;

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

/// Each is watched for the eight seconds of a peer, so all of them are watched at the same time, on stores of their own.
#[tokio::test]
async fn wrecks_block_are_listed_and_can_be_cleared() {
    let servers = [Server::ReplicaSet, Server::Standalone];
    let of_fsck = [doc! { "_id": "lease/fsck" }, doc! { "_id": "lease/fsck", "owner": "x", "heartbeat": null }];
    let writers = join_all(servers.map(wrecked_writers));
    let fscks = join_all(servers.iter().flat_map(|server| of_fsck.iter().map(|wreck| wrecked_fsck(*server, wreck))));
    join(writers, fscks).await;
}

async fn wrecked_writers(server: Server) {
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
    soon(admin.acquire_fsck()).await.unwrap().release().await.unwrap();
}

async fn wrecked_fsck(server: Server, wreck: &Document) {
    let database = server.database();
    let admin = first(&database.uri(), "admin").await;
    let collection = collection(&database).await;
    collection.insert_one(wreck).await.unwrap();
    assert_eq!(admin.status().await.unwrap().state, StoreState::Blocked);
    let refusals =
        [admin.acquire_writer().await.map(drop).unwrap_err(), admin.acquire_fsck().await.map(drop).unwrap_err()];
    for refusal in refusals {
        let text = refusal.to_string();
        assert!(matches!(locked(refusal), Locked::FsckHeld { stale: true, .. }), "{text}");
    }
    assert_eq!(leases(&collection).await, std::slice::from_ref(wreck));
    assert_eq!(soon(admin.clear_stale_lock()).await.unwrap().cleared.len(), 1);
    soon(admin.acquire_fsck()).await.unwrap().release().await.unwrap();
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

/// Waits until so many leases are listed that look stale, and as many in all.
async fn until_stale(admin: &Coordinator, stale: usize, all: usize) {
    eventually(BOUND, "what was restored to look stale", || async {
        let status = admin.status().await.unwrap();
        let listed = status.writers.len() + usize::from(status.fsck.is_some());
        if (status.needing_a_person().count(), listed) == (stale, all) { Ok(()) } else { Err(status) }
    })
    .await;
}

#[tokio::test]
async fn a_writers_lease_that_a_restore_brings_back_is_nobodys_and_can_be_pruned() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        let admin = first(&database.uri(), "admin").await;
        let holder = connect(&database.uri(), "holder").await;
        let collection = collection(&database).await;
        let released = holder.acquire_writer().await.unwrap();
        let living = holder.acquire_writer().await.unwrap();
        let mut restored = leases(&collection).await;
        released.release().await.unwrap();
        // Of the one that is still held the restore makes a copy under another name.
        for document in &mut restored {
            if document.get_str("_id").unwrap() == living.identifier() {
                document.insert("_id", "lease/copy");
            }
        }
        collection.insert_many(&restored).await.unwrap();
        until_stale(&admin, 2, 3).await;
        let refusal = soon(admin.acquire_fsck().drain_budget(BOUND / 10)).await.map(drop).unwrap_err();
        assert!(matches!(refusal.kind(), ErrorKind::StoreLocked | ErrorKind::DrainTimeout), "{refusal}");
        let pruned = soon(admin.prune_stale_writers()).await.unwrap();
        assert_eq!(pruned.cleared.len(), 2, "{pruned:?}");
        beat(&living).await;
        let left = leases(&collection).await;
        assert_eq!((left.len(), left[0].get_str("_id").unwrap()), (1, living.identifier()));
        living.release().await.unwrap();
        soon(admin.acquire_fsck()).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn an_fsck_lease_that_a_restore_brings_back_blocks_until_it_is_cleared() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        let admin = first(&database.uri(), "admin").await;
        let holder = connect(&database.uri(), "holder").await;
        let collection = collection(&database).await;
        let fsck = holder.acquire_fsck().await.unwrap();
        let restored = leases(&collection).await;
        fsck.release().await.unwrap();
        collection.insert_many(&restored).await.unwrap();
        until_stale(&admin, 1, 1).await;
        assert_eq!(admin.status().await.unwrap().state, StoreState::Blocked);
        // Whoever gave it back believes for a while that it is on its way out, and then no longer.
        for coordinator in [&admin, &holder] {
            eventually(BOUND, "a refusal that names the lease", || async {
                let refusal = coordinator.acquire_writer().await.map(drop).unwrap_err();
                let named = matches!(&refusal, Error::StoreLocked(locked)
                    if matches!(locked.cause, Locked::FsckHeld { stale: true, .. }));
                if named { Ok(()) } else { Err(refusal) }
            })
            .await;
        }
        assert_eq!(soon(holder.clear_stale_lock()).await.unwrap().cleared.len(), 1);
        soon(holder.acquire_fsck()).await.unwrap().release().await.unwrap();
    }
}
