//! Killed at the commit, and a full disk: the store is as before or as after.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use lockhouse::records::Source;
use lockhouse::records::sqlite::SqliteTarget;

use super::probe;
use super::store::{ID, Store, rows};
use crate::support::scratch::Scratch;

fn killed(point: &str, path: &std::path::Path) {
    let output = probe::command("append", path).env("LOCKHOUSE_CRASH_AT", point).output().unwrap();
    assert_eq!(output.status.signal(), Some(9), "{point}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn killed_before_the_commit_nothing_is_there_and_after_it_all() {
    let store = Store::new();
    for (point, expected) in [("records-applied", 0), ("records-committed", 1), ("records-applied", 1)] {
        killed(point, &store.path());
        for target in [store.reader(), SqliteTarget::open(&store.path(), ID).unwrap()] {
            assert_eq!(rows(&target, "s").len(), expected, "{point}");
            assert_eq!(target.producer_seq("probe").unwrap(), expected as u64, "{point}");
        }
    }
    probe::run("append", &store.path());
    assert_eq!(store.rows("s").len(), 2);
}

#[test]
fn killed_while_it_is_made_the_next_one_makes_it() {
    let scratch = Scratch::new("crash");
    let path = scratch.path().join("store");
    killed("records-migrated", &path);
    assert!(SqliteTarget::open_read_only(&path, ID).unwrap().is_none());
    probe::run("append", &path);
    let reader = SqliteTarget::open_read_only(&path, ID).unwrap().unwrap();
    assert_eq!(rows(&reader, "s").len(), 1);
}

#[test]
fn a_full_disk_pauses_a_batch_and_counts_nothing() {
    let scratch = Scratch::new("full");
    let script = r#"
        mount -t tmpfs -o size=2m,mode=700 none "$D"
        head -c 1m /dev/zero > "$D/filler"
        exec "$0" "$@"
    "#;
    let probe = probe::command("fill the disk", &scratch.path().join("store"));
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--propagation", "private", "sh", "-euc", script]);
    command.arg(probe.get_program()).args(probe.get_args()).env("D", scratch.path());
    command.envs(probe.get_envs().filter_map(|(name, value)| Some((name, value?))));
    probe::came_to_its_end(&command.output().unwrap());
}
