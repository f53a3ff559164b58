//! Others at the same file: readers, another program that writes, and connections of this very process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockhouse::records::sqlite::SqliteTarget;
use lockhouse::records::{Checkpoint, Source, Target};

use super::probe;
use super::store::{ID, Store, append, at, batch, ids, name, pauses, plain, rows, seqs, stands};

#[test]
fn a_reader_sees_whole_batches_while_they_are_written() {
    let mut store = Store::new();
    let schema = plain();
    let some = |stream: &str| append(stream, &schema, ids(&schema, 0..10));
    store.applied(std::slice::from_ref(&schema), some("s"));
    let reader = store.reader();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        let looks = scope.spawn(move || {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) || looks == 0 {
                let window = reader.scan(&name("s"), 1, 10_000).unwrap().unwrap();
                assert_eq!(window.rows.len() as u64, window.meta.rows);
                assert_eq!(window.rows.len() % 10, 0, "whole batches only");
                let other = reader.meta(&name("t")).unwrap();
                assert!(other.is_none_or(|other| other.rows % 10 == 0));
                looks += 1;
            }
            looks
        });
        for _ in 0..50 {
            store.apply(std::slice::from_ref(&schema), vec![some("s"), some("t")]);
        }
        done.store(true, Ordering::Relaxed);
        assert!(looks.join().unwrap() > 1);
    });
    assert_eq!(store.rows("s").len(), 510);
}

#[test]
fn a_reader_sees_nothing_of_a_batch_before_its_commit() {
    let mut store = Store::new();
    let schema = plain();
    store.applied(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, [1])));
    let reader = store.reader();
    let next = batch("x", 1, std::slice::from_ref(&schema), vec![append("s", &schema, ids(&schema, [2]))]);
    let mut seen = Vec::new();
    let mut look = || {
        seen.push(rows(&reader, "s").len());
        Ok(())
    };
    store.target.append_batch(&next, at(0), &mut look).unwrap();
    assert_eq!(seen, [1, 1]);
    assert_eq!(rows(&reader, "s").len(), 2);
}

#[test]
fn another_programs_lock_pauses_a_batch_that_is_applied_later() {
    let mut store = Store::new();
    let schema = plain();
    let other = rusqlite::Connection::open(store.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let next = batch("x", 1, std::slice::from_ref(&schema), vec![append("s", &schema, ids(&schema, [1]))]);
    let mut asked = false;
    let refused = store.target.append_batch(&next, at(0), &mut || {
        asked = true;
        Ok(())
    });
    let why = pauses(refused);
    assert!(why.contains("another program") && why.contains(&store.path().display().to_string()), "{why}");
    assert!(!asked, "nobody is asked before the lock is had");
    assert_eq!(store.target.producer_seq("x").unwrap(), 0);
    pauses(store.target.record_skip("x", 1, at(0), &mut stands));
    let error = SqliteTarget::open(&store.path(), ID).map(drop);
    assert!(error.is_ok(), "a store that needs no change is opened beside it: {error:?}");
    other.execute_batch("COMMIT").unwrap();
    store.target.append_batch(&next, at(0), &mut stands).unwrap();
    assert_eq!(seqs(&store.rows("s")), [1]);
}

#[test]
fn a_reader_that_still_looks_leaves_a_checkpoint_partial() {
    let mut store = Store::new();
    let schema = plain();
    store.applied(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, [1])));
    let other = rusqlite::Connection::open(store.path()).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    other.execute_batch("BEGIN; SELECT * FROM lockhouse_streams").unwrap();
    let count = |other: &rusqlite::Connection| {
        other.query_row("SELECT count(*) FROM rows_order", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(count(&other), 1);
    store.applied(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, [2])));
    assert_eq!(store.target.checkpoint().unwrap(), Checkpoint::Partial);
    assert_eq!(count(&other), 1);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(store.target.checkpoint().unwrap(), Checkpoint::Complete);
}

/// The kernel drops a process's locks on a file when any of its descriptors closes: nothing that opens, looks and closes
/// here may let another process in.
#[test]
fn nothing_that_is_opened_and_closed_beside_it_drops_the_locks() {
    let mut store = Store::new();
    let schema = plain();
    let path = store.path();
    let next = batch("x", 1, std::slice::from_ref(&schema), vec![append("s", &schema, ids(&schema, [1]))]);
    let mut beside = || {
        drop(SqliteTarget::open_read_only(&path, ID)?);
        drop(SqliteTarget::open(&path, ID)?);
        assert!(SqliteTarget::open(&path, "another").is_err());
        probe::run("find locked", &path);
        Ok(())
    };
    store.target.append_batch(&next, at(0), &mut beside).unwrap();
}
