//! What an fsck of these tests runs: this test binary once more, as the program below `lockhouse fsck`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::support::poll::eventually_blocking;
use crate::support::process::spawn_kept;

const ROLE: &str = "LOCKHOUSE_CHECKER_PROBE";
const STORE: &str = "LOCKHOUSE_CHECKER_PROBE_STORE";

/// How the file is put in the place of the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuild {
    /// Smaller: without what was deleted.
    Compact,
    /// With larger pages, and more of them.
    Larger,
}

/// Runs the real program with a check of the file below it. Returns how long the check had the store.
pub(crate) fn check(store: &Path) {
    fsck(store, "check");
}

/// The same, and puts another file with the same content in its place.
pub(crate) fn rebuild(store: &Path, how: Rebuild) {
    fsck(
        store,
        match how {
            Rebuild::Compact => "compact",
            Rebuild::Larger => "larger",
        },
    );
}

fn fsck(store: &Path, role: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockhouse"));
    command.args(["fsck", "--wait", "30s", "--drain-budget", "30s", "--reason", "test", "--"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "checker::checker", "--nocapture"]);
    command.env("LOCKHOUSE_STORE", store).env(ROLE, role).env(STORE, store);
    command.env_remove("LOCKHOUSE_CRASH_AT");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = spawn_kept(command).unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn beside(store: &Path, end: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// What is in the store's file and in its log; a log that is not there is an empty one.
fn content(store: &Path) -> (u64, u64) {
    // SQLite's locks are a process's: this one has none now.
    [store.to_owned(), beside(store, "-wal")]
        .map(|path| {
            let mut hasher = DefaultHasher::new();
            std::fs::read(path).unwrap_or_default().hash(&mut hasher);
            hasher.finish()
        })
        .into()
}

/// Not a test of its own: what an fsck of these tests runs.
#[test]
fn checker() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let store = PathBuf::from(std::env::var_os(STORE).unwrap());
    let before = content(&store);
    let connection = Connection::open_with_flags(&store, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let version = || connection.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap();
    let seen = version();
    let until = Instant::now() + Duration::from_millis(300);
    loop {
        let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
        if Instant::now() >= until {
            break;
        }
    }
    assert_eq!(version(), seen, "somebody has committed");
    drop(connection);
    assert_eq!(content(&store), before, "somebody has written");
    let new = beside(&store, ".new");
    match role.to_str().unwrap() {
        "check" => return,
        "compact" => into(&store, &new),
        "larger" => {
            into(&store, &new);
            enlarge(&new);
        }
        other => panic!("unknown role: {other}"),
    }
    assert_eq!(content(&store), before, "somebody has written");
    empty_the_log(&store);
    std::fs::File::open(&new).unwrap().sync_all().unwrap();
    std::fs::rename(&new, &store).unwrap();
    // What SQLite keeps beside the old file is not the new one's.
    for end in ["-wal", "-shm"] {
        let removed = std::fs::remove_file(beside(&store, end));
        assert!(removed.is_ok() || !beside(&store, end).exists());
    }
    std::fs::File::open(store.parent().unwrap()).unwrap().sync_all().unwrap();
}

/// An owner that was killed left its last commits in the log: over another file they would destroy it.
fn empty_the_log(store: &Path) {
    let connection = Connection::open(store).unwrap();
    eventually_blocking(Duration::from_secs(30), "the log to be in the file", || {
        match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)) {
            Ok(0) => Ok(()),
            other => Err(other),
        }
    });
}

fn into(store: &Path, new: &Path) {
    let connection = Connection::open_with_flags(store, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    connection.execute("VACUUM INTO ?1", [new.to_str().unwrap()]).unwrap();
}

fn enlarge(new: &Path) {
    let connection = Connection::open(new).unwrap();
    connection.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA page_size = 16384; VACUUM").unwrap();
    connection.execute_batch("CREATE TABLE IF NOT EXISTS filler (bytes BLOB)").unwrap();
    for _ in 0..100 {
        connection.execute("INSERT INTO filler VALUES (randomblob(100000))", []).unwrap();
    }
}
