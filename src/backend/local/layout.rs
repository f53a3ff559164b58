//! `layout.json`: which store this is, and how many exclusive phases it has seen. Written by `init` and raised
//! only by an fsck.

use std::io;

use serde::{Deserialize, Serialize};

use super::files::{self, Durability};
use super::path::StorePath;

/// The store's id and generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    pub(crate) store_id: String,
    pub(crate) generation: i64,
}

const LONGEST: u64 = 4096;

impl Layout {
    /// The layout of a new store.
    pub(crate) fn new() -> Layout {
        Layout { store_id: crate::entropy::unique().to_string(), generation: 0 }
    }

    /// `None`: there is no layout, or none that can be read as one.
    pub(crate) fn read(store: &StorePath) -> io::Result<Option<Layout>> {
        let content = files::read(&store.layout(), LONGEST)?;
        Ok(content.and_then(|content| serde_json::from_slice(&content).ok()))
    }

    pub(crate) fn write(&self, store: &StorePath) -> io::Result<()> {
        files::replace(&store.layout(), &serde_json::to_vec(self)?, Durability::Synced)
    }
}
