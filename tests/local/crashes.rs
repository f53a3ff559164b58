//! Killed at each named point of acquiring, publishing and releasing: whoever comes next goes on at once.

use std::os::unix::process::ExitStatusExt;

use super::store::Store;

fn crash(store: &Store, point: &str, args: &[&str]) {
    let mut command = store.command(args);
    let status = command.env("LOCKHOUSE_CRASH_AT", point).stderr(std::process::Stdio::null()).status().unwrap();
    assert_eq!(status.signal(), Some(9), "{args:?} did not come to {point}: {status}");
}

fn goes_on(store: &Store, context: &str) {
    for args in [["run", "--", "true"], ["fsck", "--", "true"]] {
        let done = store.run(args);
        assert_eq!(done.code, 0, "after {context}: {done:?}");
    }
    assert!(store.writers().is_empty(), "after {context}: {:?}", store.writers());
    let left = std::fs::read_dir(store.leases("")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert!(left.is_empty(), "after {context}: {left:?}");
}

#[test]
fn a_writer_that_is_killed_at_any_point_is_in_nobodys_way() {
    let store = Store::new();
    for point in ["presence-created", "presence-locked", "presence-published", "releasing"] {
        crash(&store, point, &["run", "--", "true"]);
        goes_on(&store, point);
    }
}

#[test]
fn an_fsck_that_is_killed_at_any_point_is_in_nobodys_way() {
    let store = Store::new();
    let points = [
        "elected",
        "presence-created",
        "presence-locked",
        "presence-published",
        "replacement-written",
        "raised",
        "releasing",
        "presence-withdrawn",
    ];
    let mut generation = 0;
    for point in points {
        crash(&store, point, &["fsck", "--", "true"]);
        goes_on(&store, point);
        let now = store.status()["generation"].as_i64().unwrap();
        assert!(now > generation, "{point}: the generation never goes back");
        generation = now;
    }
}

#[test]
fn an_owner_that_is_killed_at_any_point_is_in_nobodys_way() {
    let store = Store::new();
    for point in ["elected", "presence-created", "presence-locked", "presence-published", "replacement-written"] {
        crash(&store, point, &["owner", "hold", "--", "true"]);
        store.run(["owner", "status"]).assert(0).out_says("no owner");
        let next = store.run(["owner", "hold", "--", "true"]);
        assert_eq!(next.code, 0, "after {point}: {next:?}");
        goes_on(&store, point);
    }
    store.run(["owner", "status"]).assert(0).out_says("no owner");
}

#[test]
fn an_init_that_is_killed_at_any_point_is_done_by_the_next_one() {
    for point in ["elected", "replacement-written"] {
        let store = Store::bare();
        crash(&store, point, &["init"]);
        store.run(["run", "--", "true"]).assert(78);
        store.run(["init"]).assert(0);
        goes_on(&store, point);
    }
}
