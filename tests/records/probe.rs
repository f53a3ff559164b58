//! The process that the tests start: this test binary once more, running the one test below, which takes its role
//! from its environment and ends with an exit code that no panic has.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use lockhouse::records::sqlite::SqliteTarget;
use lockhouse::records::{Source, Target};

use super::store::{ID, append, at, batch, ids, pauses, plain, rows, seqs, stands};

const ROLE: &str = "LOCKHOUSE_RECORDS_PROBE";
const STORE: &str = "LOCKHOUSE_RECORDS_PROBE_STORE";
/// It came to its end.
const DONE: i32 = 64;

/// The command line of a probe.
pub(crate) fn command(role: &str, store: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "probe::probe", "--nocapture"]).env(ROLE, role).env(STORE, store);
    command
}

/// Runs a probe that has to come to its end.
pub(crate) fn run(role: &str, store: &Path) {
    came_to_its_end(&command(role, store).output().unwrap());
}

pub(crate) fn came_to_its_end(output: &Output) {
    assert_eq!(output.status.code(), Some(DONE), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn probe() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = std::path::PathBuf::from(std::env::var_os(STORE).unwrap());
    match role.as_str() {
        "append" => append_one(&path),
        "find locked" => find_locked(&path),
        "fill the disk" => fill_the_disk(&path),
        other => panic!("no role {other}"),
    }
    std::process::exit(DONE);
}

/// The next batch of the instance `probe`, with one row; where it is killed, the environment says.
fn append_one(path: &Path) {
    let mut target = SqliteTarget::open(path, ID).unwrap();
    let seq = target.producer_seq("probe").unwrap() + 1;
    let schema = plain();
    let next = batch("probe", seq, std::slice::from_ref(&schema), vec![append("s", &schema, ids(&schema, [7]))]);
    target.append_batch(&next, at(0), &mut stands).unwrap();
}

fn find_locked(path: &Path) {
    let other = rusqlite::Connection::open(path).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    let error = other.execute_batch("BEGIN IMMEDIATE").expect_err("another process writes");
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "{error}");
}

/// On a small file system: the middle one of three entries does not fit.
fn fill_the_disk(path: &Path) {
    let schema = plain();
    let mut target = SqliteTarget::open(path, ID).unwrap();
    let some = |stream: &str, rows| append(stream, &schema, ids(&schema, rows));
    let first = batch("a", 1, std::slice::from_ref(&schema), vec![some("s", 0..10)]);
    target.append_batch(&first, at(0), &mut stands).unwrap();
    let entries = vec![some("s", 10..20), some("t", 0..200_000), some("u", 0..10)];
    let second = batch("a", 2, std::slice::from_ref(&schema), entries);
    let why = pauses(target.append_batch(&second, at(0), &mut stands));
    assert!(why.contains("disk"), "{why}");
    // Nothing half, nothing counted, on this connection and on another.
    let reader = SqliteTarget::open_read_only(path, ID).unwrap().unwrap();
    for source in [&target as &dyn Source, &reader] {
        assert_eq!(seqs(&rows(source, "s")), (1..=10).collect::<Vec<_>>());
        assert!(rows(source, "t").is_empty() && rows(source, "u").is_empty());
        assert_eq!(source.producer_seq("a").unwrap(), 1);
        assert_eq!(source.batch_outcome("a.2").unwrap(), None);
    }
    drop(reader);
    // Later there is room, and the same seq is applied.
    let second = batch("a", 2, std::slice::from_ref(&schema), vec![some("s", 10..20)]);
    std::fs::remove_file(path.with_file_name("filler")).unwrap();
    target.append_batch(&second, at(1), &mut stands).unwrap();
    assert_eq!(rows(&target, "s").len(), 20);
}
