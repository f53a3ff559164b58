//! What may be in the place of the file, and what is made of it.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use lockhouse::records::sqlite::{CATALOG_VERSION, SqliteTarget};
use lockhouse::records::{Checkpoint, Target};
use lockhouse::{Error, ErrorKind};

use super::store::{ID, Store, append, at, batch, ids, pauses, plain, seqs, stands};
use crate::support::scratch::Scratch;

fn refused(path: &Path, kind: ErrorKind, says: &str) {
    for (how, opened) in [
        ("writable", SqliteTarget::open(path, ID).map(drop)),
        ("read-only", SqliteTarget::open_read_only(path, ID).map(drop)),
    ] {
        let error = opened.expect_err(how);
        assert_eq!(error.kind(), kind, "{how}: {error}");
        assert!(error.to_string().contains(says), "{how}: {error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{how}: {error}");
    }
}

#[test]
fn a_file_that_is_not_there_yet_is_no_error_for_who_looks() {
    let scratch = Scratch::new("opening");
    let path = scratch.path().join("store");
    assert!(SqliteTarget::open_read_only(&path, ID).unwrap().is_none());
    assert!(!path.exists(), "who looks makes nothing");
    std::fs::write(&path, "").unwrap();
    assert!(SqliteTarget::open_read_only(&path, ID).unwrap().is_none());
    drop(SqliteTarget::open(&path, ID).unwrap());
    assert!(SqliteTarget::open_read_only(&path, ID).unwrap().is_some());
}

#[test]
fn files_are_private_and_kept_as_promised() {
    let mut store = Store::new();
    let schema = plain();
    store.applied(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, [1])));
    for suffix in ["", "-wal", "-shm"] {
        let mut path = store.path().into_os_string();
        path.push(suffix);
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
    let other = rusqlite::Connection::open(store.path()).unwrap();
    let ask = |pragma: &str| other.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, String>(0));
    assert_eq!(ask("journal_mode").unwrap(), "wal");
    assert_eq!(ask("integrity_check").unwrap(), "ok");
    drop(other);
    assert_eq!(store.target.checkpoint().unwrap(), Checkpoint::Complete);
    let mut wal = store.path().into_os_string();
    wal.push("-wal");
    assert_eq!(std::fs::metadata(wal).unwrap().len(), 0);
}

#[test]
fn what_is_no_store_is_refused() {
    let scratch = Scratch::new("opening");
    let path = |name: &str| scratch.path().join(name);
    std::fs::write(path("garbage"), "this is no database, whatever it may be\n".repeat(100)).unwrap();
    refused(&path("garbage"), ErrorKind::Invalid, "no SQLite database");
    std::fs::create_dir(path("directory")).unwrap();
    refused(&path("directory"), ErrorKind::Invalid, "regular file");
    symlink(path("garbage"), path("link")).unwrap();
    refused(&path("link"), ErrorKind::Invalid, "regular file");
    rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    refused(&path("fifo"), ErrorKind::Invalid, "regular file");
    std::fs::write(path("one"), "").unwrap();
    std::fs::hard_link(path("one"), path("two")).unwrap();
    refused(&path("one"), ErrorKind::Invalid, "second name");
    let foreign = rusqlite::Connection::open(path("foreign")).unwrap();
    foreign.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(foreign);
    let before = std::fs::read(path("foreign")).unwrap();
    refused(&path("foreign"), ErrorKind::Invalid, "another program's");
    assert_eq!(std::fs::read(path("foreign")).unwrap(), before, "what is not ours is not changed");
    let error = SqliteTarget::open(&path("nowhere/store"), ID).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(path("garbage"), Some(4242), None).unwrap();
        refused(&path("garbage"), ErrorKind::Denied, "uid 4242");
    }
}

#[test]
fn a_damaged_file_is_said_and_pauses_what_comes() {
    let mut store = Store::new();
    let schema = plain();
    store.applied(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, 1..500)));
    assert_eq!(store.target.checkpoint().unwrap(), Checkpoint::Complete);
    let path = store.path();
    // Nothing holds a lock now; the tests alone may open the file.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096..].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let error = SqliteTarget::open(&path, ID).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn another_stores_file_is_refused_by_both_names() {
    let store = Store::new();
    for opened in [
        SqliteTarget::open(&store.path(), "0other").map(drop),
        SqliteTarget::open_read_only(&store.path(), "0other").map(drop),
    ] {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("0other") && error.to_string().contains(ID), "{error}");
    }
}

#[test]
fn a_later_builds_file_is_refused_with_both_versions() {
    let store = Store::new();
    let other = rusqlite::Connection::open(store.path()).unwrap();
    let set = |version: i64| other.pragma_update(None, "user_version", version).unwrap();
    set(i64::from(CATALOG_VERSION) + 41);
    for opened in
        [SqliteTarget::open(&store.path(), ID).map(drop), SqliteTarget::open_read_only(&store.path(), ID).map(drop)]
    {
        match opened.unwrap_err() {
            Error::CatalogVersion(version) => {
                assert_eq!((version.owner, version.build), (CATALOG_VERSION + 41, CATALOG_VERSION));
                let text = version.to_string();
                assert!(text.contains(&version.owner.to_string()) && text.contains("at least as new"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    for version in [-1, 0] {
        set(version);
        refused(&store.path(), ErrorKind::Invalid, "version");
    }
}

#[test]
fn who_reads_is_promoted_in_place() {
    let mut store = Store::new();
    let schema = plain();
    store.applied(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, [1])));
    let mut reader = store.reader();
    let next = batch("reader", 1, std::slice::from_ref(&schema), vec![append("s", &schema, ids(&schema, [2]))]);
    let why = pauses(reader.append_batch(&next, at(0), &mut stands));
    assert!(why.contains("readonly"), "{why}");
    let inode = std::fs::metadata(store.path()).unwrap().ino();
    for _ in 0..2 {
        reader.promote().unwrap();
    }
    reader.append_batch(&next, at(0), &mut stands).unwrap();
    assert_eq!(seqs(&store.rows("s")), [1, 2], "the one that wrote before sees it");
    assert_eq!(std::fs::metadata(store.path()).unwrap().ino(), inode);
    // A promotion that fails leaves a reader.
    let mut reader = store.reader();
    let other = rusqlite::Connection::open(store.path()).unwrap();
    other.pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(reader.promote(), Err(Error::CatalogVersion(_))));
    assert_eq!(super::store::rows(&reader, "s").len(), 2);
}

/// Closing the last connection brings the log into the file, unless whoever closes it may not write any more.
#[test]
fn an_abandoned_file_is_closed_as_it_is() {
    let log = |path: &Path| std::fs::metadata(format!("{}-wal", path.display())).map_or(0, |found| found.len());
    for abandoned in [false, true] {
        let scratch = Scratch::new("opening");
        let path = scratch.path().join("store");
        let mut target = SqliteTarget::open(&path, ID).unwrap();
        let schema = plain();
        let next = batch("x", 1, std::slice::from_ref(&schema), vec![append("s", &schema, ids(&schema, [1]))]);
        target.append_batch(&next, at(0), &mut || Ok(())).unwrap();
        let before = (std::fs::metadata(&path).unwrap().len(), log(&path));
        if abandoned {
            target.abandon();
        }
        drop(target);
        assert_eq!((std::fs::metadata(&path).unwrap().len(), log(&path)) == before, abandoned);
        let again = SqliteTarget::open(&path, ID).unwrap();
        assert_eq!(super::store::rows(&again, "s").len(), 1);
    }
}
