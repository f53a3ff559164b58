//! How much a batch may have. A producer stays below, and an ingestor checks it before it reads: whoever may write the
//! spool can put anything there.

use crate::records::LONGEST_ROW;

/// The limits of one batch. How deep a row may nest, its schema knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The longest file, in bytes as it lies there.
    pub(crate) file: u64,
    /// All files together, in bytes unpacked.
    pub(crate) unpacked: u64,
    /// All rows together.
    pub(crate) rows: u64,
    /// Entries.
    pub(crate) entries: usize,
    /// The longest row, in bytes of JSON.
    pub(crate) row: usize,
    /// The longest manifest, in bytes.
    pub(crate) manifest: u64,
}

/// What every store keeps to.
pub(crate) const LIMITS: Limits = Limits {
    file: 256 << 20,
    unpacked: 1 << 30,
    rows: 1_000_000,
    entries: 10_000,
    row: LONGEST_ROW,
    manifest: 1 << 20,
};

/// What is loaded ahead of its turn, and so lies in memory beside the batch that is applied. A larger one is loaded when
/// it is its turn.
pub(crate) const LIMITS_AHEAD: Limits = Limits { file: 128 << 20, unpacked: 128 << 20, ..LIMITS };
