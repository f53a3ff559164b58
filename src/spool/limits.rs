//! How much a batch may have. A producer stays below, and an ingestor checks it before it reads: whoever may write the
//! spool can put anything there.

/// The limits of one batch.
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
    /// How deep the JSON of a row may nest.
    pub(crate) depth: usize,
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
    depth: 64,
    row: 16 << 20,
    manifest: 1 << 20,
};
