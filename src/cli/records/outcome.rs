//! What became of a batch.

use lockhouse::records::{Applied, BatchOutcome, Outcome};
use lockhouse::{Error, Refused, StoreName};
use serde_json::json;

use super::super::exit::Failure;
use super::super::{Context, output};
use super::args::AwaitArgs;
use super::writing::{Builds, Writing};

/// What a batch of one entry did, or why it did nothing.
pub(crate) fn result_of(store: &StoreName, id: &str, outcome: BatchOutcome) -> Result<Vec<Applied>, Failure> {
    let invalid = |message: String| Err(Failure::Invalid { store: store.clone(), message });
    match outcome {
        BatchOutcome::Applied { entries, .. } => entries
            .into_iter()
            .map(|entry| match entry {
                Outcome::Applied(applied) => Ok(applied),
                Outcome::Refused(refusal) => Err(Error::from(Refused { store: store.clone(), refusal }).into()),
            })
            .collect(),
        BatchOutcome::Failed { error, .. } => invalid(format!(
            "batch {id} could not be applied, and lies in failed/: {error}; see `lockhouse owner failed show {id}`"
        )),
        _ => invalid(format!("batch {id} was removed by somebody before it was applied; hand its rows over again")),
    }
}

/// `records await`.
pub(super) async fn wait(context: &mut Context, args: AwaitArgs) -> Result<i32, Failure> {
    let writing = Writing::open_existing(context, Builds::labelled("records await"), args.wait).await?;
    let awaited = {
        let waiting = writing.outcome(&args.id, args.wait);
        tokio::select! {
            biased;
            signal = context.signals.interrupted() => Err(Failure::interrupted(signal)),
            awaited = waiting => awaited,
        }
    };
    let store = writing.name().clone();
    writing.close(context).await;
    let outcome = awaited?.map_err(Error::from)?;
    if context.global.json {
        let object = json!({"schema": 1, "store": store, "batch": args.id, "outcome": outcome});
        output::print(&format!("{}\n", output::json_line(&object)))?;
    }
    let applied = result_of(&store, &args.id, outcome)?;
    if !context.global.json {
        let sum = |count: fn(&Applied) -> u64| applied.iter().map(count).sum::<u64>();
        output::print(&format!(
            "batch {}: applied; {} rows stored, {} skipped, {} replaced or removed\n",
            args.id,
            sum(|applied| applied.stored),
            sum(|applied| applied.skipped),
            sum(|applied| applied.removed)
        ))?;
    }
    Ok(0)
}
