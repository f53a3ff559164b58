//! Who is in, who waits, and what needs a person.

use std::time::Duration;

use maud::{Markup, html};

use super::View;
use super::words::{clear, count, name, place, quoted, time};
use crate::describe::{duration, printable};
use crate::service::watch::Look;
use crate::{LeaseInfo, LeaseKind, LeaseState, Phase};

/// How many leases are shown; the others are counted.
const SHOWN: usize = 50;
/// How many of those that need a person are shown with a command of their own.
const NAMED: usize = 10;

/// How near a lease is to being stale: 1 is stale.
fn nearness(lease: &LeaseInfo) -> f64 {
    match (lease.state, lease.age, lease.stale_after) {
        (LeaseState::Malformed, _, _) => f64::INFINITY,
        (_, Some(age), Some(limit)) if !limit.is_zero() => age.as_secs_f64() / limit.as_secs_f64(),
        (LeaseState::Stale, _, _) => 1.0,
        _ => 0.0,
    }
}

/// The leases that are shown: the nearest to being stale. Among themselves they keep their places from look to look.
fn worst(look: &Look) -> Vec<&LeaseInfo> {
    let mut writers: Vec<&LeaseInfo> = look.status.writers.iter().collect();
    let near = |a: &&LeaseInfo, b: &&LeaseInfo| nearness(b).total_cmp(&nearness(a));
    if writers.len() > SHOWN {
        writers.select_nth_unstable_by(SHOWN, near);
        writers.truncate(SHOWN);
    }
    writers.sort_by_key(|lease| (lease.state == LeaseState::Fresh, lease.acquired, lease.id.clone()));
    writers
}

/// What will not go away by itself, with the command that clears it.
pub(super) fn needs(view: &View) -> Markup {
    let Some(look) = &view.seen.look else { return html! {} };
    let status = &look.status;
    let peers = status.writers.iter().any(|writer| writer.state != LeaseState::Fresh && writer.peer);
    let all: usize = status.needing_a_person().count();
    let failed = status.spool.as_ref().and_then(|spool| spool["failed"].as_u64()).unwrap_or_default();
    if all == 0 && failed == 0 && status.generation.is_some() {
        return html! {};
    }
    html! {
        section.needs aria-labelledby="needs" {
            h2 #needs { "Needs a person" }
            @if status.generation.is_none() {
                p { "The store has no layout. If its name is right:" }
                (command("lockhouse init"))
            }
            ul {
                @for lease in status.needing_a_person().take(NAMED) {
                    li {
                        p {
                            strong { (lease.state) " " (lease.kind) }
                            " " bdi { (name(lease)) }
                            @if let Some(age) = lease.age { ", last heartbeat " (duration(age)) " ago" }
                            @if let Some(place) = place(lease) { span.place { (place) } }
                        }
                        (command(&clear(lease)))
                    }
                }
            }
            @if all > NAMED {
                p { "and " (count(all - NAMED, "more lease")) ". All writers that are dead:" }
                (command(if peers { "lockhouse prune --peer-is-dead" } else { "lockhouse prune" }))
            } @else if all > 0 {
                p.soft { "It is watched for its whole stale age before it goes; one that lives is spared." }
            }
            @if failed > 0 {
                p { strong { (count(usize::try_from(failed).unwrap_or(usize::MAX), "batch")) } " could not be applied:" }
                (command("lockhouse owner failed list"))
            }
        }
    }
}

/// Something to type.
fn command(text: &str) -> Markup {
    html! { pre.command tabindex="0" { code { (text) } } }
}

/// Who waits for whom, and since when.
pub(super) fn waiting(view: &View) -> Markup {
    let Some(look) = &view.seen.look else { return html! {} };
    let status = &look.status;
    let drains = status.fsck.as_ref().filter(|fsck| fsck.phase == Some(Phase::Draining));
    let measures = view.measures.as_deref();
    let own = measures.map(|measures| measures.acquiring.as_slice()).unwrap_or_default();
    html! {
        section aria-labelledby="waits" {
            h2 #waits { "Who waits" }
            @if drains.is_none() && own.is_empty() { p.soft { "Nobody." } }
            ul.waits {
                @if let Some(fsck) = drains {
                    li {
                        p {
                            strong { bdi { (name(fsck)) } }
                            " waits to have the store alone"
                            @if let Some(since) = fsck.acquired {
                                " since " (time(since, status.now))
                                @if let Ok(waits) = Duration::try_from(status.now.duration_since(since)) {
                                    ", for " (duration(waits + look.age()))
                                }
                            }
                            ": " (count(status.writers.len(), "writer")) " left"
                            @let stuck = look.writers.stale + look.writers.malformed;
                            @if stuck > 0 { ", " (stuck) " of them stale" }
                            "."
                        }
                        @if let Some(reason) = &fsck.reason { p.soft { "For: " (quoted(reason)) } }
                        @if let Some(drain) = measures.and_then(|measures| measures.draining.as_ref()) {
                            p.soft {
                                "This process drains, with " (duration(drain.budget.saturating_sub(drain.elapsed)))
                                " left of " (duration(drain.budget)) "; "
                                (count(drain.turned_away, "writer")) " turned away."
                            }
                        }
                    }
                }
                @for (kind, since) in own {
                    @if drains.is_none() || *kind == LeaseKind::Writer {
                        li { p { "This process waits for a " (kind) " lease, for " (duration(*since)) "." } }
                    }
                }
            }
        }
    }
}

/// Who holds what.
pub(super) fn inside(view: &View) -> Markup {
    let Some(look) = &view.seen.look else { return html! { section #leases tabindex="-1" {} } };
    let status = &look.status;
    let shown = worst(look);
    let rest = status.writers.len() - shown.len();
    html! {
        section #leases aria-labelledby="in" tabindex="-1" {
            h2 #in {
                "Who is in "
                span.tally {
                    (count(status.writers.len(), "writer"))
                    @if look.writers.stale > 0 { ", " (look.writers.stale) " stale" }
                    @if look.writers.malformed > 0 { ", " (look.writers.malformed) " malformed" }
                }
            }
            @if shown.is_empty() && status.fsck.is_none() { p.soft { "Nobody." } }
            ul.leases {
                @for lease in status.fsck.iter().chain(shown) { (row(lease, status.now)) }
            }
            @if rest > 0 {
                p.rest {
                    "and " (count(rest, "more writer")) ", none of them nearer to its stale age. All of them: "
                    a href="v1/status" { "status" } "."
                }
            }
        }
    }
}

fn row(lease: &LeaseInfo, now: jiff::Timestamp) -> Markup {
    let state = match (lease.state, lease.phase) {
        (LeaseState::Fresh, Some(phase)) => phase.to_string(),
        (LeaseState::Fresh, None) if lease.inherited => "inherited".to_owned(),
        (state, _) => state.to_string(),
    };
    html! {
        li class=(format!("lease {} {state}", lease.kind)) data-id=(printable(&lease.id)) {
            p.who {
                strong { bdi { (name(lease)) } }
                span.state { @if lease.kind == LeaseKind::Fsck { "fsck, " } (state) }
                @if let Some(reason) = &lease.reason { span.reason { (quoted(reason)) } }
                @if let Some(place) = place(lease) { span.place { (place) } }
            }
            (pulse(lease))
            p.since {
                @if let Some(acquired) = lease.acquired { "since " (time(acquired, now)) }
                @if lease.clock_behind { " the server's clock was set back" }
            }
        }
    }
}

/// The age of the last heartbeat against the age at which the lease is stale.
fn pulse(lease: &LeaseInfo) -> Markup {
    let (Some(age), Some(limit)) = (lease.age, lease.stale_after) else {
        let text = match lease.state {
            LeaseState::Malformed => "no heartbeat that could be read",
            _ => "the kernel knows that it lives",
        };
        return html! { p.pulse { span.soft { (text) } } };
    };
    let share = nearness(lease).clamp(0.0, 1.0);
    let class = match share {
        1.0.. => "bar hot",
        0.5.. => "bar warm",
        _ => "bar",
    };
    let text = format!("{} of {}", duration(age), duration(limit));
    html! {
        div.pulse {
            span class=(class) role="meter" aria-label="age of the last heartbeat" aria-valuemin="0"
                aria-valuemax=(limit.as_millis()) aria-valuenow=(age.min(limit).as_millis()) aria-valuetext=(text) {
                svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" {
                    rect width=(format!("{:.1}", share * 100.0)) height="6" {}
                }
            }
            span.ages { (text) }
        }
    }
}
