//! `owner ingest`: what was handed over is applied now.

use std::time::Duration;

use lockhouse::clock::{Clock, Moment, SystemClock};
use lockhouse::owner::{Ownership, control_ingest, read_state};
use lockhouse::spool::Spool;
use lockhouse::{Error, StoreName};
use serde_json::{Map, json};

use super::super::exit::Failure;
use super::super::records::{Builds, Writing, read_only, result_of};
use super::super::{Context, interruptible, output};
use super::args::IngestArgs;

/// How long the owner may take to hear it.
const PATIENCE: Duration = Duration::from_secs(12);
/// How long it is done here where nobody owns the store, unless it is said.
const HERE: Duration = Duration::from_secs(60);

/// Asks the owner, or does it.
pub(super) async fn ingest(context: &mut Context, args: IngestArgs) -> Result<i32, Failure> {
    let path = super::path(&context.global)?;
    drop(read_only(&context.global)?);
    let owned = read_state(&path)? != Ownership::Nobody;
    let spool = Spool::find(&path, &context.global.allow_filesystem)?;
    let ids = match (&spool, args.ids.is_empty()) {
        (Some(spool), true) => spool.waiting()?,
        _ => args.ids.clone(),
    };
    if owned && args.wait.is_none() {
        return interruptible(context, |global, _| async move {
            // It looks at the whole spool, and answers for those that are named.
            let told = control_ingest(&path, &args.ids, false, PATIENCE).await?;
            let pending: Vec<&String> = ids.iter().filter(|id| !told.results.contains_key(*id)).collect();
            let left = super::spool(&global).map_or(0, |spool| spool.backlog);
            let store = lockhouse::owner::store_name(&path)?;
            let text = match global.json {
                true => output::json_line(&json!({
                    "schema": 1, "store": store, "by": "owner", "outcomes": told.results, "pending": pending,
                    "backlog": left
                })),
                false => format!("store {store}: its owner was told; {left} batches wait"),
            };
            output::print(&format!("{text}\n"))?;
            Ok(0)
        })
        .await;
    }
    let wait = args.wait.unwrap_or(HERE);
    let writing = Writing::open(context, Builds::labelled("owner ingest"), wait).await?;
    let awaited = {
        let waiting = outcomes(&writing, &ids, SystemClock.now() + wait);
        tokio::select! {
            biased;
            signal = context.signals.interrupted() => Err(Failure::interrupted(signal)),
            awaited = waiting => awaited,
        }
    };
    let store = writing.name().clone();
    writing.close(context).await;
    report(context, &store, if owned { "owner" } else { "this process" }, awaited?)
}

/// What became of the batches.
struct Awaited {
    outcomes: Map<String, serde_json::Value>,
    /// How many rows they stored.
    stored: u64,
    refused: Option<Failure>,
    pending: Option<lockhouse::Pending>,
    left: Vec<String>,
}

async fn outcomes(writing: &Writing, ids: &[String], give_up: Moment) -> Result<Awaited, Failure> {
    let mut awaited = Awaited { outcomes: Map::new(), stored: 0, refused: None, pending: None, left: Vec::new() };
    for id in ids {
        if awaited.pending.is_some() {
            awaited.left.push(id.clone());
            continue;
        }
        match writing.outcome(id, give_up.since(SystemClock.now())).await? {
            Ok(outcome) => {
                awaited.outcomes.insert(id.clone(), json!(outcome));
                match result_of(writing.name(), id, outcome) {
                    Ok(applied) => awaited.stored += applied.iter().map(|applied| applied.stored).sum::<u64>(),
                    Err(failure) => drop(awaited.refused.get_or_insert(failure)),
                }
            }
            Err(pending) => {
                awaited.left.push(id.clone());
                awaited.pending = Some(pending);
            }
        }
    }
    Ok(awaited)
}

fn report(context: &Context, store: &StoreName, by: &str, awaited: Awaited) -> Result<i32, Failure> {
    let Awaited { outcomes, stored, refused, pending, left } = awaited;
    let backlog = super::spool(&context.global).map_or(0, |spool| spool.backlog);
    let text = match context.global.json {
        true => output::json_line(&json!({
            "schema": 1, "store": store, "by": by, "outcomes": outcomes, "pending": left, "backlog": backlog
        })),
        false if outcomes.is_empty() && left.is_empty() => format!("store {store}: nothing waits"),
        false => format!("store {store}: {} batches applied with {stored} rows; {backlog} wait", outcomes.len()),
    };
    output::print(&format!("{text}\n"))?;
    match (refused, pending) {
        (Some(failure), _) => Err(failure),
        (None, Some(pending)) => Err(Error::from(pending).into()),
        (None, None) => Ok(0),
    }
}
