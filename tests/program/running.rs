//! A command under a lease.

use std::collections::BTreeMap;
use std::time::Duration;

use mongodb::bson::doc;

use super::program::{FOR_LONG, STALE, Store, UNTIL_EOF};
use super::support::poll::eventually_blocking;
use super::support::running::lives;

#[test]
fn the_commands_exit_code_passes_through() {
    let store = Store::new();
    for code in [0, 1, 37, 255] {
        let script = format!("exit {code}");
        let ran = store.run(["run", "--", "sh", "-c", &script]).assert(code);
        assert_eq!(ran.err, "", "a wrapper that works is silent");
    }
    store.run(["fsck", "--", "sh", "-c", "exit 37"]).assert(37);
    assert_eq!(store.status()["writers"], serde_json::json!([]));
}

#[test]
fn a_signal_shows_as_128_and_its_number_and_the_lease_is_kept_for_a_while() {
    let store = Store::new();
    let ran = store.run(["run", "--", "sh", "-c", "kill -9 $$"]).assert(137);
    assert!(ran.took >= STALE, "{ran:?}");
    let ran = ran.says("signal 9 ended the command").says("--settle");
    let _ = ran;
    let ran = store.run(["run", "--settle", "0", "--", "sh", "-c", "kill -15 $$"]).assert(143);
    assert!(ran.took < STALE, "{ran:?}");
    assert_eq!(ran.err, "");
}

#[test]
fn a_command_that_is_not_there_or_cannot_be_executed() {
    let store = Store::new();
    let ran = store.run(["run", "--", "no-such-command"]).assert(127);
    ran.says("no-such-command was not found");
    let ran = store.run(["run", "--", "/etc/passwd"]).assert(126);
    ran.says("/etc/passwd cannot be executed");
    let ran = store.run(["run", "--json", "--", "no-such-command"]).assert(127);
    assert_eq!(ran.error()["error"]["kind"], "CommandNotFound");
    assert_eq!(store.status()["state"], "open");
}

#[test]
fn a_writer_under_way_is_seen() {
    let store = Store::new();
    let writer = store.wrapped(&["run", "--label", "import", "--reason", "night run"], UNTIL_EOF);
    let status = store.status();
    let lease = &status["writers"][0];
    assert_eq!(status["state"], "open");
    assert_eq!(lease["holder"]["label"], "import");
    assert_eq!(lease["holder"]["pid"], writer.pid().as_raw());
    assert_eq!(lease["reason"], "night run");
    assert_eq!(lease["state"], "fresh");
    store.run(["status"]).assert(0);
    writer.finish().assert(0);
    assert_eq!(store.status()["writers"], serde_json::json!([]));
}

#[test]
fn the_command_finds_its_lease_in_its_environment() {
    let store = Store::new();
    let variables = |words: &[&str]| {
        let ran = store.run(words.iter().chain(&["--", "env"])).assert(0);
        let lines = ran.out.lines().filter_map(|line| line.split_once('='));
        let own = lines.filter(|(name, _)| name.starts_with("LOCKHOUSE_"));
        own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
    };
    let writer = variables(&["run"]);
    assert_eq!(writer["LOCKHOUSE_STORE"], store.url);
    assert!(writer["LOCKHOUSE_LEASE"].starts_with("lease/"));
    assert_eq!(writer["LOCKHOUSE_OWNER"].len(), 36);
    assert_eq!(writer["LOCKHOUSE_GENERATION"], "0");
    assert!(!writer.contains_key("LOCKHOUSE_COLLECTION"));
    let fsck = variables(&["fsck"]);
    assert_eq!(fsck["LOCKHOUSE_LEASE"], "lease/fsck");
    assert_eq!(fsck["LOCKHOUSE_GENERATION"], "1");
    let unchanged = variables(&["fsck", "--no-bump"]);
    assert_eq!(unchanged["LOCKHOUSE_GENERATION"], "1");
    let named = variables(&["run", "--collection", "lockhouse"]);
    assert_eq!(named["LOCKHOUSE_COLLECTION"], "lockhouse");
}

#[test]
fn a_wrapper_inside_a_wrapper_of_the_same_store_would_wait_for_itself() {
    let store = Store::new();
    let program = env!("CARGO_BIN_EXE_lockhouse");
    for outer in ["run", "fsck"] {
        for inner in ["run", "fsck"] {
            let words = [outer, "--", program, inner, "--wait", "60s", "--", "true"];
            let ran = store.run(words).assert(78);
            assert!(ran.took < Duration::from_secs(10), "{ran:?}");
            ran.says("would wait for itself");
        }
    }
    let words = ["run", "--", program, "--json", "run", "--", "true"];
    let ran = store.run(words).assert(78);
    assert_eq!(ran.error()["error"]["kind"], "Invalid");
    // Looking does not wait.
    store.run(["run", "--", program, "status"]).assert(0);
}

#[test]
fn a_wrapper_of_another_store_in_between_hides_nothing() {
    let (store, other) = (Store::new(), Store::new());
    let program = env!("CARGO_BIN_EXE_lockhouse");
    let inner = [program, "run", "--store", &store.url, "--", "true"];
    let words = ["run", "--", program, "run", "--store", &other.url, "--"];
    store.run(words.iter().chain(&inner)).assert(78);
    // A store of its own is no trouble.
    let words = ["run", "--", program, "run", "--store", &other.url, "--", "true"];
    store.run(words).assert(0);
}

#[test]
fn a_shell_that_outlived_its_wrapper_is_no_longer_inside() {
    let store = Store::new();
    let ran = store.run(["run", "--", "sh", "-c", "echo $LOCKHOUSE_OWNER"]);
    let mut later = store.command(["run", "--", "true"]);
    later.env("LOCKHOUSE_OWNER", ran.out.trim());
    super::program::Running::start(later).finish().assert(0);
}

#[test]
fn a_lost_lease_ends_the_command_with_80() {
    let store = Store::new();
    let mut writer = store.wrapped(&["run"], FOR_LONG);
    let command = writer.command_pid();
    store.behind(|leases| async move {
        leases.delete_many(doc! { "kind": "writer" }).await.unwrap();
    });
    writer.until_err("ending the command");
    let ran = writer.finish().assert(80);
    ran.says("was lost: it was removed or replaced");
    assert!(!lives(command));
}

#[test]
fn a_lost_lease_is_only_said_if_so_wished() {
    let store = Store::new();
    let mut writer = store.wrapped(&["--json", "run", "--on-lost", "warn"], UNTIL_EOF);
    store.behind(|leases| async move {
        leases.delete_many(doc! { "kind": "writer" }).await.unwrap();
    });
    writer.until_err("goes on without a lease");
    assert!(writer.is_running());
    writer.finish().assert(0).events();
}

#[test]
fn a_killed_wrapper_takes_its_command_along_and_leaves_a_lease() {
    let store = Store::new();
    let mut writer = store.wrapped(&["run", "--label", "victim"], FOR_LONG);
    let command = writer.command_pid();
    assert!(lives(command));
    writer.kill();
    eventually_blocking(Duration::from_secs(1), "the command to be dead", || {
        if lives(command) { Err(()) } else { Ok(()) }
    });
    let status = store.until("a stale writer", |status| status["writers"][0]["state"] == "stale");
    assert_eq!(status["state"], "open");
    store.run(["status"]).assert(81);
    // Writers are shared: the next one gets in.
    store.run(["run", "--", "true"]).assert(0);
}

#[test]
fn a_store_without_a_layout_is_named() {
    let store = Store::bare();
    let ran = store.run(["run", "--", "true"]).assert(78);
    ran.says("lockhouse init");
    store.run(["fsck", "--", "true"]).assert(78);
    let ran = store.run(["status"]).assert(81);
    assert!(ran.out.contains("lockhouse init"), "{ran:?}");
    let ran = store.run(["init"]).assert(0);
    assert!(ran.out.contains("is ready"), "{ran:?}");
    let ran = store.run(["init", "--json"]).assert(0);
    assert_eq!(ran.json()["made"], false);
    store.run(["run", "--", "true"]).assert(0);
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    let mut command = super::program::program(["run", "--", "true"]);
    command.env("LOCKHOUSE_STORE", "mongodb://127.0.0.1:9/shop?serverSelectionTimeoutMS=300");
    let ran = super::program::Running::start(command).finish().assert(69);
    ran.says("127.0.0.1:9/shop");
}
