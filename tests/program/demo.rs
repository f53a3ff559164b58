//! The whole story.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::program::Store;

#[test]
fn nothing_overlaps_and_everybody_does_their_part() {
    let store = Store::bare();
    let ran = store.run(["demo", "--json"]).assert(0);
    assert!(ran.took < Duration::from_secs(60), "{ran:?}");
    let told = ran.json();
    assert_eq!(told["overlaps"], 0);
    assert_eq!(told["exclusive_phases"], 2);
    assert_eq!(told["processes"].as_array().unwrap().len(), 6);
    for process in told["processes"].as_array().unwrap() {
        assert!(process["writes"].as_u64().unwrap() > 0, "{process}");
    }
    let left = store.run(["status", "--json", "--collection", "lockhouse_demo"]);
    let left = left.assert(0).json();
    assert_eq!(left["writers"], serde_json::json!([]));
    assert_eq!(left["generation"], 2);
    // The collection that others use was not touched.
    assert!(store.content().is_empty());
}

#[test]
fn ctrl_c_ends_its_processes_too() {
    let store = Store::bare();
    let mut demo = store.start(["demo"]);
    demo.until_err("an fsck asks");
    demo.signal(Signal::SIGINT);
    demo.finish().assert(130);
    let words = ["status", "--json", "--collection", "lockhouse_demo"];
    let left = store.run(words).assert(0).json();
    assert_eq!(left["writers"], serde_json::json!([]));
}
