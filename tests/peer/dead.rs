//! What a dead one of either side leaves behind: who is spared, who is cleared, and who notices.

use futures::StreamExt;
use lockhouse::{Cleared, Event, LeaseState, LeaseTiming, LossReason, StoreState};
use serde_json::json;

use super::*;
use crate::support::proxy::Proxy;

/// Short enough that a test can wait for a lease of ours to be stale: after 1.5 s.
fn short() -> LeaseTiming {
    LeaseTiming { refresh_interval: Duration::from_millis(500), stale_multiplier: 3, ..LeaseTiming::default() }
}

/// A coordinator whose way to the server can be cut.
async fn behind_a_proxy(scene: &Scene) -> (Proxy, Coordinator) {
    let proxy = scene.database.proxy();
    let ours = builder(&scene.database.uri_through(&proxy)).timing(short()).label("cut off").connect().await.unwrap();
    (proxy, ours)
}

/// Waits until the server calls a lease stale.
async fn is_stale(ours: &Coordinator, id: &str) -> LeaseInfo {
    eventually(BOUND, "the lease to be stale", || async {
        let status = ours.status().await.expect("status");
        let found = status.fsck.into_iter().chain(status.writers).find(|lease| lease.id == id);
        match found {
            Some(lease) if lease.state == LeaseState::Stale => Ok(lease),
            other => Err(other),
        }
    })
    .await
}

async fn is_lost(lease: &lockhouse::Lease, why: LossReason) {
    eventually(BOUND, "the lease to be lost for good", || async {
        match lease.check() {
            Err(Error::LeaseLost(lost)) if lost.why == why => Ok(()),
            other => Err(other.map_err(|error| error.to_string())),
        }
    })
    .await;
}

#[track_caller]
fn assert_cleared(cleared: &Cleared, id: &str) {
    assert_eq!(cleared.cleared.len(), 1, "{cleared:?}");
    assert_eq!(cleared.cleared[0].id, id);
    assert!(cleared.cleared[0].peer && cleared.spared.is_empty(), "{cleared:?}");
}

#[tokio::test]
async fn a_stale_writer_of_theirs_is_named_and_pruned_only_on_a_persons_word() {
    let mut scene = Scene::new().await;
    let theirs = scene.agent.ask(json!({ "do": "acquire_writer" })).await;
    let id = theirs["id"].as_str().unwrap();
    assert!(scene.ours.prune_stale_writers().peer_is_dead(true).await.unwrap().cleared.is_empty(), "it is fresh");

    // Their drain counts it as fresh until then, so ours waits as long.
    let refused = scene.ours.acquire_fsck().await.unwrap_err();
    let Error::StoreLocked(locked) = &refused else { panic!("{refused}") };
    let Locked::StaleWriters { writers } = &locked.cause else { panic!("{refused}") };
    assert_eq!(writers[0].id, id);
    assert_peers(&writers[0]);

    let refused = scene.ours.acquire_fsck().force(true).await.unwrap_err();
    assert_eq!(spared(&refused)[0].id, id);
    let refused = scene.ours.prune_stale_writers().await.unwrap_err();
    assert_peers(&spared(&refused)[0]);
    assert!(refused.to_string().contains("--peer-is-dead"), "{refused}");
    let dry = scene.ours.prune_stale_writers().dry_run(true).await.unwrap();
    assert!(dry.cleared.is_empty() && dry.spared[0].id == id, "{dry:?}");
    let dry = scene.ours.prune_stale_writers().dry_run(true).peer_is_dead(true).await.unwrap();
    assert_cleared(&dry, id);
    assert!(scene.stored(id).await.is_some());

    assert_cleared(&scene.ours.prune_stale_writers().peer_is_dead(true).await.unwrap(), id);
    assert_eq!(scene.agent.refused(json!({ "do": "refresh" })).await.class, "LeaseLostError");
}

#[tokio::test]
async fn force_passes_a_stale_writer_of_theirs_only_on_a_persons_word() {
    let mut scene = Scene::new().await;
    let theirs = scene.agent.ask(json!({ "do": "acquire_writer" })).await;
    let fsck = scene.ours.acquire_fsck().force(true).peer_is_dead(true).await.expect("granted after the watch");
    assert!(scene.stored(theirs["id"].as_str().unwrap()).await.is_none(), "a dead writer is removed before the grant");
    assert_eq!(scene.agent.refused(json!({ "do": "refresh" })).await.class, "LeaseLostError");
    fsck.check().unwrap();
}

#[tokio::test]
async fn a_stale_fsck_of_theirs_is_cleared_only_on_a_persons_word() {
    let mut scene = Scene::new().await;
    scene.agent.ask(json!({ "do": "acquire_fsck" })).await;
    let refused = scene.ours.clear_stale_lock().peer_is_dead(true).await.unwrap_err();
    let Error::StoreLocked(locked) = &refused else { panic!("{refused}") };
    assert!(matches!(&locked.cause, Locked::FsckFresh { lease } if lease.peer), "{refused}");

    assert_peers(&is_stale(&scene.ours, "lease/fsck").await);
    assert_eq!(scene.ours.status().await.unwrap().state, StoreState::Blocked);
    assert_peers(fsck_held(&scene.ours.acquire_writer().await.unwrap_err()));
    let refused = scene.ours.clear_stale_lock().await.unwrap_err();
    assert_peers(&spared(&refused)[0]);
    let refused = scene.ours.acquire_fsck().force(true).await.unwrap_err();
    assert!(refused.to_string().contains("--peer-is-dead"), "{refused}");
    assert_eq!(spared(&refused)[0].id, "lease/fsck");

    assert_cleared(&scene.ours.clear_stale_lock().peer_is_dead(true).await.unwrap(), "lease/fsck");
    assert_eq!(scene.agent.refused(json!({ "do": "refresh" })).await.class, "LeaseLostError");
    let writer = scene.ours.acquire_writer().await.expect("nothing is in the way any more");
    writer.release().await.unwrap();
}

#[tokio::test]
async fn a_stale_fsck_of_theirs_that_moves_while_it_is_watched_is_spared() {
    let mut scene = Scene::new().await;
    let theirs = scene.agent.ask(json!({ "do": "acquire_fsck" })).await;
    is_stale(&scene.ours, "lease/fsck").await;
    let mut events = scene.ours.events();
    let ours = scene.ours.clone();
    let clearing = tokio::spawn(async move { ours.clear_stale_lock().peer_is_dead(true).await });
    let watching = async { while !matches!(events.next().await, Some(Event::Watching { .. })) {} };
    tokio::time::timeout(BOUND, watching).await.expect("the watch begins");
    scene.agent.ask(json!({ "do": "refresh" })).await;
    let refused = clearing.await.unwrap().unwrap_err();
    assert_peers(&spared(&refused)[0]);
    let stands = scene.stored("lease/fsck").await.expect("their lease");
    assert_eq!(stands.get_str("owner").ok(), theirs["owner"].as_str());
}

/// Their insert writes no heartbeat, and only the update after it makes the lease theirs: whoever is stopped
/// in between has been granted nothing, so its lease may go without anybody's word.
#[tokio::test]
async fn a_half_made_fsck_of_theirs_blocks_and_is_cleared_without_a_word() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.agent.ask(json!({ "do": "acquire_fsck", "pause": true })).await, "paused");
    assert_eq!(scene.stored("lease/fsck").await.unwrap().get("heartbeat"), Some(&mongodb::bson::Bson::Null));
    let status = scene.ours.status().await.unwrap();
    assert_eq!(status.fsck.unwrap().state, LeaseState::Malformed);
    assert_eq!(status.state, StoreState::Blocked);
    fsck_held(&scene.ours.acquire_writer().await.unwrap_err());
    fsck_held(&scene.ours.acquire_fsck().await.unwrap_err());

    let cleared = scene.ours.clear_stale_lock().await.unwrap();
    assert_eq!(cleared.cleared[0].id, "lease/fsck");
    let writer = scene.ours.acquire_writer().await.unwrap();
    scene.agent.send(&json!("go on"));
    assert_eq!(scene.agent.answer().await.unwrap_err().class, "LeaseLostError");
    writer.check().unwrap();
}

/// Their `$set` leaves our sub-document behind in a lease that is theirs now.
#[tokio::test]
async fn their_force_over_our_stale_fsck_ends_ours_and_voids_what_we_wrote() {
    let mut scene = Scene::new().await;
    let (proxy, ours) = behind_a_proxy(&scene).await;
    let lease = ours.acquire_fsck().reason("a check of ours").await.unwrap();
    proxy.blackhole();
    is_lost(&lease, LossReason::Deadline).await;
    is_stale(&scene.ours, "lease/fsck").await;
    let theirs = scene.agent.ask(json!({ "do": "acquire_fsck", "force": true, "refresh_interval": 0.5 })).await;

    let stands = scene.stored("lease/fsck").await.unwrap();
    assert_eq!(stands.get_str("owner").ok(), theirs["owner"].as_str());
    let voided = stands.get_document("lockhouse").expect("their $set leaves it");
    assert_eq!(voided.get_str("for").unwrap(), lease.owner());
    let seen = scene.ours.status().await.unwrap().fsck.unwrap();
    assert_peers(&seen);
    assert_eq!(seen.owner.as_deref(), theirs["owner"].as_str());

    proxy.pass();
    is_lost(&lease, LossReason::Displaced).await;
    drop(lease);
    ours.shutdown().await;
    scene.agent.ask(json!({ "do": "refresh" })).await;
    let stands = scene.stored("lease/fsck").await.expect("our release touched only our own lease");
    assert_eq!(stands.get_str("owner").ok(), theirs["owner"].as_str());
    scene.agent.ask(json!({ "do": "release" })).await;
    assert!(scene.stored("lease/fsck").await.is_none());
}

#[tokio::test]
async fn their_force_past_our_stale_writer_ends_it() {
    let mut scene = Scene::new().await;
    let (proxy, ours) = behind_a_proxy(&scene).await;
    let lease = ours.acquire_writer().await.unwrap();
    proxy.blackhole();
    is_stale(&scene.ours, lease.identifier()).await;
    scene.agent.ask(json!({ "do": "acquire_fsck", "force": true, "refresh_interval": 0.5 })).await;
    assert!(scene.stored(lease.identifier()).await.is_some(), "they pass it and leave it");
    proxy.pass();
    is_lost(&lease, LossReason::Displaced).await;
}

#[tokio::test]
async fn a_writer_of_ours_that_slept_through_a_check_of_theirs_learns_it_from_the_generation() {
    let mut scene = Scene::new().await;
    let (proxy, ours) = behind_a_proxy(&scene).await;
    let lease = ours.acquire_writer().await.unwrap();
    proxy.blackhole();
    is_lost(&lease, LossReason::Deadline).await;
    // Theirs judges by eight seconds whatever our lease says; without `force` it would refuse.
    let checked = scene.agent.ask(json!({ "do": "fsck", "force": true })).await;
    assert_eq!(checked["generation"], 1);
    assert!(scene.stored("lease/fsck").await.is_none(), "it came and went");
    proxy.pass();
    is_lost(&lease, LossReason::Generation).await;
}

#[tokio::test]
async fn their_clearing_of_our_stale_fsck_ends_ours() {
    let mut scene = Scene::new().await;
    let (proxy, ours) = behind_a_proxy(&scene).await;
    let lease = ours.acquire_fsck().await.unwrap();
    assert_locked(
        &scene.agent.refused(json!({ "do": "clear_stale_lock", "refresh_interval": 0.5 })).await,
        "fresh and cannot be cleared",
    );
    proxy.blackhole();
    is_stale(&scene.ours, "lease/fsck").await;
    scene.agent.ask(json!({ "do": "clear_stale_lock", "refresh_interval": 0.5 })).await;
    scene.agent.ask(json!({ "do": "acquire_writer" })).await;
    proxy.pass();
    is_lost(&lease, LossReason::Displaced).await;
}
