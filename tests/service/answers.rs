//! Health, readiness, metrics and status.

use futures::executor::block_on;
use lockhouse::service::Limits;
use lockhouse::{GateOptions, LeaseKind};

use crate::client::{get, with};
use crate::served::{Served, another, dead, memory, often, until};

#[test]
fn a_store_with_nothing_wrong_is_healthy_and_ready() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let health = get(served.address, "/healthz");
    assert_eq!((health.code, health.body.as_str()), (200, "ok\n"));
    let json = with(served.address, "/readyz", &[("Accept", "application/json")]);
    assert_eq!(json.json(), serde_json::json!({"schema": 1, "ok": true, "reasons": []}));
    assert_eq!(json.header("content-type"), Some("application/json"));
    // Writers and an fsck at work are no trouble.
    let writer = another(&store, "writer");
    let lease = block_on(writer.acquire_writer().into_future()).unwrap();
    until(served.address, "/v1/status", "the writer", |answer| answer.json()["writers"].as_array().unwrap().len() == 1);
    assert_eq!(get(served.address, "/readyz").code, 200);
    block_on(lease.release()).unwrap();
    let fsck = block_on(writer.acquire_fsck().into_future()).unwrap();
    until(served.address, "/v1/status", "the fsck", |answer| answer.json()["state"] == "exclusive");
    assert_eq!(get(served.address, "/readyz").code, 200);
    block_on(fsck.release()).unwrap();
}

#[test]
fn readiness_says_why_not() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    store.set_reachable(false);
    let answer = until(served.address, "/readyz", "the outage", |answer| answer.code == 503);
    assert!(answer.body.starts_with("store_unreachable: "), "{answer:?}");
    assert_eq!(get(served.address, "/healthz").code, 200);
    let status = get(served.address, "/v1/status").json();
    assert_eq!(
        (&status["look"]["old"], &status["state"]),
        (&true.into(), &"open".into()),
        "what was seen last is told"
    );
    assert!(status["look"]["trouble"].is_string());
    assert_eq!(get(served.address, "/metrics").metric("lockhouse_store_up"), 0.0);
    store.set_reachable(true);
    until(served.address, "/readyz", "to be ready again", |answer| answer.code == 200);

    // A process that died.
    dead(&store, "importer", LeaseKind::Writer);
    let answer = until(served.address, "/readyz", "the stale writer", |answer| answer.body.contains("stale_writers"));
    assert!(answer.body.contains("1 writer lease is stale") && answer.body.contains("lockhouse prune"), "{answer:?}");
    // It is open to whoever reaches it, and names nobody.
    assert!(!answer.body.contains("importer"), "{answer:?}");
    let metrics = get(served.address, "/metrics");
    assert_eq!(metrics.metric("lockhouse_store_leases{kind=\"writer\",state=\"stale\"}"), 1.0);
    assert_eq!(metrics.metric("lockhouse_ready"), 0.0);
    assert!(metrics.metric("lockhouse_oldest_heartbeat_seconds") >= 60.0);
}

#[test]
fn an_own_lease_that_is_lost_makes_it_unready() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let lease = block_on(coordinator.acquire_writer().into_future()).unwrap();
    until(served.address, "/metrics", "the lease", |answer| {
        answer.metric("lockhouse_leases_held{kind=\"writer\"}") == 1.0
    });
    store.set_reachable(false);
    block_on(lease.lost());
    let answer = until(served.address, "/readyz", "the loss", |answer| answer.body.contains("lease_invalid"));
    assert!(answer.code == 503 && answer.body.contains("deadline"), "{answer:?}");
    store.set_reachable(true);
    until(served.address, "/readyz", "its recovery", |answer| answer.code == 200);
    let metrics = get(served.address, "/metrics");
    assert_eq!(metrics.metric("lockhouse_leases_lost_total{reason=\"deadline\"}"), 1.0);
    assert!(metrics.metric("lockhouse_heartbeat_failures_total") > 0.0);
    assert!(metrics.metric("lockhouse_lease_remaining_seconds") > 0.0);
    block_on(lease.release()).unwrap();
}

#[test]
fn a_supervisor_that_has_ended_is_not_healthy() {
    let (_store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    block_on(coordinator.shutdown());
    let answer = until(served.address, "/healthz", "the end", |answer| answer.code == 503);
    assert!(answer.body.contains("supervisor has ended"), "{answer:?}");
}

#[test]
fn a_store_without_layout_is_not_ready() {
    let store = lockhouse::MemoryStore::new();
    let coordinator = another(&store, "one");
    let served = Served::start(&coordinator, often(), Limits::default());
    let answer = until(served.address, "/readyz", "the reason", |answer| answer.body.contains("no_layout"));
    assert!(answer.code == 503 && answer.body.contains("lockhouse init"));
}

/// The text format: each family has its HELP and TYPE once and before its samples, no sample is there twice, counters
/// end with `_total`, and no label has anything of a lease.
#[test]
fn metrics_keep_the_conventions() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let gate = coordinator.gate(GateOptions::default());
    for _ in 0..10 {
        drop(block_on(gate.enter()).unwrap());
    }
    let other = another(&store, "checker");
    block_on(block_on(other.acquire_fsck().into_future()).unwrap().release()).unwrap();
    let counted = |answer: &crate::client::Answer| answer.metric("lockhouse_gate_closings_total") == 1.0;
    let answer = until(served.address, "/metrics", "the closing", counted);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
    assert_eq!(answer.metric("lockhouse_gate_entries_total"), 10.0);
    assert_eq!(answer.metric("lockhouse_acquire_duration_seconds_count{kind=\"writer\",outcome=\"granted\"}"), 1.0);
    let mut types = std::collections::BTreeMap::new();
    let mut samples = std::collections::BTreeSet::new();
    let mut helped = None;
    for line in answer.body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.len() > 10, "{line}");
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(helped.as_deref(), Some(name));
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
            assert!(samples.insert(sample.to_owned()), "{sample} twice");
            let name = sample.split('{').next().unwrap();
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .filter(|family| types.get(*family).is_some_and(|kind| kind == "histogram"));
            assert!(types.contains_key(family.unwrap_or(name)), "{line} has no TYPE");
            let labels = ["le", "kind", "state", "phase", "reason", "outcome", "version"];
            for label in sample.split(['{', ',']).skip(1) {
                assert!(labels.contains(&label.split('=').next().unwrap()), "{sample}");
            }
        }
    }
    for name in ["lockhouse_heartbeat_duration_seconds", "lockhouse_drain_duration_seconds", "lockhouse_store_leases"] {
        assert!(types.contains_key(name), "{name}");
    }
}

#[test]
fn the_status_is_that_of_the_program_and_says_how_old_it_is() {
    let (_store, coordinator) = memory();
    let lease = block_on(coordinator.acquire_writer().reason("a \"reason\"").into_future()).unwrap();
    let served = Served::ready(&coordinator);
    let has = |answer: &crate::client::Answer| answer.json()["writers"][0]["id"] == lease.identifier();
    let mut told = until(served.address, "/v1/status", "the writer", has).json();
    let look = told.as_object_mut().unwrap().shift_remove("look").unwrap();
    assert!(look["age_ms"].is_u64() && look["took_ms"].is_u64() && look["old"] == false && look["trouble"].is_null());
    let direct = serde_json::to_value(block_on(coordinator.status()).unwrap()).unwrap();
    let fields = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&told), fields(&direct));
    assert_eq!(fields(&told["writers"][0]), fields(&direct["writers"][0]));
    assert_eq!(told["writers"][0]["reason"], "a \"reason\"");
    assert_eq!(lease.kind(), LeaseKind::Writer);
    block_on(lease.release()).unwrap();
}
