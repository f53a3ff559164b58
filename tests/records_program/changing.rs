//! `records seal`, `reopen`, `trim`, `expire` and `delete`.

use super::support::poll::eventually_blocking;
use super::support::running::PATIENCE;
use super::{Store, lines, numbers};

fn meta(store: &Store) -> serde_json::Value {
    lines(&store.run(&["records", "meta", "s", "--json"]).assert(0).out).remove(0)
}

#[test]
fn streams_are_sealed_reopened_trimmed_and_deleted() {
    let store = Store::new();
    let append = ["records", "append", "s", "--kind", "k"];
    store.run(&["records", "seal", "s"]).assert(78).says("lockhouse init");
    assert!(!store.directory().join("p.leases").exists(), "a name that is mistyped makes no store");
    store.feed(&append, &numbers(0..5)).assert(0);
    store.run(&["records", "seal", "t"]).assert(78).says("stream t: there is no such stream");
    assert_eq!(store.run(&["records", "seal", "s"]).assert(0).out, "stream s: sealed\n");
    store.feed(&append, &numbers(5..6)).assert(78).says("sealed");
    store.run(&["records", "reopen", "s"]).assert(0);
    store.feed(&append, &numbers(5..6)).assert(0);
    assert_eq!(store.run(&["records", "trim", "s", "--before", "3"]).assert(0).out, "stream s: 2 rows removed\n");
    assert_eq!((meta(&store)["first"].as_u64(), meta(&store)["rows"].as_u64()), (Some(3), Some(4)));
    store.run(&["records", "trim", "s", "--before", "99"]).assert(78).says("trimmed before seq 99");
    store.run(&["records", "trim", "s"]).assert(64);
    // It destroys: it says what would go.
    let ran = store.run(&["records", "delete", "s"]).assert(0);
    assert!(ran.out.contains("would remove stream s of kind k with 4 rows") && ran.out.contains("--yes"), "{ran:?}");
    assert_eq!(store.rows("s").len(), 4);
    store.run(&["records", "delete", "s", "--yes", "--generation", "7"]).assert(78).says("generation 7");
    let ran = store.run(&["records", "delete", "s", "--yes", "--generation", "1"]).assert(0);
    assert_eq!(ran.out, "stream s: deleted with 4 rows\n");
    store.run(&["records", "scan", "s"]).assert(78).says("no stream s");
    store.run(&["records", "delete", "s"]).assert(78).says("no stream s");
    store.feed(&[&append[..], &["--generation", "1"]].concat(), &numbers(0..1)).assert(78).says("generation 1");
    store.feed(&append, &numbers(0..1)).assert(0);
    assert_eq!(meta(&store)["generation"], 2);
}

#[test]
fn what_has_an_end_ends() {
    let store = Store::new();
    let _serving = store.serve(&[]);
    store.feed(&["records", "append", "s", "--kind", "k", "--ttl", "1h"], &numbers(0..2)).assert(0);
    let expires = meta(&store)["expires"].as_str().unwrap().to_owned();
    store.run(&["records", "expire", "s", "--ttl", "2h"]).assert(0);
    assert_ne!(meta(&store)["expires"].as_str().unwrap(), expires);
    store.run(&["records", "expire", "s", "--ttl", "0"]).assert(78).says("time to live");
    store.run(&["records", "expire", "s", "--ttl", "10ms"]).assert(0);
    // Whoever writes finds it gone.
    eventually_blocking(PATIENCE, "the end of the stream", || {
        let ran = store.run(&["records", "seal", "s"]);
        if ran.code == 78 { Ok(()) } else { Err(ran) }
    });
}
