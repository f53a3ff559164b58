//! `meta`, `streams` and `kinds`: what is there.

use lockhouse::StoreName;
use lockhouse::describe::printable;
use lockhouse::owner::ReadOnly;
use lockhouse::records::{Conflict, Retention, Schema, StreamMeta, StreamName};
use serde_json::{Value, json};

use super::super::args::Global;
use super::super::exit::Failure;
use super::super::output;
use super::super::table::Table;
use super::progress::grouped;
use super::read_only;

/// How many streams are read at a time.
const WINDOW: usize = 1000;

/// A stream, or that there is none.
pub(super) async fn found(store: &ReadOnly, stream: &StreamName) -> Result<StreamMeta, Failure> {
    let meta = store.meta(stream).await?;
    meta.ok_or_else(|| no_such_stream(store.name(), stream))
}

pub(super) fn no_such_stream(store: &StoreName, stream: &StreamName) -> Failure {
    let message = format!("there is no stream {stream}; `lockhouse records streams` lists those that are there");
    Failure::Invalid { store: store.clone(), message }
}

/// What is known of a stream.
pub(super) async fn meta(global: Global, stream: StreamName) -> Result<i32, Failure> {
    let store = read_only(&global)?;
    let meta = found(&store, &stream).await?;
    let text = if global.json { output::json_line(&object(store.name(), &meta)) + "\n" } else { table([&meta]) };
    output::print(&text)?;
    Ok(0)
}

/// Every stream.
pub(super) async fn streams(global: Global) -> Result<i32, Failure> {
    let store = read_only(&global)?;
    let mut after: Option<StreamName> = None;
    let mut any = false;
    loop {
        let some = store.streams(after.as_ref(), WINDOW).await?;
        let Some(last) = some.last() else { break };
        any = true;
        after = Some(last.stream.clone());
        let text = match global.json {
            true => some.iter().map(|meta| output::json_line(&object(store.name(), meta)) + "\n").collect(),
            false => table(&some),
        };
        if !output::print_while_read(&text)? {
            break;
        }
    }
    if !any && !global.json {
        output::print(&format!("store {}: no streams yet\n", store.name()))?;
    }
    Ok(0)
}

fn object(store: &StoreName, meta: &StreamMeta) -> Value {
    json!({
        "schema": 1, "store": store, "stream": meta.stream, "kind": meta.kind, "generation": meta.generation,
        "first": meta.first, "next": meta.next, "rows": meta.rows, "sealed": meta.sealed, "expires": meta.expires
    })
}

fn table<'a>(streams: impl IntoIterator<Item = &'a StreamMeta>) -> String {
    let columns = [
        ("stream", 34),
        ("kind", 20),
        ("rows", 13),
        ("seqs", 23),
        ("generation", 10),
        ("state", 7),
        ("expires (UTC)", 19),
    ];
    let mut table = Table::new(&columns);
    for meta in streams {
        let expires = meta.expires.map(|at| at.strftime("%Y-%m-%d %H:%M:%S").to_string());
        table.row([
            meta.stream.to_string(),
            meta.kind.to_string(),
            grouped(meta.rows),
            if meta.next > meta.first { format!("{} to {}", meta.first, meta.next - 1) } else { "none".to_owned() },
            meta.generation.to_string(),
            if meta.sealed { "sealed" } else { "open" }.to_owned(),
            expires.unwrap_or_default(),
        ]);
    }
    table.to_string()
}

/// Every kind.
pub(super) async fn kinds(global: Global) -> Result<i32, Failure> {
    let store = read_only(&global)?;
    let kinds = store.kinds().await?;
    let text = if global.json {
        let object =
            |schema: &Schema| json!({"schema": 1, "store": store.name(), "kind": schema.kind, "definition": schema});
        kinds.iter().map(|schema| output::json_line(&object(schema)) + "\n").collect()
    } else if kinds.is_empty() {
        format!("store {}: no kinds yet\n", store.name())
    } else {
        kinds_table(&kinds)
    };
    output::print(&text)?;
    Ok(0)
}

fn kinds_table(kinds: &[Schema]) -> String {
    let mut table = Table::new(&[("kind", 24), ("columns", 40), ("key", 16), ("on conflict", 11), ("retention", 9)]);
    for schema in kinds {
        let columns = schema.columns.iter().map(|column| {
            let holds = serde_json::to_value(column.holds).unwrap_or_default();
            let optional = if column.optional { "?" } else { "" };
            format!("{}{optional}: {}", column.name, holds.as_str().unwrap_or_default())
        });
        table.row([
            schema.kind.to_string(),
            printable(&columns.collect::<Vec<_>>().join(", ")),
            printable(&schema.key.join(", ")),
            match schema.on_conflict {
                Conflict::Skip => "skip",
                Conflict::Replace => "replace",
            }
            .to_owned(),
            match schema.retention {
                Retention::Stream => "stream",
                Retention::Row => "row",
            }
            .to_owned(),
        ]);
    }
    table.to_string()
}
