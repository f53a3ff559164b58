//! `owner serve`, `ingest` and `failed`, and what `status` says of the spool.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::support::poll::eventually_blocking;
use super::support::running::{PATIENCE, Running};
use super::{Store, lines, numbers, until_free};

const APPEND: [&str; 5] = ["records", "append", "s", "--kind", "k"];

/// Hands rows over while nobody applies them; the owner is killed afterwards.
fn left_behind(store: &Store, range: std::ops::Range<u64>) -> String {
    let mut serving = store.serve(&[]);
    serving.signal(Signal::SIGSTOP);
    let ran = store.feed(&[&APPEND[..], &["--no-wait"]].concat(), &numbers(range)).assert(0);
    serving.kill();
    until_free(store);
    ran.out.trim().to_owned()
}

#[test]
fn an_owner_serves_until_it_is_told_and_another_stands_by() {
    let store = Store::new();
    let serving = store.serve(&["--build", "b7"]);
    let (code, out) = {
        let ran = store.run(&["owner", "status"]);
        (ran.code, ran.out)
    };
    assert!(code == 0 && out.contains("build b7") && out.contains("ready"), "{out}");
    let mut second = store.start(&["owner", "serve"]);
    second.until_err("stands by");
    store.feed(&APPEND, &numbers(0..2)).assert(0);
    serving.signal(Signal::SIGTERM);
    let ran = serving.finish().assert(0);
    assert!(ran.err.contains("again to leave at once"), "{ran:?}");
    second.until_err("owns the store");
    store.feed(&APPEND, &numbers(2..4)).assert(0);
    second.signal(Signal::SIGINT);
    second.finish().assert(0);
    assert_eq!(store.rows("s").len(), 4);
    until_free(&store);
}

#[test]
fn an_owner_that_is_killed_while_rows_come_loses_and_doubles_none() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 40;
    let store = Store::new();
    let mut serving = store.serve(&[]);
    let mut writers: Vec<Running> = (0..WRITERS).map(|_| store.start(&APPEND)).collect();
    for n in 0..EACH {
        for (w, writer) in (0..).zip(&mut writers) {
            writer.feed(&format!("{{\"by\":{w},\"n\":{n}}}\n"));
        }
        if n % 10 == 5 {
            serving.kill();
            serving = store.start(&["owner", "serve"]);
            // Each piece of input is a batch of its own.
            eventually_blocking(PATIENCE, "somebody who owns the store", || {
                let ran = store.run(&["owner", "status"]);
                if ran.out.contains("ready") { Ok(()) } else { Err(ran) }
            });
        }
    }
    for writer in writers {
        writer.finish().assert(0);
    }
    let rows = store.rows("s");
    for w in 0..WRITERS {
        let numbers: Vec<u64> =
            rows.iter().filter(|row| row["by"] == w).map(|row| row["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "writer {w}");
    }
    assert!(store.spooled("failed").is_empty());
    serving.signal(Signal::SIGTERM);
    serving.finish().assert(0);
}

#[test]
fn a_second_signal_leaves_at_once() {
    let store = Store::new();
    let mut serving = store.serve(&[]);
    serving.signal(Signal::SIGTERM);
    serving.signal(Signal::SIGINT);
    let begin = Instant::now();
    serving.until_err("leave at once");
    serving.finish().assert(0);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    until_free(&store);
}

#[test]
fn what_waits_is_shown_and_ingested_by_whoever_is_told() {
    let store = Store::new();
    let id = left_behind(&store, 0..3);
    let status = store.run(&["status", "--json"]).assert(0).json();
    assert_eq!((&status["spool"]["backlog"], &status["spool"]["failed"]), (&json!(1), &json!(0)));
    assert!(status["spool"]["oldest"].as_str().unwrap().ends_with('Z'), "{status}");
    assert!(status["spool"]["dir"].as_str().unwrap().ends_with("/p.spool"));
    assert!(store.run(&["owner", "status"]).assert(0).out.contains("1 waiting"));
    assert!(store.run(&["status"]).assert(0).out.contains("1 waiting"));
    let ran = store.run(&["owner", "ingest", "--json"]).assert(0).json();
    assert_eq!((&ran["by"], &ran["pending"], &ran["backlog"]), (&json!("this process"), &json!([]), &json!(0)));
    assert!(ran["outcomes"][&id]["applied"].is_object(), "{ran}");
    assert_eq!(store.rows("s").len(), 3);
    assert!(store.run(&["owner", "ingest"]).assert(0).out.contains("nothing waits"));
    // An owner is asked.
    let _serving = store.serve(&[]);
    let ran = store.run(&["owner", "ingest"]).assert(0);
    assert!(ran.out.contains("its owner was told"), "{ran:?}");
    store.run(&["owner", "ingest", "--wait=5s", &id]).assert(0);
    store.run(&["owner", "ingest", "--wait=5s", "never-was"]).assert(78).says("never-was");
}

#[test]
fn a_producer_without_an_owner_is_its_own() {
    let store = Store::new();
    let id = left_behind(&store, 0..3);
    store.feed(&APPEND, &numbers(3..4)).assert(0);
    assert!(store.spooled("incoming").is_empty(), "whoever opens it applies what was left");
    let ran = store.run(&["records", "await", &id, "--json"]).assert(0).json();
    assert!(ran["outcome"]["applied"]["entries"][0]["applied"]["stored"] == 3, "{ran}");
    assert_eq!(store.rows("s").len(), 4);
}

#[test]
fn what_failed_needs_a_person_who_can_look_retry_and_drop() {
    let store = Store::new();
    let none = store.run(&["owner", "failed", "list"]).assert(78);
    assert!(none.err.contains("lockhouse init"), "{none:?}");
    store.feed(&APPEND, &numbers(0..1)).assert(0);
    assert!(store.run(&["owner", "failed", "list"]).assert(0).out.contains("nothing has failed"));
    // Somebody puts a batch aside, and garbage where batches are.
    let id = left_behind(&store, 1..3);
    let batch = store.spooled("incoming").remove(0);
    let failed = store.directory().join("p.spool/failed");
    std::fs::rename(&batch, failed.join(batch.file_name().unwrap())).unwrap();
    std::fs::create_dir(store.directory().join("p.spool/incoming").join("00000000000000000007-xyz-000000000001-junk"))
        .unwrap();
    store.run(&["owner", "ingest"]).assert(78).says("junk");
    store.run(&["status"]).assert(81);
    let ran = store.run(&["owner", "status"]).assert(81);
    assert!(ran.out.contains("2 failed: lockhouse owner failed list"), "{ran:?}");
    let listed = lines(&store.run(&["owner", "failed", "list", "--json"]).assert(0).out);
    let of = |id: &str| listed.iter().find(|failed| failed["batch"] == id).expect("it is listed").clone();
    assert!(of("junk")["error"].as_str().unwrap().contains("manifest"), "{listed:?}");
    assert_eq!(of(&id)["error"], Value::Null);
    let shown = store.run(&["owner", "failed", "show", &id, "--json"]).assert(0).json();
    assert_eq!((&shown["entries"][0]["operation"], &shown["entries"][0]["rows"]), (&json!("append"), &json!(2)));
    let shown = store.run(&["owner", "failed", "show", "junk"]).assert(0);
    assert!(shown.out.contains("it cannot be read"), "{shown:?}");
    store.run(&["owner", "failed", "show", "never-was"]).assert(78).says("owner failed list");
    store.run(&["owner", "failed", "retry", "junk"]).assert(78);

    let retried = store.run(&["owner", "failed", "retry", &id, "--json"]).assert(0).json();
    let again = retried["batch"].as_str().unwrap().to_owned();
    store.run(&["records", "await", &again]).assert(0);
    assert_eq!(store.rows("s").len(), 3);
    // It destroys: it says what would go.
    let ran = store.run(&["owner", "failed", "drop", "junk"]).assert(0);
    assert!(ran.out.contains("would remove junk") && ran.out.contains("--yes"), "{ran:?}");
    store.run(&["status"]).assert(81);
    store.run(&["owner", "failed", "drop", "junk", "--yes"]).assert(0);
    store.run(&["status"]).assert(0);
    store.run(&["owner", "status"]).assert(0);
}
