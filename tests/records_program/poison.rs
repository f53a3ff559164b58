//! A batch that cannot be applied, and an owner that is told to stop at it; and what an owner leaves that failed.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::support::poll::eventually_blocking;
use super::support::running::PATIENCE;
use super::{Store, lines, numbers, until_free};

/// Three batches of one producer, the second of them damaged, before an owner that has not looked yet.
fn three_and_the_second_damaged(store: &Store) -> Vec<String> {
    let mut appending = store.start(&["records", "append", "s", "--kind", "k", "--no-wait"]);
    for n in 0..3 {
        appending.feed(&numbers(2 * n..2 * n + 2));
        eventually_blocking(PATIENCE, "the batch in the spool", || {
            let spooled = store.spooled("incoming");
            if spooled.len() as u64 == n + 1 { Ok(()) } else { Err(spooled) }
        });
    }
    appending.end();
    let ran = appending.finish().assert(0);
    let ids: Vec<String> = ran.out.lines().map(str::to_owned).collect();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let second = store.spooled("incoming").into_iter().find(|path| name(path).ends_with(&ids[1])).unwrap();
    std::fs::write(second.join("1.ndjson"), "{\"n\":7}\n{\"n\":8}\n").unwrap();
    ids
}

fn outcome(store: &Store, id: &str) -> i32 {
    store.run(&["records", "await", id, "--wait", "200ms"]).code
}

#[test]
fn an_owner_that_stops_at_poison_halts_its_producer_until_a_person_passes_it_over() {
    let store = Store::new();
    let serving = store.serve(&["--on-poison", "stop"]);
    serving.signal(Signal::SIGSTOP);
    let ids = three_and_the_second_damaged(&store);
    serving.signal(Signal::SIGCONT);
    store.run(&["records", "await", &ids[0]]).assert(0);
    // Nothing behind it is applied; who waits for it is told that nothing is known yet.
    let why = eventually_blocking(PATIENCE, "a word of the halted producer", || {
        let status = store.run(&["owner", "status", "--json"]).json();
        match status["owner"]["lastError"].as_str() {
            Some(why) => Ok(why.to_owned()),
            None => Err(status),
        }
    });
    for word in ["halted at its batch 2", "damaged", "lockhouse owner ingest"] {
        assert!(why.contains(word), "{why}");
    }
    assert!(store.run(&["owner", "status"]).assert(0).out.contains("halted"));
    assert_eq!((outcome(&store, &ids[1]), outcome(&store, &ids[2])), (79, 79));
    assert!(store.run(&["owner", "failed", "list"]).assert(0).out.contains("nothing has failed"));
    // Nobody else is in its way.
    store.feed(&["records", "append", "s", "--kind", "k"], &numbers(6..7)).assert(0);
    assert_eq!(store.rows("s"), [json!({"n": 0}), json!({"n": 1}), json!({"n": 6})]);

    serving.signal(Signal::SIGTERM);
    let ran = serving.finish().assert(0);
    assert!(ran.err.contains("halted") && ran.err.contains(&ids[1]), "{ran:?}");
    until_free(&store);
    assert_eq!(store.spooled("incoming").len(), 2);
    let ran = store.run(&["owner", "ingest"]).assert(78);
    assert!(ran.err.contains(&ids[1]) && ran.err.contains("owner failed show"), "{ran:?}");
    assert_eq!((outcome(&store, &ids[1]), outcome(&store, &ids[2])), (78, 0));
    let passed: Vec<Value> = [0, 1, 6, 4, 5].iter().map(|n| json!({"n": n})).collect();
    assert_eq!(store.rows("s"), passed);
    let listed = lines(&store.run(&["owner", "failed", "list", "--json"]).assert(0).out);
    assert_eq!((listed.len(), &listed[0]["batch"]), (1, &json!(ids[1])));

    // Mended, it is handed over again; then nothing is left for a person.
    let failed = store.spooled("failed").remove(0);
    std::fs::write(failed.join("1.ndjson"), numbers(2..4)).unwrap();
    let retried = store.run(&["owner", "failed", "retry", &ids[1], "--json"]).assert(0).json();
    store.run(&["records", "await", retried["batch"].as_str().unwrap()]).assert(0);
    assert_eq!(store.rows("s").len(), 7);
    store.run(&["owner", "status"]).assert(0);
    assert!(store.spooled("failed").is_empty() && store.spooled("incoming").is_empty());
}

#[test]
fn poison_that_is_passed_over_and_dropped_leaves_nothing_behind() {
    let store = Store::new();
    let serving = store.serve(&[]);
    serving.signal(Signal::SIGSTOP);
    let ids = three_and_the_second_damaged(&store);
    serving.signal(Signal::SIGCONT);
    store.run(&["records", "await", &ids[2]]).assert(0);
    store.run(&["records", "await", &ids[1]]).assert(78).says("damaged");
    store.run(&["owner", "failed", "drop", &ids[1], "--yes"]).assert(0);
    store.run(&["owner", "status"]).assert(0);
    assert_eq!(store.rows("s").len(), 4);
}

/// A promotion that fails gives the store back at once: what it was must not go with the lock.
#[test]
fn who_cannot_open_the_file_leaves_the_reason_to_be_read() {
    let store = Store::new();
    store.write("p", &"this is no database at all\n".repeat(100));
    store.run(&["owner", "serve"]).assert(78).says("no SQLite database");
    until_free(&store);
    let ran = store.run(&["owner", "status"]).assert(0);
    assert!(ran.out.contains("no owner") && ran.out.contains("no SQLite database"), "{ran:?}");
    let status = store.run(&["owner", "status", "--json"]).assert(0).json();
    assert_eq!(status["owner"], Value::Null);
    assert!(status["left"]["lastError"].as_str().unwrap().contains("no SQLite database"), "{status}");
}
