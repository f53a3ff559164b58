//! The JSON forms, field by field. What is tested here is promised to other programs.

use serde_json::{Value, json};

use super::program::{FOR_LONG, Store, UNTIL_EOF};

fn fields(value: &Value) -> Vec<&str> {
    let mut fields: Vec<&str> =
        value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}

const LEASE: [&str; 14] = [
    "acquired",
    "age_ms",
    "clock_behind",
    "heartbeat",
    "holder",
    "id",
    "kind",
    "owner",
    "peer",
    "phase",
    "reason",
    "refresh_interval_ms",
    "stale_after_ms",
    "state",
];

fn is_lease(lease: &Value) {
    assert_eq!(fields(lease), LEASE);
    let holder = &lease["holder"];
    let of_holder = ["boot_id", "host", "label", "pid", "program", "user"];
    assert_eq!(fields(holder), of_holder);
    assert!(holder["pid"].as_u64().unwrap() > 1);
    assert_eq!(holder["program"], "lockhouse");
    assert_eq!(holder["boot_id"].as_str().unwrap().len(), 36);
    assert!(lease["age_ms"].as_u64().unwrap() < 60_000);
    assert_eq!(lease["refresh_interval_ms"], 500);
    assert_eq!(lease["stale_after_ms"], 2000);
    assert_eq!(lease["clock_behind"], false);
    assert_eq!(lease["peer"], false);
    assert_eq!(lease["owner"].as_str().unwrap().len(), 36);
    for time in ["acquired", "heartbeat"] {
        let time = lease[time].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    }
}

#[test]
fn status() {
    let store = Store::new();
    let status = store.status();
    let of_status = ["backend", "fsck", "generation", "now", "owner", "schema", "spool", "state", "store", "writers"];
    assert_eq!(fields(&status), of_status);
    assert_eq!(status["schema"], 1);
    assert_eq!(status["backend"], "mongodb");
    assert_eq!(status["generation"], 0);
    assert_eq!(status["state"], "open");
    assert_eq!(status["fsck"], Value::Null);
    assert_eq!(status["writers"], json!([]));
    assert_eq!((&status["owner"], &status["spool"]), (&Value::Null, &Value::Null));
    assert!(status["now"].as_str().unwrap().ends_with('Z'));
    assert!(status["store"].as_str().unwrap().ends_with(".lockhouse"));

    let writer = store.wrapped(&["run", "--label", "l"], UNTIL_EOF);
    let lease = store.status()["writers"][0].clone();
    is_lease(&lease);
    assert!(lease["id"].as_str().unwrap().starts_with("lease/"));
    assert_eq!(lease["kind"], "writer");
    assert_eq!(lease["state"], "fresh");
    assert_eq!(lease["holder"]["label"], "l");
    assert_eq!((&lease["phase"], &lease["reason"]), (&Value::Null, &Value::Null));
    let fsck = store.start(["fsck", "--reason", "r", "--", "cat"]);
    let draining = store.until("a drain", |status| status["state"] == "draining");
    is_lease(&draining["fsck"]);
    assert_eq!(draining["fsck"]["id"], "lease/fsck");
    assert_eq!(draining["fsck"]["kind"], "fsck");
    assert_eq!(draining["fsck"]["phase"], "draining");
    assert_eq!(draining["fsck"]["reason"], "r");
    assert_eq!(draining["fsck"]["holder"]["label"], "cat");
    writer.finish().assert(0);
    let exclusive = store.until("the grant", |status| status["state"] == "exclusive");
    assert_eq!(exclusive["fsck"]["phase"], "exclusive");
    assert_eq!(exclusive["generation"], 1);
    fsck.finish().assert(0);
}

#[test]
fn refusals() {
    let store = Store::new();
    let fsck = store.wrapped(&["fsck", "--reason", "check"], UNTIL_EOF);
    let ran = store.run(["run", "--json", "--", "true"]).assert(75);
    let error = ran.error();
    assert_eq!(fields(&error), ["error", "schema"]);
    assert_eq!(error["schema"], 1);
    let error = &error["error"];
    let of_error = ["cause", "exit_code", "kind", "lease", "message", "retryable", "stale", "store"];
    assert_eq!(fields(error), of_error);
    assert_eq!(error["kind"], "StoreLocked");
    assert_eq!(error["cause"], "FsckHeld");
    assert_eq!(error["stale"], false);
    assert_eq!(error["retryable"], true);
    assert_eq!(error["exit_code"], 75);
    is_lease(&error["lease"]);
    let error = store.run(["clear", "--json"]).assert(75).error();
    assert_eq!(error["error"]["cause"], "FsckFresh");
    is_lease(&error["error"]["lease"]);
    fsck.finish().assert(0);

    let _writer = store.wrapped(&["run"], FOR_LONG);
    let words = ["fsck", "--json", "--drain-budget", "100ms", "--", "true"];
    let error = store.run(words).assert(76).error()["error"].clone();
    assert_eq!(error["kind"], "DrainTimeout");
    assert_eq!(error["budget_ms"], 100);
    is_lease(&error["writers"][0]);

    let bare = Store::bare();
    let error = bare.run(["run", "--json", "--", "true"]).assert(78).error()["error"].clone();
    assert_eq!(fields(&error), ["exit_code", "kind", "message", "retryable", "store"]);
    assert_eq!(error["kind"], "Invalid");
}

#[test]
fn a_loss() {
    let store = Store::new();
    let writer = store.wrapped(&["run", "--json"], FOR_LONG);
    store.behind(|leases| async move {
        leases.delete_many(mongodb::bson::doc! { "kind": "writer" }).await.unwrap();
    });
    let error = writer.finish().assert(80).error()["error"].clone();
    let of_loss = ["exit_code", "kind", "lease_id", "lease_kind", "message", "retryable", "store", "why"];
    assert_eq!(fields(&error), of_loss);
    assert_eq!(error["kind"], "LeaseLost");
    assert_eq!(error["why"], "displaced");
    assert_eq!(error["lease_kind"], "writer");
}

#[test]
fn history() {
    let store = Store::new();
    assert_eq!(store.run(["history", "--json"]).assert(0).out, "");
    let words = ["fsck", "--reason", "check", "--label", "l", "--", "false"];
    store.run(words).assert(1);
    // The last line is written behind the verb's back.
    let lines = super::support::poll::eventually_blocking(super::program::PATIENCE, "three lines", || {
        let ran = store.run(["history", "--json"]).assert(0);
        let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if lines.len() == 3 { Ok(lines) } else { Err(lines) }
    });
    for line in &lines {
        assert_eq!(fields(line), ["at", "holder", "lease", "reason", "schema", "what"]);
        assert_eq!(line["schema"], 1);
        assert_eq!(line["lease"], "lease/fsck");
        assert_eq!(line["holder"]["label"], "l");
    }
    let what: Vec<&Value> = lines.iter().map(|line| &line["what"]).collect();
    assert_eq!(what, ["granted", "job-failed", "released"]);
    assert_eq!(lines[1]["reason"], "exit code 1: check");
}
