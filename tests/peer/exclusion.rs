//! Each side's leases hold off the other's, drain them, and end with them.

use std::cell::Cell;
use std::future::IntoFuture;

use futures::StreamExt;
use lockhouse::StoreState;
use serde_json::{Value, json};

use super::*;
use crate::support::database::standalone_database;

/// Waits until the peer's drain has looked at least once: only a drain that goes on refreshes.
async fn is_draining(scene: &Scene) {
    let first = Cell::new(None);
    eventually(BOUND, "the peer's drain to go round", || async {
        let heartbeat = scene.ours.status().await.expect("status").fsck.and_then(|fsck| fsck.heartbeat);
        match (first.get(), heartbeat) {
            (Some(first), Some(second)) if first != second => Ok(()),
            (_, heartbeat) => {
                first.set(heartbeat);
                Err(heartbeat)
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_writer_of_theirs_holds_our_fsck_off_and_is_drained() {
    let mut scene = Scene::new().await;
    let theirs = scene.agent.ask(json!({ "do": "acquire_writer" })).await;

    let refused = scene.ours.acquire_fsck().drain_budget(Duration::from_millis(300)).await.unwrap_err();
    let Error::DrainTimeout(left) = &refused else { panic!("{refused}") };
    assert_eq!(left.writers.len(), 1);
    assert_eq!(left.writers[0].id, theirs["id"]);
    assert_eq!(left.writers[0].owner.as_deref(), theirs["owner"].as_str());
    assert_peers(&left.writers[0]);
    assert!(scene.stored("lease/fsck").await.is_none(), "an fsck that gave up leaves no lease");
    scene.agent.ask(json!({ "do": "refresh" })).await;

    let mut request = scene.ours.acquire_fsck().reason("check");
    let mut progress = request.progress();
    let fsck = tokio::spawn(async move { request.await });
    let waiting = progress.next().await.expect("progress");
    assert_eq!(waiting.waiting_for[0].id, theirs["id"]);
    assert!(!fsck.is_finished());
    scene.agent.ask(json!({ "do": "release" })).await;
    let fsck = fsck.await.unwrap().expect("granted");
    assert_eq!(fsck.generation(), 1);

    assert_locked(&scene.agent.refused(json!({ "do": "acquire_writer" })).await, "fsck");
    assert_locked(&scene.agent.refused(json!({ "do": "acquire_fsck" })).await, "already has an fsck lease");
    assert_locked(&scene.agent.refused(json!({ "do": "acquire_fsck", "force": true })).await, "fresh");
    assert_locked(&scene.agent.refused(json!({ "do": "clear_stale_lock" })).await, "fresh");
    fsck.check().expect("none of that was for us");
    let none = scene.ours.status().await.unwrap().writers;
    assert!(none.is_empty(), "a refused writer withdraws: {none:?}");

    fsck.release().await.unwrap();
    let theirs = scene.agent.ask(json!({ "do": "acquire_writer" })).await;
    assert_eq!(theirs["generation"], 1, "the generation that our fsck raised");
}

#[tokio::test]
async fn a_writer_of_ours_holds_their_fsck_off_and_is_drained() {
    let mut scene = Scene::new().await;
    let writer = scene.ours.acquire_writer().await.unwrap();

    scene.agent.send(&json!({ "do": "acquire_fsck" }));
    is_draining(&scene).await;
    assert!(scene.agent.answer_so_far().is_none(), "their fsck was granted beside our writer");
    writer.check().expect("an fsck that drains takes nothing away");
    let status = scene.ours.status().await.unwrap();
    assert_eq!(status.state, StoreState::Draining);
    assert_peers(status.fsck.as_ref().unwrap());
    assert!(!status.writers[0].peer);

    let other = builder(&scene.database.uri()).connect().await.unwrap();
    assert_peers(fsck_held(&other.acquire_writer().await.unwrap_err()));
    assert_peers(fsck_held(&other.acquire_fsck().await.unwrap_err()));

    writer.release().await.unwrap();
    let theirs = scene.agent.answer().await.expect("their fsck is granted once our writer has gone");
    let status = scene.ours.status().await.unwrap();
    assert_eq!(status.state, StoreState::Exclusive);
    assert_eq!(status.fsck.unwrap().owner.as_deref(), theirs["owner"].as_str());
    assert_peers(fsck_held(&other.acquire_writer().await.unwrap_err()));

    let waiting = tokio::spawn(other.acquire_writer().wait(BOUND).into_future());
    scene.agent.ask(json!({ "do": "release" })).await;
    waiting.await.unwrap().expect("granted once their fsck has gone").release().await.unwrap();
}

#[tokio::test]
async fn writers_of_both_sides_write_at_once() {
    let mut scene = Scene::new().await;
    let ours = scene.ours.acquire_writer().await.unwrap();
    scene.agent.ask(json!({ "do": "acquire_writer" })).await;
    let mut seen = scene.ours.status().await.unwrap().writers;
    seen.sort_by_key(|lease| lease.peer);
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].holder.as_ref().unwrap().label.as_deref(), Some("ours"));
    assert_peers(&seen[1]);
    scene.agent.ask(json!({ "do": "save", "name": "a", "part": "b" })).await;
    ours.check().unwrap();
}

#[tokio::test]
async fn nobody_overlaps_in_a_tangle_of_both_sides() {
    tangle(database()).await;
}

#[tokio::test]
async fn nobody_overlaps_in_a_tangle_of_both_sides_on_a_standalone() {
    tangle(standalone_database()).await;
}

/// Two processes of theirs and two coordinators of ours take leases of both kinds as fast as they can.
async fn tangle(database: TestDatabase) {
    const ROUNDS: u64 = 25;
    let mut scene = Scene::on(database).await;
    let mut second = Agent::with_store(&scene.database).await;
    let raw = scene.database.raw().await;
    raw.collection("inside").insert_one(doc! { "_id": 0, "writer": 0, "fsck": 0 }).await.expect("insert");
    let tasks: Vec<_> = [1_u64, 2]
        .into_iter()
        .map(|seed| {
            let (uri, raw) = (scene.database.uri(), raw.clone());
            tokio::spawn(async move { contend(&builder(&uri).connect().await.unwrap(), &raw, ROUNDS, seed).await })
        })
        .collect();
    for (agent, seed) in [(&mut scene.agent, 3), (&mut second, 4)] {
        agent.send(&json!({ "do": "contend", "rounds": ROUNDS, "seed": seed }));
    }
    let mut granted = Vec::new();
    for agent in [&mut scene.agent, &mut second] {
        let seen = agent.answer().await.expect("contend");
        assert_eq!(seen["overlaps"], json!([]), "{seen}");
        granted.push(seen["granted"].as_u64().unwrap());
    }
    for task in tasks {
        granted.push(task.await.unwrap());
    }
    assert!(granted.iter().all(|granted| *granted > 0), "somebody was never let in: {granted:?}");
    let left = scene.ours.status().await.unwrap();
    assert!(left.fsck.is_none() && left.writers.is_empty(), "{left:?}");
}

async fn contend(ours: &Coordinator, raw: &mongodb::Database, rounds: u64, seed: u64) -> u64 {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut granted = 0;
    let give_up = tokio::time::Instant::now() + Duration::from_secs(90);
    while granted < rounds && tokio::time::Instant::now() < give_up {
        let refused = if chance.f64() < 0.3 {
            match ours.acquire_fsck().await {
                Ok(lease) => {
                    let inside = count(raw, "fsck", 1).await;
                    assert!(inside["writer"] == 0 && inside["fsck"] == 1, "our fsck is not alone: {inside}");
                    count(raw, "fsck", -1).await;
                    lease.release().await.err()
                }
                Err(error) => Some(error),
            }
        } else {
            match ours.acquire_writer().await {
                Ok(lease) => {
                    let inside = count(raw, "writer", 1).await;
                    assert!(inside["fsck"] == 0, "our writer is beside an fsck: {inside}");
                    count(raw, "writer", -1).await;
                    lease.release().await.err()
                }
                Err(error) => Some(error),
            }
        };
        match refused {
            None => granted += 1,
            Some(refused) => {
                // A refusal is quick and a drain is not: without a pause all tries would be spent on one fsck.
                fsck_held(&refused);
                tokio::time::sleep(Duration::from_millis(chance.u64(0..40))).await;
            }
        }
    }
    granted
}

/// Counts one more or one less inside, and says who is.
async fn count(raw: &mongodb::Database, kind: &str, by: i32) -> Value {
    let inside = raw
        .collection::<Document>("inside")
        .find_one_and_update(doc! { "_id": 0 }, doc! { "$inc": { kind: by } })
        .return_document(mongodb::options::ReturnDocument::After)
        .await
        .expect("count")
        .expect("the document");
    json!({ "writer": inside.get_i32("writer").unwrap(), "fsck": inside.get_i32("fsck").unwrap() })
}
