//! `history`: the audit trail.

use lockhouse::HistoryEntry;
use lockhouse::describe::printable;
use serde_json::json;

use super::args::Global;
use super::console::Console;
use super::exit::Failure;
use super::table::Table;
use super::{output, store};

/// Prints the trail, oldest first: a table, or an object a line.
pub(crate) async fn history(global: Global, console: Console) -> Result<i32, Failure> {
    let store = store::open(&global, &console, None).await?;
    let entries = store.coordinator.history().await?;
    if global.json {
        let text: String = entries.iter().map(|entry| json(entry) + "\n").collect();
        output::print(&text)?;
    } else if entries.is_empty() {
        output::print(&format!("store {}: no history yet\n", store.name()))?;
    } else {
        output::print(&table(&entries))?;
    }
    Ok(0)
}

fn json(entry: &HistoryEntry) -> String {
    let mut object = json!(entry);
    object["schema"] = 1.into();
    output::json_line(&object)
}

fn table(entries: &[HistoryEntry]) -> String {
    let mut table = Table::new(&[("at (UTC)", 19), ("what", 13), ("who", 32), ("about", 30)]);
    for entry in entries {
        let who = entry.holder.as_ref().map(super::table::holder);
        let about = match (&entry.lease, &entry.reason) {
            (_, Some(reason)) => reason.clone(),
            (Some(lease), None) => lease.clone(),
            (None, None) => String::new(),
        };
        table.row([
            entry.at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            printable(&entry.what),
            who.unwrap_or_default(),
            printable(&about),
        ]);
    }
    table.to_string()
}
