//! Each metric that an alert or the dashboard names is in `/metrics` of a real process, in the state that it tells of.

use nix::sys::signal::Signal;

use crate::names::{Names, missing, named};
use crate::program::{Running, Store, UNTIL_EOF, program};
use crate::{address, deployed, until};

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

/// Notes what a process tells, once it tells of something.
fn note(there: &mut Names, running: &mut Running, of: &str) {
    let told = until(address(running), "/metrics", of, |answer| answer.body.contains(of));
    for (name, labels) in named(&told.body) {
        there.entry(name).or_default().extend(labels);
    }
}

/// A writer, an fsck that drains it, and `serve` beside them.
fn leases(there: &mut Names) {
    let store = Store::new();
    let mut writer = store.wrapped(&[&["run", "--label", "writer"][..], &LISTEN].concat(), UNTIL_EOF);
    let mut fsck = store.start([&["fsck"][..], &LISTEN, &["--"], &UNTIL_EOF].concat());
    let mut serve = store.start(["serve", "--listen", "127.0.0.1:0"]);
    note(there, &mut writer, "lockhouse_lease_remaining_seconds");
    note(there, &mut fsck, "lockhouse_drain_budget_seconds");
    note(there, &mut serve, "lockhouse_fsck_age_seconds");
    writer.end();
    writer.finish().assert(0);
    fsck.until_out("started");
    note(there, &mut fsck, "lockhouse_drain_duration_seconds_count 1");
    fsck.end();
    fsck.finish().assert(0);
    serve.signal(Signal::SIGTERM);
    serve.finish().assert(0);
}

/// A local store whose owner has told of its spool.
fn owner(there: &mut Names) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p");
    let on = |words: &[&str]| {
        let mut command = program(words);
        command.env("LOCKHOUSE_STORE", &path);
        command
    };
    let mut owner = Running::start(on(&["owner", "serve"]));
    owner.until_err("owns the store");
    let mut serve = Running::start(on(&["serve", "--listen", "127.0.0.1:0"]));
    note(there, &mut serve, "lockhouse_spool_ingest_lag_seconds");
    serve.signal(Signal::SIGTERM);
    serve.finish().assert(0);
    owner.signal(Signal::SIGTERM);
    let _ = owner.finish();
}

#[test]
fn alerts_and_dashboard_name_what_is_there() {
    let mut there = Names::new();
    leases(&mut there);
    owner(&mut there);
    for file in ["prometheus/alerts.yml", "prometheus/alerts_test.yml", "grafana/dashboard.json"] {
        let asked = named(&deployed(file));
        assert!(!asked.is_empty(), "{file} names nothing");
        assert_eq!(missing(&asked, &there), Vec::<String>::new(), "{file}; there is {:?}", there.keys());
    }
}

/// The rule for a stale lease, as a killed writer makes it true.
#[test]
fn a_killed_writer_is_what_the_alert_looks_for() {
    let store = Store::new();
    let mut serve = store.start(["serve", "--listen", "127.0.0.1:0"]);
    let to = address(&mut serve);
    let rule = deployed("prometheus/alerts.yml");
    assert!(rule.contains("expr: lockhouse_store_leases{state=\"stale\"} > 0\n"), "{rule}");
    let stale = "lockhouse_store_leases{kind=\"writer\",state=\"stale\"}";
    until(to, "/metrics", "nothing stale", |answer| answer.metric(stale) == 0.0);
    let id = store.dead_writer("killed");
    until(to, "/metrics", "a stale lease", |answer| answer.metric(stale) == 1.0);
    let page = until(to, "/readyz", "a reason", |answer| answer.code == 503);
    assert!(page.body.contains("stale_writers"), "{page:?}");
    store.run(["status"]).assert(81);
    // As the runbook says.
    store.run(["prune", "--dry-run"]).assert(0).out_says(&id);
    store.run(["prune"]).assert(0);
    until(to, "/metrics", "nothing stale", |answer| answer.metric(stale) == 0.0);
    serve.signal(Signal::SIGTERM);
    serve.finish().assert(0);
}
