//! What is done to a stream as a whole: `seal`, `reopen`, `trim`, `expire`, `delete`.

use lockhouse::Error;
use lockhouse::records::{Applied, Entry, Operation, StreamMeta, StreamName};
use lockhouse::spool::NewBatch;
use serde_json::json;

use super::super::exit::Failure;
use super::super::{Context, output};
use super::args::{ChangeArgs, DeleteArgs};
use super::look::found;
use super::progress::grouped;
use super::writing::{Builds, Writing};
use super::{read_only, result_of};

/// Does one thing to one stream, and says what it did.
pub(super) async fn change(context: &mut Context, args: ChangeArgs, operation: Operation) -> Result<i32, Failure> {
    let name = operation.name();
    let builds = Builds::labelled(format!("records {name} {}", args.stream));
    let writing = Writing::open_existing(context, builds, args.patience.wait).await?;
    let entry = Entry { stream: args.stream.clone(), generation: args.generation, operation };
    let batch = NewBatch::new(Vec::new(), vec![entry]);
    let id = batch.id.clone();
    let wait = (!args.patience.no_wait).then_some(args.patience.wait);
    let delivered = tokio::select! {
        biased;
        signal = context.signals.interrupted() => Err(match signal {
            Ok(signal) => {
                let left = format!("whether it is done tells `lockhouse records await {id}`");
                Failure::Interrupted { signal, left: Some(left) }
            }
            signal => Failure::interrupted(signal),
        }),
        delivered = writing.deliver(batch, wait) => delivered,
    };
    let store = writing.name().clone();
    writing.close(context).await;
    let applied = match delivered? {
        Ok(outcome) => result_of(&store, &id, outcome)?.into_iter().next(),
        Err(_) if wait.is_none() => None,
        Err(pending) => return Err(Error::from(pending).into()),
    };
    let text = if context.global.json {
        output::json_line(&json!({
            "schema": 1, "store": store, "stream": args.stream, "operation": name, "batch": id,
            "generation": applied.as_ref().map(|applied| applied.generation),
            "removed": applied.as_ref().map(|applied| applied.removed),
            "pending": applied.is_none()
        }))
    } else {
        match &applied {
            Some(applied) => done(&args.stream, name, applied),
            None => id,
        }
    };
    output::print(&format!("{text}\n"))?;
    Ok(0)
}

fn done(stream: &StreamName, operation: &str, applied: &Applied) -> String {
    let removed = grouped(applied.removed);
    match operation {
        "seal" => format!("stream {stream}: sealed"),
        "reopen" => format!("stream {stream}: takes rows again"),
        "trim" => format!("stream {stream}: {removed} rows removed"),
        "expire" => format!("stream {stream}: its time to live is set"),
        _ => format!("stream {stream}: deleted with {removed} rows"),
    }
}

/// Removes a stream, or says what would go.
pub(super) async fn delete(context: &mut Context, args: DeleteArgs) -> Result<i32, Failure> {
    if args.yes {
        return change(context, args.change, Operation::Delete).await;
    }
    let stream = args.change.stream;
    super::interruptible(context, |global, _| async move {
        let store = read_only(&global)?;
        let meta = found(&store, &stream).await?;
        let text = if global.json {
            let StreamMeta { kind, generation, rows, first, next, .. } = &meta;
            output::json_line(&json!({
                "schema": 1, "store": store.name(), "stream": stream, "operation": "delete", "dry_run": true,
                "kind": kind, "generation": generation, "rows": rows, "first": first, "next": next
            }))
        } else {
            format!(
                "would remove stream {stream} of kind {} with {} rows, generation {}; to do it, add --yes --generation {}",
                meta.kind,
                grouped(meta.rows),
                meta.generation,
                meta.generation
            )
        };
        output::print(&format!("{text}\n"))?;
        Ok(0)
    })
    .await
}
