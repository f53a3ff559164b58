//! `fsck` and its writers.

use super::program::{FOR_LONG, STALE, Store, UNTIL_EOF};

#[test]
fn writers_that_stay_are_named_and_the_store_is_free_afterwards() {
    let store = Store::new();
    let writer = store.wrapped(&["run", "--label", "slow import"], UNTIL_EOF);
    let id = store.writer_of("slow import");
    let ran = store
        .run(["fsck", "--drain-budget", "2500ms", "--", "true"])
        .assert(76)
        .says("slow import")
        .says(&id)
        .says("--drain-budget");
    // A line after two seconds, before it gave up.
    ran.says("draining for 2");
    let status = store.status();
    assert_eq!(status["fsck"], serde_json::Value::Null);
    assert_eq!(status["writers"].as_array().unwrap().len(), 1);
    store.run(["run", "--", "true"]).assert(0);
    writer.finish().assert(0);
    store.run(["fsck", "--", "true"]).assert(0);
}

#[test]
fn fsck_waits_for_its_writers_and_turns_new_ones_away() {
    let store = Store::new();
    let mut writer = store.wrapped(&["run", "--label", "first"], UNTIL_EOF);
    let mut fsck = store.start(["--json", "fsck", "--reason", "check", "--", "sh", "-c", "echo alone"]);
    store.until("a drain", |status| status["state"] == "draining");
    let ran = store.run(["run", "--", "true"]).assert(75);
    ran.says("is held by an fsck").says("check");
    fsck.until_err(r#""event":"draining""#);
    writer.end();
    fsck.until_out("alone");
    writer.finish().assert(0);
    let ran = fsck.finish().assert(0);
    let events = ran.events();
    let drain = events.iter().find(|event| event["event"] == "draining");
    let drain = drain.unwrap();
    assert_eq!(drain["schema"], 1);
    assert_eq!(drain["budget_ms"], 600_000);
    assert_eq!(drain["stale"], 0);
    assert_eq!(drain["waiting_for"][0]["holder"]["label"], "first");
}

#[test]
fn stale_writers_end_a_drain_unless_their_death_is_vouched_for() {
    let store = Store::new();
    let id = store.dead_writer("victim");
    store.until("a stale writer", |status| status["writers"][0]["state"] == "stale");
    let ran = store.run(["fsck", "--", "true"]).assert(75);
    ran.says("victim").says(&id).says("lockhouse prune");
    assert_eq!(store.status()["fsck"], serde_json::Value::Null);
    let ran = store.run(["fsck", "--force", "--", "true"]).assert(0);
    assert!(ran.took >= STALE / 2, "{ran:?}");
    assert_eq!(store.status()["writers"], serde_json::json!([]));
}

#[test]
fn a_dead_fsck_blocks_until_it_is_cleared_or_forced() {
    let store = Store::new();
    let mut fsck = store.wrapped(&["fsck", "--reason", "repair"], FOR_LONG);
    let ran = store.run(["fsck", "--force", "--", "true"]).assert(75);
    ran.says("fresh");
    store.run(["status"]).assert(75);
    fsck.kill();
    store.until("a stale fsck", |status| status["state"] == "blocked");
    store.run(["status"]).assert(81);
    let ran = store.run(["run", "--", "true"]).assert(75);
    ran.says("stale fsck lease").says("repair").says("lockhouse clear");
    let ran = store.run(["fsck", "--", "true"]).assert(75);
    ran.says("lockhouse clear");
    let ran = store.run(["fsck", "--force", "--", "true"]).assert(0);
    ran.says("watching for");
}

#[test]
fn how_a_job_failed_stays_to_be_seen() {
    let store = Store::new();
    store.run(["fsck", "--reason", "check", "--", "sh", "-c", "exit 3"]).assert(3);
    let ran = store.run(["status"]).assert(0);
    assert!(ran.out.contains("exit code 3: check"), "{ran:?}");
    let ran = store.run(["history"]).assert(0);
    assert!(ran.out.contains("job-failed"), "{ran:?}");
    store.run(["fsck", "--", "true"]).assert(0);
    let ran = store.run(["status"]).assert(0);
    assert!(!ran.out.contains("exit code 3"), "{ran:?}");
    let long = "x".repeat(4096);
    let words = ["fsck", "--reason", &long, "--", "sh", "-c", "exit 4"];
    let ran = store.run(words).assert(4);
    assert_eq!(ran.err, "");
    store.run(["fsck", "--", "no-such-command"]).assert(127);
    let ran = store.run(["status"]).assert(0);
    assert!(ran.out.contains("was not found"), "{ran:?}");
}
