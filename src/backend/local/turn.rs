//! `turn.json`: until when an fsck that can wait lets writers in first. By the machine's wall clock: whoever reads it
//! waits no longer than it would have waited anyway.

use std::io;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::files::{self, Durability};
use super::path::StorePath;

#[derive(Serialize, Deserialize)]
struct Turn {
    until: Timestamp,
}

const LONGEST: u64 = 4096;

pub(super) fn leave(store: &StorePath, lasts: Duration) -> io::Result<()> {
    let lasts = SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX);
    let until = crate::clock::wall().checked_add(lasts).unwrap_or(Timestamp::MAX);
    files::replace(&store.turn(), &serde_json::to_vec(&Turn { until })?, Durability::Fleeting)
}

/// Zero if there is none, or none that can be read as one.
pub(super) fn left(store: &StorePath) -> io::Result<Duration> {
    let content = files::read(&store.turn(), LONGEST)?;
    let turn: Option<Turn> = content.and_then(|content| serde_json::from_slice(&content).ok());
    let left = turn.map(|turn| turn.until.duration_since(crate::clock::wall()));
    Ok(left.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default())
}
