//! `run` and `fsck` keep each other out exactly as on a server; the kernel knows who is gone.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::store::{FOR_LONG, Store, UNTIL_EOF};

#[test]
fn writers_share_and_an_fsck_waits_for_them() {
    let store = Store::new();
    let first = store.wrapped(&["run", "--label", "first"], UNTIL_EOF);
    let second = store.wrapped(&["run", "--label", "second"], UNTIL_EOF);
    assert_eq!(store.status()["writers"].as_array().unwrap().len(), 2);
    store.run(["fsck", "--drain-budget", "100ms", "--", "true"]).assert(76).says("first").says("second");
    let mut fsck = store.command(["fsck", "--reason", "check", "--"].iter().chain(&UNTIL_EOF));
    let mut fsck = super::store::Running::start(std::mem::replace(&mut fsck, std::process::Command::new("true")));
    store.until("an fsck that drains", |status| status["state"] == "draining");
    store.run(["run", "--", "true"]).assert(75).says("check");
    first.finish().assert(0);
    second.finish().assert(0);
    fsck.until_out("started");
    assert_eq!(store.status()["state"], "exclusive");
    store.run(["run", "--", "true"]).assert(75);
    store.run(["fsck", "--", "true"]).assert(75).says("check");
    fsck.finish().assert(0);
    store.run(["run", "--", "sh", "-c", "exit 37"]).assert(37);
    assert_eq!(store.status()["generation"], 1);
}

/// Its file stands still for as long as it lives, and that says nothing.
#[test]
fn a_drain_outlasts_any_stale_age() {
    let store = Store::new();
    let writer = store.wrapped(&["run", "--label", "patient"], UNTIL_EOF);
    let mut fsck = super::store::Running::start(store.command(["fsck", "--"].iter().chain(&UNTIL_EOF)));
    // A lease that says nothing of itself is given eight seconds.
    fsck.until_err("draining for 8 s");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(store.status()["state"], "draining");
    writer.finish().assert(0);
    fsck.until_out("started");
    fsck.finish().assert(0);
}

#[test]
fn whoever_is_killed_is_out_of_the_way_at_once() {
    let store = Store::new();
    for _ in 0..3 {
        let mut writer = store.wrapped(&["run"], FOR_LONG);
        writer.kill();
        let begin = Instant::now();
        store.run(["fsck", "--wait", "5s", "--", "true"]).assert(0);
        let mut fsck = store.wrapped(&["fsck"], FOR_LONG);
        fsck.kill();
        store.run(["run", "--wait", "5s", "--", "true"]).assert(0);
        store.run(["fsck", "--wait", "5s", "--", "true"]).assert(0);
        assert!(begin.elapsed() < Duration::from_secs(10), "took {:?}", begin.elapsed());
    }
    assert_eq!(store.status()["state"], "open");
    assert!(store.writers().is_empty(), "dead writers' files were removed on the way");
}

/// The lease of a stopped process is kept by the kernel, for ever: it still has the store.
#[test]
fn a_stopped_holder_keeps_its_lease() {
    let store = Store::new();
    let writer = store.wrapped(&["run", "--label", "asleep"], FOR_LONG);
    writer.signal(Signal::SIGSTOP);
    store.run(["fsck", "--drain-budget", "3s", "--", "true"]).assert(76).says("asleep");
    store.run(["prune"]).assert(0).out_says("nothing to do");
    writer.signal(Signal::SIGCONT);
    let status = store.run(["status", "--json"]).assert(0).json();
    assert_eq!(status["writers"][0]["state"], "fresh");
}

#[test]
fn a_wrapper_inside_a_wrapper_does_not_wait_for_itself() {
    let store = Store::new();
    let program = env!("CARGO_BIN_EXE_lockhouse");
    store.run(["run", "--", program, "fsck", "--", "true"]).assert(78).says("wait for itself");
    store.run(["fsck", "--", program, "run", "--wait", "9s", "--", "true"]).assert(78).says("wait for itself");
    store.run(["fsck", "--", program, "status"]).assert(75);
}

#[test]
fn a_released_or_dropped_lease_leaves_no_file_of_its_own() {
    let store = Store::new();
    store.run(["run", "--", "true"]).assert(0);
    store.run(["fsck", "--", "true"]).assert(0);
    assert!(store.writers().is_empty());
    let mut left: Vec<_> =
        std::fs::read_dir(store.leases("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["fsck.lock", "history.ndjson", "layout.json", "turn.json", "writers"]);
}

#[test]
fn the_history_tells_what_was_done() {
    let store = Store::new();
    store.run(["fsck", "--reason", "nightly", "--", "sh", "-c", "exit 3"]).assert(3);
    let history = store.run(["history", "--json"]).assert(0).out;
    for word in ["granted", "nightly", "job-failed", "exit code 3", "released"] {
        assert!(history.contains(word), "{word} is not in {history}");
    }
}
