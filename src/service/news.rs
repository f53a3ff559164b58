//! What two looks at a store tell apart: who came, who went, what got stale, what the store is in.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::watch::{Look, Seen, now};
use crate::{LeaseInfo, LeaseKind, LeaseState};

/// How many leases an event names. The others are counted.
const NAMED: usize = 10;

/// The events between two looks.
pub(crate) fn between(before: &Seen, after: &Seen) -> Vec<Value> {
    let mut events = Vec::new();
    match (&before.trouble, &after.trouble) {
        (None, Some(trouble)) => events.push(json!({"event": "unreachable", "message": trouble.message})),
        (Some(trouble), None) => {
            let away = now().since(trouble.since).as_millis();
            events.push(json!({"event": "reachable", "away_ms": u64::try_from(away).unwrap_or(u64::MAX)}));
        }
        _ => {}
    }
    if let (Some(old), Some(new)) = (&before.look, &after.look) {
        looks(old, new, &mut events);
    }
    events
}

fn looks(old: &Look, new: &Look, events: &mut Vec<Value>) {
    let (old, new) = (&old.status, &new.status);
    if old.state != new.state {
        events.push(json!({"event": "phase", "from": old.state, "to": new.state, "fsck": new.fsck}));
    }
    if old.generation != new.generation {
        events.push(json!({"event": "generation", "from": old.generation, "to": new.generation}));
    }
    if who(old.owner.as_ref()) != who(new.owner.as_ref()) {
        events.push(json!({"event": "role", "owner": new.owner}));
    }
    let (was, is) = (by_name(old.fsck.iter().chain(&old.writers)), by_name(new.fsck.iter().chain(&new.writers)));
    let came = is.iter().filter(|(name, _)| !was.contains_key(*name)).map(|(_, lease)| *lease);
    tell("joined", came, events);
    let went = was.iter().filter(|(name, _)| !is.contains_key(*name)).map(|(_, lease)| *lease);
    tell("left", went, events);
    let stuck = |lease: &LeaseInfo| lease.state != LeaseState::Fresh;
    let stale = is.iter().filter(|(name, lease)| stuck(lease) && !was.get(*name).is_some_and(|was| stuck(was)));
    tell("stale", stale.map(|(_, lease)| *lease), events);
}

/// An acquisition has a name of its own, an fsck's document has not.
fn by_name<'a>(leases: impl Iterator<Item = &'a LeaseInfo>) -> BTreeMap<(&'a str, Option<&'a str>), &'a LeaseInfo> {
    leases.map(|lease| ((lease.id.as_str(), lease.owner.as_deref()), lease)).collect()
}

fn tell<'a>(event: &str, leases: impl Iterator<Item = &'a LeaseInfo>, events: &mut Vec<Value>) {
    let leases: Vec<&LeaseInfo> = leases.collect();
    if leases.is_empty() {
        return;
    }
    let of = |kind: LeaseKind| leases.iter().filter(|lease| lease.kind == kind).count();
    let named: Vec<&&LeaseInfo> = leases.iter().take(NAMED).collect();
    events
        .push(json!({"event": event, "writers": of(LeaseKind::Writer), "fscks": of(LeaseKind::Fsck), "leases": named}));
}

/// Which owner, and how far: not its heartbeat.
fn who(owner: Option<&Value>) -> Option<(&Value, &Value)> {
    owner.map(|owner| (&owner["instance"], &owner["phase"]))
}
