//! `owner failed`: what could not be applied.

use std::ffi::OsStr;
use std::time::Duration;

use lockhouse::StoreName;
use lockhouse::describe::printable;
use lockhouse::owner::control_ingest;
use lockhouse::records::{Batch, Operation};
use lockhouse::spool::{FailedFile, FailedFiles, Formats, Producer, Spool};
use serde_json::{Value, json};

use super::super::args::Global;
use super::super::exit::Failure;
use super::super::records::read_only;
use super::super::table::{Table, fit};
use super::super::{Context, interruptible, output};
use super::args::FailedCommand;

/// How long an owner may take to hear of a batch.
const PATIENCE: Duration = Duration::from_secs(2);
/// The format that every owner reads.
const FORMAT: &str = "ndjson";
/// The widest line about an entry.
const WIDTH: usize = 160;

/// Runs one of its commands.
pub(super) async fn failed(context: &mut Context, command: FailedCommand) -> Result<i32, Failure> {
    interruptible(context, |global, _| async move {
        match command {
            FailedCommand::List => list(&global),
            FailedCommand::Show(which) => show(&global, &which.id),
            FailedCommand::Retry(which) => retry(&global, &which.id).await,
            FailedCommand::Drop(args) => remove(&global, &args.which.id, args.yes),
        }
    })
    .await
}

/// The store's name, and its spool if it has one.
fn spool(global: &Global) -> Result<(StoreName, Option<Spool>), Failure> {
    let store = read_only(global)?.name().clone();
    Ok((store, Spool::find(&super::path(global)?, &global.allow_filesystem)?))
}

fn find(global: &Global, which: &OsStr) -> Result<(StoreName, Spool, FailedFile), Failure> {
    let (store, spool) = spool(global)?;
    if let Some(spool) = spool
        && let Some(found) = FailedFiles::of(&spool).find(which)?
    {
        return Ok((store, spool, found));
    }
    let which = printable(&which.to_string_lossy());
    let message = format!("nothing of the name {which} has failed; `lockhouse owner failed list` lists what has");
    Err(Failure::Invalid { store, message })
}

fn list(global: &Global) -> Result<i32, Failure> {
    let (store, spool) = spool(global)?;
    let all = spool.map_or_else(|| Ok(Vec::new()), |spool| FailedFiles::of(&spool).list())?;
    let text = if global.json {
        all.iter().map(|failed| output::json_line(&object(&store, failed)) + "\n").collect()
    } else if all.is_empty() {
        format!("store {store}: nothing has failed\n")
    } else {
        let mut table = Table::new(&[("batch", 40), ("at (UTC)", 19), ("why", 100)]);
        for failed in &all {
            let at = failed.reason.as_ref().map(|reason| reason.at.strftime("%Y-%m-%d %H:%M:%S").to_string());
            table.row([printable(&name(failed)), at.unwrap_or_default(), printable(&why(failed))]);
        }
        table.to_string()
    };
    output::print(&text)?;
    Ok(0)
}

/// What it is called: the batch's id, or what lies there instead of one.
fn name(failed: &FailedFile) -> String {
    match &failed.name {
        Some(name) => name.id().to_owned(),
        None => failed.file.to_string_lossy().into_owned(),
    }
}

fn why(failed: &FailedFile) -> String {
    failed.reason.as_ref().map_or_else(|| "nobody could write down why".to_owned(), |reason| reason.error.clone())
}

fn object(store: &StoreName, failed: &FailedFile) -> Value {
    let name = failed.name.as_ref();
    json!({
        "schema": 1, "store": store, "file": failed.file.to_string_lossy(), "batch": name.map(|name| name.id()),
        "instance": name.map(|name| name.instance()), "seq": name.map(|name| name.seq()),
        "at": failed.reason.as_ref().map(|reason| reason.at), "error": failed.reason.as_ref().map(|reason| &reason.error)
    })
}

fn show(global: &Global, which: &OsStr) -> Result<i32, Failure> {
    let (store, spool, failed) = find(global, which)?;
    let batch = FailedFiles::of(&spool).show(&failed, &Formats::default());
    let text = if global.json {
        let mut object = object(&store, &failed);
        object["entries"] = match &batch {
            Ok(batch) => batch.entries.iter().map(entry).collect(),
            Err(_) => Value::Null,
        };
        object["unreadable"] = batch.err().map(|error| error.to_string()).into();
        output::json_line(&object)
    } else {
        let mut lines = vec![
            format!("batch {}", printable(&name(&failed))),
            format!("  in {}", printable(&spool.path().join("failed").join(&failed.file).to_string_lossy())),
            format!("  why: {}", printable(&why(&failed))),
        ];
        match &batch {
            Ok(batch) => lines.extend(entries(batch)),
            Err(error) => lines.push(format!("  it cannot be read: {}", printable(&error.to_string()))),
        }
        lines.join("\n")
    };
    output::print(&format!("{text}\n"))?;
    Ok(0)
}

fn entry(entry: &lockhouse::records::Entry) -> Value {
    let (kind, rows) = match &entry.operation {
        Operation::Append { kind, rows, .. } => (Some(kind), Some(rows.len())),
        _ => (None, None),
    };
    json!({
        "operation": entry.operation.name(), "stream": entry.stream, "kind": kind, "rows": rows,
        "generation": entry.generation
    })
}

fn entries(batch: &Batch) -> Vec<String> {
    let line = |entry: &lockhouse::records::Entry| {
        let what = match &entry.operation {
            Operation::Append { kind, rows, .. } => format!("append {} rows of kind {kind} to", rows.len()),
            other => other.name().to_owned(),
        };
        fit(&format!("  {what} stream {}", entry.stream), WIDTH)
    };
    batch.entries.iter().map(line).collect()
}

async fn retry(global: &Global, which: &OsStr) -> Result<i32, Failure> {
    let (store, _, failed) = find(global, which)?;
    let formats = Formats::default();
    let spool = Spool::allowing(&super::path(global)?, &global.allow_filesystem)?;
    let producer = Producer::new(&spool, env!("CARGO_PKG_VERSION"));
    let name = FailedFiles::of(&spool).retry(&failed, &producer, &formats, FORMAT)?;
    // An owner that does not hear it looks by itself soon; without one it waits.
    let told = control_ingest(super::path(global)?, &[], false, PATIENCE).await.is_ok();
    let text = if global.json {
        output::json_line(&json!({
            "schema": 1, "store": store, "file": failed.file.to_string_lossy(), "batch": name.id(), "owner_told": told
        }))
    } else {
        format!(
            "handed over again as batch {}; `lockhouse records await {}` tells what becomes of it",
            name.id(),
            name.id()
        )
    };
    output::print(&format!("{text}\n"))?;
    Ok(0)
}

fn remove(global: &Global, which: &OsStr, yes: bool) -> Result<i32, Failure> {
    let (store, spool, failed) = find(global, which)?;
    if yes {
        FailedFiles::of(&spool).drop(&failed)?;
    }
    let text = if global.json {
        let mut object = object(&store, &failed);
        object["dry_run"] = (!yes).into();
        output::json_line(&object)
    } else if yes {
        format!("removed: {}", printable(&name(&failed)))
    } else {
        format!("would remove {}: {}; to do it, add --yes", printable(&name(&failed)), printable(&why(&failed)))
    };
    output::print(&format!("{text}\n"))?;
    Ok(0)
}
