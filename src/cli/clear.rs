//! `clear` and `prune`: removing the dead, after watching that they are.

use std::future::IntoFuture;

use futures::StreamExt;
use lockhouse::{Cleared, Event, LeaseInfo, Locked, StoreLocked};
use serde_json::json;

use super::args::ClearArgs;
use super::exit::Failure;
use super::store::{self, Store};
use super::{Context, output, wait};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// A dead fsck lease.
    Clear,
    /// Dead writers.
    Prune,
}

impl Verb {
    fn command(self) -> &'static str {
        match self {
            Verb::Clear => "clear",
            Verb::Prune => "prune",
        }
    }

    /// What it is about when no ids are given.
    fn subject(self) -> &'static str {
        match self {
            Verb::Clear => "fsck lease",
            Verb::Prune => "dead writer",
        }
    }
}

/// Watches, removes, and says what it did.
pub(crate) async fn clear(context: &mut Context, args: &ClearArgs, verb: Verb) -> Result<i32, Failure> {
    let console = context.console.clone();
    let working = async {
        let store = store::open(&context.global, &console, None).await?;
        let mut events = store.coordinator.events().fuse();
        let clearing = match verb {
            Verb::Clear => store.coordinator.clear_stale_lock(),
            Verb::Prune => store.coordinator.prune_stale_writers(),
        };
        let mut clearing = clearing.ids(&args.ids).peer_is_dead(args.peer_is_dead).dry_run(args.dry_run).into_future();
        loop {
            tokio::select! {
                biased;
                result = &mut clearing => return Ok::<_, Failure>((store, result?)),
                Some(event) = events.next() => if let Event::Watching { leases, at_most } = event {
                    wait::watching(&console, &leases, at_most);
                },
            }
        }
    };
    let (store, done) = tokio::select! {
        biased;
        // Each removal is one statement: there is nothing that could be left half done.
        signal = context.signals.interrupted() => return Err(Failure::interrupted(signal)),
        result = working => result?,
    };
    report(context, args, verb, &store, done)
}

fn report(context: &Context, args: &ClearArgs, verb: Verb, store: &Store, done: Cleared) -> Result<i32, Failure> {
    if context.global.json {
        let mut object = json!(done);
        object["schema"] = 1.into();
        object["store"] = json!(store.name());
        output::print(&format!("{}\n", output::json_line(&object)))?;
    } else {
        output::print(&text(args, verb, store, &done))?;
    }
    for id in args.ids.iter().filter(|id| !is_among(id, &done)) {
        let text = format!("{id}: there is no such lease");
        context.console.event("absent", json!({"id": id}), &text);
    }
    if done.dry_run {
        return Ok(0);
    }
    if !done.cleared.is_empty() && !store.local {
        let note = "what a dead process had sent to the server may still be running there; db.currentOp() in mongosh \
                    shows it, and db.killOp(opid) ends it";
        context.console.say("note", note);
    }
    if done.spared.is_empty() {
        return Ok(0);
    }
    // Some went and some were spared: whoever reads the exit code alone has to learn of those.
    let locked = StoreLocked { store: store.name().clone(), cause: Locked::NotDead { leases: done.spared } };
    Err(lockhouse::Error::from(locked).into())
}

fn text(args: &ClearArgs, verb: Verb, store: &Store, done: &Cleared) -> String {
    if done.cleared.is_empty() && done.spared.is_empty() {
        let subject = if args.ids.is_empty() { verb.subject() } else { "such lease" };
        return format!("store {}: no {subject} is there; nothing to do\n", store.name());
    }
    let mut text = String::new();
    let mut list = |what: &str, leases: &[LeaseInfo]| {
        for lease in leases {
            text.push_str(&format!("{what}: {lease}\n"));
        }
    };
    if done.dry_run {
        list("would watch, and remove if it is dead", &done.cleared);
        list("would spare", &done.spared);
        if done.cleared.is_empty() {
            text.push_str(&format!("nothing that `lockhouse {}` would remove\n", verb.command()));
        }
    } else {
        list("removed", &done.cleared);
        list("spared", &done.spared);
    }
    text
}

fn is_among(id: &str, done: &Cleared) -> bool {
    let mut leases = done.cleared.iter().chain(&done.spared);
    leases.any(|lease| lease.id == id || lease.owner.as_deref() == Some(id))
}
