//! What may happen to an fsck while it drains: it is told, and never granted.

use std::future::IntoFuture;
use std::time::Duration;

use futures::StreamExt;
use lockhouse::{Error, LossReason};
use mongodb::bson::{RawDocument, doc};

use crate::common::{
    BOUND, PATIENT, Server, TIMING, beat, builder, collection, connect, finally_lost, first, generation, leases,
    locked, soon,
};
use crate::support::poll::eventually;
use crate::support::proxy::Action;

const EVERY: usize = usize::MAX;

/// Whether this turns the phase.
fn is_grant(body: &RawDocument) -> bool {
    let yes = |key: &str| body.get_bool(key).unwrap_or(false);
    (body.get_str("findAndModify").is_ok() && !yes("upsert"))
        || (body.get_str("update").is_ok() && yes("startTransaction"))
}

fn why(error: Error) -> LossReason {
    match error {
        Error::LeaseLost(lost) => lost.why,
        other => panic!("not LeaseLost: {other:?}"),
    }
}

#[tokio::test]
async fn an_fsck_whose_heartbeats_fail_while_it_drains_is_lost_and_never_granted() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        let other = first(&database.uri(), "writer").await;
        let collection = collection(&database).await;
        let writer = other.acquire_writer().await.unwrap();
        let proxy = database.proxy();
        let admin = connect(&database.uri_through(&proxy), "admin").await;
        // Before the faults: the store is checked once.
        admin.acquire_writer().await.unwrap().release().await.unwrap();
        proxy.on_command("update", Action::Cut, EVERY);
        let mut request = admin.acquire_fsck().drain_budget(BOUND * 2);
        let mut progress = request.progress();
        let draining = tokio::spawn(request.into_future());
        soon(progress.next()).await.unwrap();
        let error = soon(draining).await.unwrap().map(drop).unwrap_err();
        assert_eq!(why(error), LossReason::Deadline, "{server:?}");
        // Reads passed all the time; the withdrawal is a delete, and passes too.
        eventually(BOUND, "only the writer to be left", || async {
            let left = leases(&collection).await;
            if left.len() == 1 { Ok(()) } else { Err(left) }
        })
        .await;
        assert_eq!(generation(&collection).await, 0, "{server:?}");
        writer.check().unwrap();
        beat(&writer).await;
    }
}

#[tokio::test]
async fn an_fsck_whose_document_vanishes_while_it_drains_is_lost_and_never_granted() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        let other = first(&database.uri(), "writer").await;
        let collection = collection(&database).await;
        let writer = other.acquire_writer().await.unwrap();
        let admin = connect(&database.uri(), "admin").await;
        for by_replacement in [false, true] {
            let mut request = admin.acquire_fsck().drain_budget(BOUND);
            let mut progress = request.progress();
            let draining = tokio::spawn(request.into_future());
            soon(progress.next()).await.unwrap();
            if by_replacement {
                let owner = doc! { "$set": { "owner": "somebody else" } };
                collection.update_one(doc! { "_id": "lease/fsck" }, owner).await.unwrap();
            } else {
                collection.delete_one(doc! { "_id": "lease/fsck" }).await.unwrap();
            }
            let error = soon(draining).await.unwrap().map(drop).unwrap_err();
            assert_eq!(why(error), LossReason::Displaced, "{server:?}");
            let fsck = collection.find_one(doc! { "_id": "lease/fsck" }).await.unwrap();
            assert_eq!(fsck.is_some(), by_replacement, "{server:?}: somebody else's document was touched");
        }
        assert_eq!(generation(&collection).await, 0, "{server:?}");
        writer.check().unwrap();
        collection.delete_one(doc! { "_id": "lease/fsck" }).await.unwrap();
    }
}

#[tokio::test]
async fn a_grant_that_comes_too_late_is_none() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        let other = first(&database.uri(), "other").await;
        let collection = collection(&database).await;
        let proxy = database.proxy();
        let admin = connect(&database.uri_through(&proxy), "admin").await;
        admin.prune_stale_writers().await.unwrap();
        // The phase update hangs for longer than the lease lives, and so do the heartbeats.
        proxy.on_matching(is_grant, Action::HoldRequest, EVERY);
        proxy.on_command("update", Action::HoldRequest, EVERY);
        let error = soon(admin.acquire_fsck()).await.map(drop).unwrap_err();
        assert!(matches!(error, Error::LeaseLost(_) | Error::Unavailable(_)), "{server:?}: {error:?}");
        proxy.clear_rules();
        let fsck = soon(other.acquire_fsck().wait(BOUND)).await.unwrap();
        // What was held comes now, under another's exclusive phase.
        proxy.release_held().await;
        beat(&fsck).await;
        fsck.check().unwrap();
        let owner = doc! { "_id": "lease/fsck", "owner": fsck.owner() };
        assert!(collection.find_one(owner).await.unwrap().is_some());
        fsck.release().await.unwrap();
        soon(admin.shutdown()).await;
        assert!(leases(&collection).await.is_empty());
    }
}

#[tokio::test]
async fn a_layout_that_another_program_raises_before_the_grant_is_raised_once_more() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        let _other = first(&database.uri(), "other").await;
        let collection = collection(&database).await;
        let proxy = database.proxy();
        let connecting = || builder(&database.uri_through(&proxy)).timing(PATIENT).connect();
        let admin = eventually(BOUND, "to connect", connecting).await;
        admin.prune_stale_writers().await.unwrap();
        proxy.on_matching(is_grant, Action::HoldRequest, 1);
        let fsck = tokio::spawn(admin.acquire_fsck().into_future());
        proxy.wait_held(1).await;
        collection.update_one(doc! { "_id": "layout" }, doc! { "$inc": { "generation": 1 } }).await.unwrap();
        proxy.release_held().await;
        let fsck = soon(fsck).await.unwrap().unwrap();
        assert_eq!((fsck.generation(), generation(&collection).await), (2, 2), "{server:?}");
        fsck.release().await.unwrap();
    }
}

#[tokio::test]
async fn an_owner_replaced_by_hand_ends_a_lease_and_is_not_touched() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        let holder = first(&database.uri(), "holder").await;
        let collection = collection(&database).await;
        for release in [true, false] {
            let writer = holder.acquire_writer().await.unwrap();
            let id = writer.identifier().to_owned();
            let stolen = doc! { "$set": { "owner": "somebody else" } };
            collection.update_one(doc! { "_id": &id }, stolen).await.unwrap();
            assert_eq!(finally_lost(&writer).await, LossReason::Displaced);
            let before = collection.find_one(doc! { "_id": &id }).await.unwrap().unwrap();
            if release {
                writer.release().await.unwrap();
            } else {
                drop(writer);
            }
            // Several refreshes later.
            tokio::time::sleep(TIMING.refresh_interval * 3 / 2).await;
            let after = collection.find_one(doc! { "_id": &id }).await.unwrap();
            assert_eq!(after, Some(before), "{server:?}");
            collection.delete_one(doc! { "_id": &id }).await.unwrap();
        }
        soon(holder.shutdown()).await;
    }
}

#[tokio::test]
async fn a_holder_learns_of_an_exclusive_phase_that_passed_over_it() {
    let database = Server::ReplicaSet.database();
    let holder = first(&database.uri(), "holder").await;
    let collection = collection(&database).await;
    let writer = holder.acquire_writer().await.unwrap();
    // Another program's exclusive phase, which did not wait for this writer.
    collection.update_one(doc! { "_id": "layout" }, doc! { "$inc": { "generation": 1 } }).await.unwrap();
    assert_eq!(finally_lost(&writer).await, LossReason::Generation);
    drop(writer);
    let again = holder.acquire_writer().wait(Duration::from_secs(1)).await.unwrap();
    assert_eq!(again.generation(), 1);
    let refused = connect(&database.uri(), "admin").await.acquire_fsck().drain_budget(Duration::ZERO).await;
    assert!(matches!(refused.map(drop).unwrap_err(), Error::DrainTimeout(_)));
    again.release().await.unwrap();
    let fsck = holder.acquire_fsck().await.unwrap();
    let refused = connect(&database.uri(), "late").await.acquire_writer().await.map(drop).unwrap_err();
    locked(refused);
    fsck.release().await.unwrap();
}
