//! `--wait`.

use std::time::Duration;

use super::program::{FOR_LONG, Store, UNTIL_EOF};

const SOON: Duration = Duration::from_secs(5);

#[test]
fn trying_once_succeeds_on_a_free_store_and_fails_at_once_on_a_held_one() {
    let store = Store::new();
    let ran = store.run(["run", "--wait", "0", "--", "true"]).assert(0);
    assert!(ran.took < SOON, "{ran:?}");
    let _fsck = store.wrapped(&["fsck", "--reason", "check"], FOR_LONG);
    for command in ["run", "fsck"] {
        let ran = store.run([command, "--wait", "0", "--", "true"]).assert(75);
        assert!(ran.took < SOON, "{ran:?}");
        let ran = ran.says("check").says("since 20").says("fresh");
        ran.says("--wait 60s");
    }
}

#[test]
fn a_waiter_gets_in_when_the_fsck_has_gone_and_says_meanwhile_who_is_there() {
    let store = Store::new();
    let mut fsck = store.wrapped(&["fsck", "--reason", "long check"], UNTIL_EOF);
    let mut writer = store.start(["run", "--wait", "60s", "--", "echo", "got in"]);
    writer.until_err("an fsck is in the way");
    writer.until_err("long check");
    assert!(writer.is_running());
    fsck.end();
    writer.until_out("got in");
    writer.finish().assert(0);
    fsck.finish().assert(0);
}

#[test]
fn a_waiter_gets_in_whether_it_is_told_or_asks() {
    let store = Store::new();
    for watch in ["auto", "always", "never"] {
        let mut fsck = store.wrapped(&["fsck", "--watch", watch], UNTIL_EOF);
        let mut writer = store.start(["run", "--watch", watch, "--wait", "60s", "--", "echo", "got in"]);
        writer.until_err("an fsck is in the way");
        fsck.end();
        writer.until_out("got in");
        writer.finish().assert(0);
        fsck.finish().assert(0);
    }
    store.run(["run", "--watch", "often", "--", "true"]).assert(64).says("auto, always, never");
}

#[test]
fn the_wait_is_bounded() {
    let store = Store::new();
    let _fsck = store.wrapped(&["fsck", "--reason", "check"], FOR_LONG);
    let ran = store.run(["--json", "run", "--wait", "2500ms", "--", "true"]).assert(75);
    assert!(ran.took >= Duration::from_millis(2500) && ran.took < 2 * SOON, "{ran:?}");
    let events = ran.events();
    let waiting = events.iter().find(|event| event["event"] == "waiting");
    let waiting = waiting.unwrap();
    assert_eq!(waiting["behind"]["reason"], "check");
    assert_eq!(waiting["stale"], false);
    assert!(waiting["waited_ms"].as_u64().unwrap() >= 2000);
    assert!(waiting["left_ms"].as_u64().unwrap() <= 500);
}

#[test]
fn a_waiter_behind_a_stale_fsck_says_so_at_once_and_goes_on_waiting() {
    let store = Store::new();
    let mut fsck = store.wrapped(&["fsck"], FOR_LONG);
    fsck.kill();
    store.until("a stale fsck", |status| status["state"] == "blocked");
    let mut writer = store.start(["run", "--wait", "60s", "--", "echo", "got in"]);
    writer.until_err("will not go away by itself");
    writer.until_err("lockhouse clear");
    store.run(["clear"]).assert(0);
    writer.until_out("got in");
    writer.finish().assert(0);
}
