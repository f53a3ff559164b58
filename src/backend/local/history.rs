//! The audit trail: one JSON object a line, appended in one write, so that lines of two processes never mix.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::files;
use super::path::StorePath;
use crate::backend::{HISTORY_KEPT, HistoryLine};
use crate::holder::Holder;
use crate::lease::status::HistoryEntry;

/// From this length on a trail is put aside, and what was aside before is dropped.
const LONGEST: u64 = 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Line {
    at: jiff::Timestamp,
    what: String,
    lease: Option<String>,
    holder: Option<Holder>,
    reason: Option<String>,
}

/// Adds a line.
pub(super) fn add(store: &StorePath, line: &HistoryLine) -> io::Result<()> {
    let line = Line {
        at: crate::clock::wall(),
        what: line.what.to_owned(),
        lease: line.lease.clone(),
        holder: Some(line.holder.clone()),
        reason: line.reason.clone(),
    };
    let mut text = serde_json::to_vec(&line)?;
    text.push(b'\n');
    let mut file = files::open_to_append(&store.history())?;
    if file.metadata()?.len() + text.len() as u64 > LONGEST {
        // Two processes may both see it full: the later one then puts a nearly empty trail aside, and the older
        // lines are gone earlier than they had to be.
        std::fs::rename(store.history(), store.older_history())?;
        file = files::open_to_append(&store.history())?;
    }
    file.write_all(&text)
}

/// The trail, oldest line first. What is no line of a trail is passed over.
pub(super) fn read(store: &StorePath) -> io::Result<Vec<HistoryEntry>> {
    let mut entries = Vec::new();
    for path in [store.older_history(), store.history()] {
        // A line may be appended beyond the bound while it is put aside.
        let Some(content) = files::read(&path, 2 * LONGEST)? else { continue };
        let lines = content.split(|byte| *byte == b'\n');
        entries.extend(lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok()).map(|line| HistoryEntry {
            at: line.at,
            what: line.what,
            lease: line.lease,
            holder: line.holder,
            reason: line.reason,
        }));
    }
    let surplus = entries.len().saturating_sub(HISTORY_KEPT);
    entries.drain(..surplus);
    Ok(entries)
}
