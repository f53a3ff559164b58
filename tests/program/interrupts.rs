//! Signals at each stage.

use mongodb::bson::doc;
use nix::sys::signal::Signal;

use super::program::{FOR_LONG, STALE, Store, UNTIL_EOF};
use super::support::running::lives;

#[test]
fn while_it_waits() {
    let store = Store::new();
    let fsck = store.wrapped(&["fsck"], UNTIL_EOF);
    for (command, signal, code) in
        [("run", Signal::SIGINT, 130), ("fsck", Signal::SIGTERM, 143), ("run", Signal::SIGHUP, 129)]
    {
        let mut waiter = store.start([command, "--wait", "60s", "--", "echo", "got in"]);
        waiter.until_err("in the way");
        waiter.signal(signal);
        let ran = waiter.finish().assert(code);
        assert_eq!(ran.out, "");
        ran.says("nothing is held");
    }
    fsck.finish().assert(0);
    let status = store.status();
    assert_eq!((&status["state"], &status["writers"]), (&"open".into(), &serde_json::json!([])));
}

#[test]
fn while_it_drains() {
    let store = Store::new();
    let writer = store.wrapped(&["run"], UNTIL_EOF);
    let fsck = store.start(["--json", "fsck", "--", "true"]);
    store.until("a drain", |status| status["state"] == "draining");
    fsck.signal(Signal::SIGINT);
    let ran = fsck.finish().assert(130);
    assert_eq!(ran.error()["error"]["kind"], "Interrupted");
    assert_eq!(ran.error()["error"]["signal"], 2);
    // The store had confirmed that when the program ended.
    assert_eq!(store.status()["state"], "open");
    writer.finish().assert(0);
}

#[test]
fn while_the_command_runs_it_is_the_commands() {
    let store = Store::new();
    let script = "trap 'echo cleaning; exit 5' TERM INT; echo started; while :; do sleep 0.05; done";
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut writer = store.start(["run", "--", "sh", "-c", script]);
        writer.until_out("started");
        writer.signal(signal);
        let ran = writer.finish().assert(5);
        assert!(ran.out.contains("cleaning"), "{ran:?}");
        assert_eq!(store.status()["writers"], serde_json::json!([]));
    }
}

#[test]
fn a_second_one_while_the_lease_settles_leaves_at_once() {
    let store = Store::new();
    let mut writer = store.wrapped(&["run", "--settle", "60s"], FOR_LONG);
    let command = writer.command_pid();
    writer.signal(Signal::SIGTERM);
    writer.until_err("signal 15 ended the command");
    assert!(!lives(command));
    // Kept, and refreshed.
    std::thread::sleep(STALE);
    assert_eq!(store.status()["writers"][0]["state"], "fresh");
    writer.signal(Signal::SIGTERM);
    writer.until_err("again to leave at once");
    writer.signal(Signal::SIGTERM);
    let ran = writer.finish().assert(143);
    assert!(ran.took < STALE, "{ran:?}");
    ran.says("looks fresh until").says("lockhouse prune");
    assert_eq!(store.status()["writers"].as_array().unwrap().len(), 1);
}

#[test]
fn a_second_one_while_a_store_does_not_answer_leaves_at_once() {
    // Deletes fail from now on, so the withdrawal cannot be confirmed.
    let store = Store::new();
    let writer = store.wrapped(&["run"], UNTIL_EOF);
    let mut fsck = store.start(["fsck", "--", "true"]);
    store.until("a drain", |status| status["state"] == "draining");
    let fault = store.fail_deletes();
    fsck.signal(Signal::SIGINT);
    fsck.until_err("again to leave at once");
    fsck.signal(Signal::SIGINT);
    let ran = fsck.finish().assert(130);
    ran.says("may be left").says("lockhouse clear");
    drop(fault);
    writer.finish().assert(0);
}

#[test]
fn while_it_releases_it_finishes() {
    let store = Store::new();
    let mut writer = store.wrapped(&["run"], UNTIL_EOF);
    let fault = store.fail_deletes();
    writer.end();
    let command = writer.command_pid();
    // Reaped: until then a signal is the command's.
    super::support::poll::eventually_blocking(STALE, "the command to be reaped", || {
        if std::path::Path::new(&format!("/proc/{command}")).exists() { Err(()) } else { Ok(()) }
    });
    writer.signal(Signal::SIGINT);
    writer.until_err("giving the lease back");
    assert!(writer.is_running());
    drop(fault);
    writer.finish().assert(0);
    assert_eq!(store.status()["writers"], serde_json::json!([]));
}

#[test]
fn a_release_that_is_never_confirmed_is_said_and_keeps_the_commands_code() {
    let store = Store::new();
    let writer = store.wrapped(&["run"], UNTIL_EOF);
    let _fault = store.fail_deletes();
    let ran = writer.finish().assert(0);
    ran.says("is not confirmed");
    let left = store.behind(|leases| async move { leases.count_documents(doc! { "kind": "writer" }).await.unwrap() });
    assert_eq!(left, 1);
}
