//! `/metrics`: the Prometheus text format. Names end with their base unit, counters with `_total`. No label ever has a
//! lease, a host or a text of a holder: their number is bounded whatever happens.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{TEXT_FORMAT, TextEncoder};

use super::watch::{Look, Watched};
use crate::{AcquireOutcome, ErrorKind, LATENCY_BOUNDS, Latency, LeaseKind, LossReason, Measures, StoreState};

/// The handler.
pub(crate) async fn metrics(State(watched): State<Arc<Watched>>) -> Response {
    match TextEncoder::new().encode_to_string(&gather(&watched)) {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

const KINDS: [(&str, LeaseKind); 2] = [("writer", LeaseKind::Writer), ("fsck", LeaseKind::Fsck)];

/// The families as they are collected.
#[derive(Default)]
struct Families(Vec<MetricFamily>);

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Families {
    fn family(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(format!("lockhouse_{name}"));
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    fn gauges<'a>(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels<'a>, f64)>) {
        let metric = |(labels, value)| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            let mut metric = labelled(labels);
            metric.set_gauge(gauge);
            metric
        };
        self.family(name, help, MetricType::GAUGE, values.into_iter().map(metric).collect());
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help, [(&[] as Labels<'_>, value)]);
    }

    fn counters<'a>(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels<'a>, u64)>) {
        let metric = |(labels, value)| {
            let mut counter = Counter::default();
            counter.set_value(value as f64);
            let mut metric = labelled(labels);
            metric.set_counter(counter);
            metric
        };
        self.family(name, help, MetricType::COUNTER, values.into_iter().map(metric).collect());
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help, [(&[] as Labels<'_>, value)]);
    }

    fn histograms<'a, 'b>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'a>, &'b Latency)>,
    ) {
        let metric = |(labels, latency): (Labels<'_>, &Latency)| {
            let bucket = |(bound, within): (&f64, &u64)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(*bound);
                bucket.set_cumulative_count(*within);
                bucket
            };
            let mut histogram = Histogram::default();
            histogram.set_bucket(LATENCY_BOUNDS.iter().zip(&latency.within).map(bucket).collect());
            histogram.set_sample_count(latency.count);
            histogram.set_sample_sum(latency.sum.as_secs_f64());
            let mut metric = labelled(labels);
            metric.set_histogram(histogram);
            metric
        };
        self.family(name, help, MetricType::HISTOGRAM, values.into_iter().map(metric).collect());
    }
}

fn labelled(labels: Labels<'_>) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

fn gather(watched: &Watched) -> Vec<MetricFamily> {
    let mut families = Families::default();
    let version: Labels<'_> = &[("version", env!("CARGO_PKG_VERSION"))];
    families.gauges("build_info", "The version that answers; always 1.", [(version, 1.0)]);
    let seen = watched.seen();
    let up = seen.trouble.is_none() && seen.look.as_ref().is_some_and(|look| !look.is_old());
    families.gauge("store_up", "Whether the store answered the last look.", f64::from(u8::from(up)));
    let ready = super::ready::reasons(watched).is_empty();
    families.gauge("ready", "Whether /readyz answers 200.", f64::from(u8::from(ready)));
    if let Some(look) = &seen.look {
        store(&mut families, look);
    }
    if let Some(measures) = watched.measures() {
        leases(&mut families, &measures);
        acquisitions(&mut families, &measures);
        gates(&mut families, &measures);
    }
    families.0
}

/// What the last look showed.
fn store(families: &mut Families, look: &Look) {
    let status = &look.status;
    families.gauge("look_age_seconds", "Age of the last look at the store.", look.age().as_secs_f64());
    families.gauge("look_duration_seconds", "How long the last look took.", look.took.as_secs_f64());
    let fsck_in = |state| status.fsck.iter().filter(|fsck| fsck.state == state).count();
    let counts = [
        (crate::LeaseState::Fresh, "fresh", look.writers.fresh),
        (crate::LeaseState::Stale, "stale", look.writers.stale),
        (crate::LeaseState::Malformed, "malformed", look.writers.malformed),
    ];
    let labels: Vec<_> = counts
        .iter()
        .flat_map(|(state, name, writers)| {
            [
                ([("kind", "writer"), ("state", *name)], *writers),
                ([("kind", "fsck"), ("state", *name)], fsck_in(*state)),
            ]
        })
        .collect();
    families.gauges(
        "store_leases",
        "Leases in the store by kind and state; stale and malformed ones need a person.",
        labels.iter().map(|(labels, count)| (labels.as_slice(), *count as f64)),
    );
    let phases = [StoreState::Open, StoreState::Draining, StoreState::Exclusive, StoreState::Blocked];
    let phases = phases.map(|state| (state.to_string(), f64::from(u8::from(state == status.state))));
    let phases: Vec<_> = phases.iter().map(|(name, on)| ([("phase", name.as_str())], *on)).collect();
    families.gauges(
        "store_phase",
        "1 for the phase that the store is in.",
        phases.iter().map(|(labels, on)| (labels.as_slice(), *on)),
    );
    if let Some(generation) = status.generation {
        families.gauge("store_generation", "Raised by each exclusive phase.", generation as f64);
    }
    if let Some(acquired) = status.fsck.as_ref().and_then(|fsck| fsck.acquired) {
        let age = Duration::try_from(status.now.duration_since(acquired)).unwrap_or_default() + look.age();
        families.gauge(
            "fsck_age_seconds",
            "Since when there is the fsck lease, by the store's clock.",
            age.as_secs_f64(),
        );
    }
    let oldest = status.writers.iter().chain(&status.fsck).filter_map(|lease| lease.age).max();
    if let Some(oldest) = oldest {
        let help = "Age of the oldest heartbeat in the store, by the store's clock.";
        families.gauge("oldest_heartbeat_seconds", help, oldest.as_secs_f64());
    }
    if status.backend == "local" {
        let owner = status.owner.as_ref();
        families.gauge("owner", "Whether the local store has an owner.", f64::from(u8::from(owner.is_some())));
        // An owner without a spool of its own to look at may tell of one all the same.
        let number = |name: &str| status.spool.as_ref().or(owner).and_then(|told| told[name].as_u64());
        if let Some(backlog) = number("backlog") {
            families.gauge("spool_backlog_batches", "Batches that wait for the owner.", backlog as f64);
        }
        if let Some(failed) = number("failed") {
            families.gauge("spool_failed_batches", "Batches that could not be applied.", failed as f64);
        }
        if status.spool.is_some() {
            let help = "Time since the oldest batch that waits for the owner was published; 0 when none does.";
            families.gauge("spool_ingest_lag_seconds", help, look.lag().as_secs_f64());
        }
    }
}

/// The leases of this process.
fn leases(families: &mut Families, measures: &Measures) {
    let held = KINDS.map(|(name, kind)| {
        let valid = measures.leases.iter().filter(|lease| lease.kind() == kind && lease.check().is_ok());
        ([("kind", name)], valid.count() as f64)
    });
    let held = held.iter().map(|(labels, count)| (labels.as_slice(), *count));
    families.gauges("leases_held", "Valid leases of this process.", held);
    let standing = measures.leases.iter().filter(|lease| !lease.is_released());
    if let Some(left) = standing.filter_map(|lease| lease.remaining()).min() {
        let help = "Time left until the nearest deadline of a lease of this process, without another heartbeat.";
        families.gauge("lease_remaining_seconds", help, left.as_secs_f64());
    }
    let help = "Heartbeats that were answered; one refreshes all leases of this process, up to a thousand.";
    families.histograms("heartbeat_duration_seconds", help, [(&[] as Labels<'_>, &measures.heartbeats)]);
    families.counter("heartbeat_failures_total", "Heartbeats that failed.", measures.heartbeat_failures);
    const REASONS: [(&str, LossReason); 5] = [
        ("displaced", LossReason::Displaced),
        ("deadline", LossReason::Deadline),
        ("suspended", LossReason::Suspended),
        ("generation", LossReason::Generation),
        ("supervisor", LossReason::Supervisor),
    ];
    let lost = REASONS.map(|(name, reason)| {
        let counted = measures.losses.iter().find(|(why, _)| *why == reason);
        ([("reason", name)], counted.map_or(0, |(_, count)| *count))
    });
    let lost = lost.iter().map(|(labels, count)| (labels.as_slice(), *count));
    families.counters("leases_lost_total", "Leases of this process that were lost, by why.", lost);
}

/// Acquisitions and drains of this process.
fn acquisitions(families: &mut Families, measures: &Measures) {
    let labels: Vec<_> = measures
        .acquired
        .iter()
        .map(|(kind, outcome, latency)| ([("kind", name_of(*kind)), ("outcome", outcome_name(*outcome))], latency))
        .collect();
    families.histograms(
        "acquire_duration_seconds",
        "Acquisitions of this process, by kind and outcome; an fsck's includes its drain.",
        labels.iter().map(|(labels, latency)| (labels.as_slice(), *latency)),
    );
    let going_on = KINDS.map(|(name, kind)| {
        let count = measures.acquiring.iter().filter(|(of, _)| *of == kind).count();
        ([("kind", name)], count as f64)
    });
    let going_on = going_on.iter().map(|(labels, count)| (labels.as_slice(), *count));
    families.gauges("acquiring", "Acquisitions of this process that go on.", going_on);
    let help = "Drains of this process, however they ended.";
    families.histograms("drain_duration_seconds", help, [(&[] as Labels<'_>, &measures.drains)]);
    let drain = measures.draining.as_ref();
    families.gauge(
        "drain_waiting_writers",
        "Writers that the drain of this process waits for.",
        drain.map_or(0, |drain| drain.waiting_for) as f64,
    );
    if let Some(drain) = drain {
        families.gauge("drain_elapsed_seconds", "How long this process drains.", drain.elapsed.as_secs_f64());
        families.gauge("drain_budget_seconds", "How long this process may drain.", drain.budget.as_secs_f64());
    }
}

fn gates(families: &mut Families, measures: &Measures) {
    let gates = &measures.gates;
    families.counter("gate_entries_total", "Writes that entered a gate of this process.", gates.entries);
    families.counter("gate_waits_total", "Entries that had to wait for a gate to open.", gates.waits);
    families.counter("gate_closings_total", "How often a gate closed.", gates.closings);
    families.gauge("gate_inside", "Writes that are inside a gate.", gates.inside as f64);
}

fn name_of(kind: LeaseKind) -> &'static str {
    match kind {
        LeaseKind::Writer => "writer",
        LeaseKind::Fsck => "fsck",
    }
}

fn outcome_name(outcome: AcquireOutcome) -> &'static str {
    match outcome {
        AcquireOutcome::Granted => "granted",
        AcquireOutcome::Withdrawn => "withdrawn",
        AcquireOutcome::Failed(kind) => match kind {
            ErrorKind::StoreLocked => "locked",
            ErrorKind::DrainTimeout => "drain_timeout",
            ErrorKind::LeaseLost => "lost",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Denied => "denied",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Pending => "pending",
            ErrorKind::Internal => "internal",
        },
    }
}
