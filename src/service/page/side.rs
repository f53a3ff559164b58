//! The owner of a local store, the leases of this process, and the audit trail.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::View;
use super::words::{quoted, time};
use crate::HistoryEntry;
use crate::describe::{brief, duration, printable};
use crate::service::watch::Look;

/// How many lines of the audit trail are shown.
const TRAIL: usize = 12;
/// An owner says every five seconds that it lives.
const SILENCE: Duration = Duration::from_secs(15);

/// Who owns a local store, and its spool.
pub(super) fn owner(view: &View) -> Markup {
    let Some(look) = view.seen.look.as_ref().filter(|look| look.status.backend == "local") else { return html! {} };
    let text = |value: &Value| match value {
        Value::String(text) => Some(brief(text)),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    html! {
        section aria-labelledby="owner" {
            h2 #owner { "Owner" }
            @match &look.status.owner {
                None => p.soft { "Nobody owns the store." },
                Some(owner) => dl {
                    @for (name, field) in [
                        ("phase", "phase"), ("pid", "pid"), ("host", "host"), ("build", "build"), ("last error", "lastError"),
                    ] {
                        @if let Some(value) = text(&owner[field]).filter(|value| !value.is_empty()) {
                            div { dt { (name) } dd { bdi { (value) } } }
                        }
                    }
                    @if let Some(since) = moment(&owner["startedAt"]) {
                        div { dt { "since" } dd { (time(since, look.status.now)) } }
                    }
                    @if let Some(silence) = silence(owner, look) {
                        div { dt { "last heard of" } dd { (duration(silence)) " ago: it may be stopped" } }
                    }
                }
            }
            @if let Some(spool) = &look.status.spool {
                h3 { "Spool" }
                dl.spool {
                    div { dt { "batches waiting" } dd { (spool["backlog"]) } }
                    @if look.oldest.is_some() {
                        div { dt { "the oldest waits" } dd { "for " (duration(look.lag())) } }
                    }
                    div { dt { "batches failed" } dd { (spool["failed"]) } }
                }
            }
        }
    }
}

fn moment(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// For how long an owner has said nothing, if that is longer than it should be. Both go by the machine's wall clock.
fn silence(owner: &Value, look: &Look) -> Option<Duration> {
    let heard = moment(&owner["heartbeatAt"])?;
    let silence = Duration::try_from(look.status.now.duration_since(heard)).unwrap_or_default() + look.age();
    Some(silence).filter(|silence| *silence > SILENCE)
}

/// The leases of the process that answers.
pub(super) fn process(view: &View) -> Markup {
    let leases = view.measures.as_ref().map(|measures| measures.leases.as_slice()).unwrap_or_default();
    if leases.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby="process" {
            h2 #process { "This process holds" }
            ul.plain {
                @for lease in leases.iter().take(TRAIL) {
                    li {
                        strong { (lease.kind()) }
                        @match (lease.check(), lease.remaining()) {
                            (Ok(()), Some(left)) => { " valid for another " (duration(left)) },
                            (Ok(()), None) => " for as long as it lives",
                            (Err(error), _) => { " " (printable(&error.to_string())) },
                        }
                        span.place { (lease.id()) }
                    }
                }
            }
            @if leases.len() > TRAIL { p.soft { "and " (leases.len() - TRAIL) " more" } }
        }
    }
}

/// What was done to the store, newest first.
pub(super) fn trail(view: &View) -> Markup {
    let Some(look) = &view.seen.look else { return html! {} };
    let lines = view.seen.history.iter().rev().take(TRAIL);
    html! {
        section aria-labelledby="trail" {
            h2 #trail { "Audit trail" }
            @if view.seen.history.is_empty() { p.soft { "Nothing yet." } }
            ol.trail {
                @for line in lines {
                    li class=(kind(line)) {
                        p { (time(line.at, look.status.now)) " " strong { (printable(&line.what)) } }
                        @if let Some(reason) = &line.reason { p { (quoted(reason)) } }
                        @if let Some(holder) = &line.holder { p.place { bdi { (holder.to_string()) } } }
                    }
                }
            }
        }
    }
}

fn kind(line: &HistoryEntry) -> &'static str {
    match line.what.as_str() {
        "job-failed" | "drain-timeout" => "bad",
        _ => "good",
    }
}
