//! `clear` and `prune`.

use mongodb::bson::doc;

use super::program::{STALE, Store, UNTIL_EOF};

fn stale(status: &serde_json::Value) -> bool {
    let writers = status["writers"].as_array().unwrap();
    !writers.is_empty() && writers.iter().all(|writer| writer["state"] == "stale")
}

#[test]
fn a_dead_writer_from_its_death_to_the_next_fsck() {
    let store = Store::new();
    let id = store.dead_writer("victim");
    store.until("a stale writer", stale);
    let ran = store.run(["status"]).assert(81);
    assert!(ran.out.contains("lockhouse prune"), "{ran:?}");
    assert!(ran.out.contains(&id), "{ran:?}");
    store.run(["fsck", "--", "true"]).assert(75).says(&id);

    let before = store.content();
    let ran = store.run(["prune", "--dry-run"]).assert(0);
    assert!(ran.out.contains(&id) && ran.out.contains("would"), "{ran:?}");
    assert_eq!(store.content(), before);

    let ran = store.run(["prune"]).assert(0);
    assert!(ran.took >= STALE, "it was watched for its whole stale age: {ran:?}");
    assert!(ran.out.contains("removed") && ran.out.contains(&id), "{ran:?}");
    ran.says("watching for 2 s").says("db.currentOp()");

    let ran = store.run(["prune"]).assert(0);
    assert!(ran.out.contains("nothing to do"), "{ran:?}");
    store.run(["fsck", "--", "true"]).assert(0);
    store.run(["status"]).assert(0);
}

#[test]
fn nothing_to_clear_is_no_failure() {
    let store = Store::new();
    for verb in ["clear", "prune"] {
        let ran = store.run([verb]).assert(0);
        assert!(ran.out.contains("nothing to do"), "{ran:?}");
        let ran = store.run([verb, "--json"]).assert(0).json();
        assert_eq!(ran["cleared"], serde_json::json!([]));
        let ran = store.run([verb, "lease/nobody"]).assert(0);
        ran.says("lease/nobody: there is no such lease");
    }
}

#[test]
fn the_living_are_spared() {
    let store = Store::new();
    let writer = store.wrapped(&["run", "--label", "alive"], UNTIL_EOF);
    let id = store.writer_of("alive");
    store.run(["prune"]).assert(0);
    store.run(["prune", &id]).assert(75).says("not dead");
    writer.finish().assert(0);
    let fsck = store.wrapped(&["fsck"], UNTIL_EOF);
    store.run(["clear"]).assert(75).says("fresh");
    fsck.finish().assert(0);
}

#[test]
fn of_several_only_the_named_one_goes() {
    let store = Store::new();
    let first = store.dead_writer("first");
    let second = store.dead_writer("second");
    store.until("two stale writers", |status| stale(status) && status["writers"].as_array().unwrap().len() == 2);
    let ran = store.run(["prune", "--json", &first]).assert(0);
    let object = ran.json();
    assert_eq!(object["schema"], 1);
    assert_eq!(object["dry_run"], false);
    assert_eq!(object["cleared"][0]["id"], *first);
    assert_eq!(object["cleared"].as_array().unwrap().len(), 1);
    let events = ran.events();
    assert_eq!(events[0]["event"], "watching");
    assert_eq!(events[0]["for_ms"], 2000);
    assert_eq!(events[0]["leases"][0]["id"], *first);
    assert_eq!(store.status()["writers"][0]["id"], *second);
}

#[test]
fn leases_of_any_shape_can_be_cleared() {
    let store = Store::new();
    store.behind(|leases| async move {
        for lease in [
            doc! { "_id": "lease/nothing", "kind": "writer" },
            doc! { "_id": "lease/null", "kind": "writer", "owner": "x", "heartbeat": null },
            doc! { "_id": "lease/text", "kind": "writer", "owner": 7, "heartbeat": "yesterday" },
        ] {
            leases.insert_one(lease).await.unwrap();
        }
    });
    let ran = store.run(["status"]).assert(81);
    for id in ["lease/nothing", "lease/null", "lease/text"] {
        assert!(ran.out.contains(id), "{id}: {ran:?}");
    }
    store.run(["fsck", "--", "true"]).assert(75).says("lease/text");
    let ran = store.run(["prune", "--peer-is-dead"]).assert(0);
    assert_eq!(ran.out.matches("removed").count(), 3, "{ran:?}");
    store.run(["fsck", "--", "true"]).assert(0);
}

#[test]
fn a_peers_lease_is_taken_only_on_a_persons_word() {
    let store = Store::new();
    store.behind(|leases| async move {
        let old = mongodb::bson::DateTime::from_millis(1_000_000);
        let lease = doc! { "_id": "lease/peer", "kind": "writer", "owner": "peer", "heartbeat": old };
        leases.insert_one(lease).await.unwrap();
    });
    let ran = store.run(["status"]).assert(81);
    assert!(ran.out.contains("prune --peer-is-dead"), "{ran:?}");
    store.run(["prune"]).assert(75).says("--peer-is-dead");
    let ran = store.run(["prune", "--peer-is-dead"]).assert(0);
    assert!(ran.out.contains("lease/peer"), "{ran:?}");
}
