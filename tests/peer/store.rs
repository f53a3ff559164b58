//! A store on which both are at work, and which coordinators may be there at all.

use lockhouse::{ErrorKind, Init, LeaseTiming};
use serde_json::json;

use super::*;
use crate::support::database::standalone_database;

#[tokio::test]
async fn a_store_is_theirs_after_we_were_at_work_on_it() {
    at_work_on(database()).await;
}

#[tokio::test]
async fn a_standalone_store_is_theirs_after_we_were_at_work_on_it() {
    at_work_on(standalone_database()).await;
}

async fn at_work_on(database: TestDatabase) {
    let mut scene = Scene::on(database).await;
    let first = scene.agent.ask(json!({ "do": "save", "name": "first", "part": "x" })).await;
    let layout = scene.stored("layout").await.unwrap();

    for round in 1..=2 {
        let fsck = scene.ours.acquire_fsck().reason("a check of ours").await.unwrap();
        assert_eq!(fsck.generation(), round);
        assert_locked(
            &scene.agent.refused(json!({ "do": "save", "name": "no", "part": "no" })).await,
            "locked by an fsck lease",
        );
        fsck.release().await.unwrap();
    }
    scene.ours.record("failed", None, Some("a line of ours".into())).await.unwrap();
    let writer = scene.ours.acquire_writer().reason("an import of ours").await.unwrap();
    let before = scene.stored(writer.identifier()).await.unwrap();

    // Another process of theirs opens what we left, and writes beside our writer.
    let mut other = Agent::with_store(&scene.database).await;
    assert_eq!(other.ask(json!({ "do": "fetch", "sid": first })).await, json!(["first", "x"]));
    let second = other.ask(json!({ "do": "save", "name": "second", "part": "y" })).await;
    assert_eq!(scene.agent.ask(json!({ "do": "fetch", "sid": second })).await, json!(["second", "y"]));

    // Its check waits for our writer, and leaves what is ours.
    other.send(&json!({ "do": "fsck" }));
    eventually(BOUND, "their check to install its lease", || async {
        scene.stored("lease/fsck").await.ok_or("no lease yet")
    })
    .await;
    let mut after = scene.stored(writer.identifier()).await.expect("our writer's lease");
    let mut before = before;
    for document in [&mut before, &mut after] {
        document.remove("heartbeat").unwrap();
        document.get_document_mut("lockhouse").unwrap().remove("beats").unwrap();
    }
    assert_eq!(before, after);
    assert!(other.answer_so_far().is_none());
    writer.release().await.unwrap();
    let checked = other.answer().await.expect("their check");
    assert_eq!(checked, json!({ "generation": 3, "violations": [], "repaired": 0, "deleted": 0 }));

    // Garbage of theirs goes, nothing of ours does.
    assert_eq!(other.ask(json!({ "do": "forget", "sid": first })).await, 1);
    let swept = other.ask(json!({ "do": "fsck" })).await;
    assert_eq!((&swept["generation"], &swept["deleted"], &swept["violations"]), (&json!(4), &json!(1), &json!([])));
    let told: Vec<String> = scene.ours.history().await.unwrap().into_iter().map(|line| line.what).collect();
    for what in ["granted", "released", "failed"] {
        assert!(told.iter().any(|told| told == what), "{what} is missing in {told:?}");
    }
    let writer = scene.ours.acquire_writer().await.unwrap();
    assert_eq!(writer.generation(), 4, "the generation that their checks raised");

    // The layout is theirs: not a field more or less than they wrote.
    let mut raised = scene.stored("layout").await.unwrap();
    assert_eq!(raised.insert("generation", layout.get("generation").unwrap()), Some(4.into()), "of their type");
    assert_eq!(raised, layout);
}

#[tokio::test]
async fn a_coordinator_that_names_no_collection_is_refused_and_told_the_flag() {
    let scene = Scene::new().await;
    let refused = Coordinator::connect(&scene.database.uri()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let text = refused.to_string();
    assert!(text.contains(&format!("--collection {SHARED}")), "{text}");
    let names = scene.database.raw().await.list_collection_names().await.unwrap();
    assert!(!names.iter().any(|name| name == "lockhouse"), "it would keep them from sweeping: {names:?}");
}

/// Why the refusal does not offer another collection: theirs sweeps only where it knows every collection.
#[tokio::test]
async fn a_collection_beside_theirs_is_another_lock_and_keeps_them_from_sweeping() {
    let mut scene = Scene::new().await;
    let beside = Coordinator::builder(&scene.database.uri()).unwrap().collection("lockhouse").connect().await.unwrap();
    beside.init().await.unwrap();
    let fsck = beside.acquire_fsck().await.unwrap();
    let checked = scene.agent.ask(json!({ "do": "fsck" })).await;
    fsck.check().expect("two names are two locks");
    assert!(checked["violations"].to_string().contains("sweep aborted"), "{checked}");
}

#[tokio::test]
async fn no_stale_age_is_above_theirs() {
    let scene = Scene::new().await;
    assert_eq!(scene.ours.timing(), LeaseTiming::default());
    let nine = LeaseTiming { refresh_interval: Duration::from_secs(3), stale_multiplier: 3, ..LeaseTiming::default() };
    for timing in [nine, LeaseTiming::for_failover()] {
        let refused = builder(&scene.database.uri()).timing(timing).connect().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("at most 8s"), "{refused}");
    }
}

#[tokio::test]
async fn only_they_make_their_store() {
    let database = database();
    let ours = builder(&database.uri()).connect().await.unwrap();
    let refusals = [
        ours.init().await.unwrap_err(),
        ours.acquire_writer().await.unwrap_err(),
        ours.acquire_fsck().await.unwrap_err(),
    ];
    for refused in refusals {
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("open the store with httk-store first"), "{refused}");
    }
    assert_eq!(ours.status().await.unwrap().generation, None);

    let _agent = Agent::with_store(&database).await;
    assert_eq!(ours.init().await.unwrap(), Init::AlreadyThere);
    ours.acquire_writer().await.expect("the store is there").release().await.unwrap();
}
