//! Under an fsck, and under a run.

use std::time::{Duration, Instant};

use super::{Store, numbers};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lockhouse");

#[test]
fn below_an_fsck_it_is_written_under_its_lease() {
    let store = Store::new();
    let append = format!("{PROGRAM} records append s --kind k");
    let all = format!(
        "set -e; echo '{{\"n\":0}}' | {append}; echo '{{\"n\":1}}' | {append} --seal; {PROGRAM} records trim s --before 2; \
         {PROGRAM} records reopen s; {PROGRAM} owner ingest; id=$(echo '{{\"n\":5}}' | {append} --no-wait); \
         {PROGRAM} records await $id"
    );
    // Without an owner, and beside one that pauses.
    store.run(&["init"]).assert(0);
    let ran = store.run(&["fsck", "--", "sh", "-c", &all]).assert(0);
    assert!(ran.out.contains("1 rows stored") && ran.out.contains("1 rows removed"), "{ran:?}");
    let serving = store.serve(&[]);
    store.run(&["records", "delete", "s", "--yes"]).assert(0);
    let begin = Instant::now();
    store.run(&["fsck", "--", "sh", "-c", &all]).assert(0);
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    store.feed(&["records", "append", "s", "--kind", "k"], &numbers(2..3)).assert(0);
    assert_eq!(store.rows("s").len(), 3);
    drop(serving);
}

#[test]
fn below_a_run_nobody_waits_for_an_fsck_that_waits_for_the_run() {
    let store = Store::new();
    store.run(&["init"]).assert(0);
    let append = format!("echo '{{\"n\":0}}' | {PROGRAM} records append s --kind k --json 2>err; echo code=$?");
    let script = format!("echo started; until [ -e go ]; do sleep 0.02; done; {append}");
    let mut command = store.command(&["run", "--", "sh", "-c", &script]);
    command.current_dir(store.directory());
    let mut running = super::Running::start(command);
    running.until_out("started");
    let fsck = store.start(&["fsck", "--drain-budget", "25s", "--", "true"]);
    super::support::poll::eventually_blocking(super::PATIENCE, "the drain", || {
        let ran = store.run(&["status", "--json"]);
        if ran.json()["state"] == "draining" { Ok(()) } else { Err(ran) }
    });
    store.write("go", "");
    let begin = Instant::now();
    let ran = running.finish().assert(0);
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    let err = std::fs::read_to_string(store.directory().join("err")).unwrap();
    assert!(ran.out.contains("code=79") && err.contains("lockhouse run"), "{ran:?} {err}");
    fsck.finish().assert(0);
    let error: serde_json::Value = serde_json::from_str(err.lines().last().unwrap()).unwrap();
    store.run(&["records", "await", error["error"]["batch_id"].as_str().unwrap()]).assert(0);
    assert_eq!(store.rows("s").len(), 1);
    // Without an fsck it is as anywhere.
    let again = format!("echo '{{\"n\":1}}' | {PROGRAM} records append s --kind k");
    store.run(&["run", "--", "sh", "-c", &again]).assert(0);
    assert_eq!(store.rows("s").len(), 2);
    // An owner for good would be waited for by every fsck.
    store.run(&["run", "--", PROGRAM, "owner", "serve"]).assert(78).says("wait for itself");
}
