//! Streams of records on a real SQLite file.
//!
//! - `input`: what is refused, by name, while the rest of its batch is stored.
//! - `batches`: once, in order, whole; the ledger.
//! - `streams`: windows of seqs, generations, keys, seal, trim, delete.
//! - `schemas`: kinds that are widened, and those that are not.
//! - `retention`: what a time to live ends.
//! - `opening`: what may be in the file's place, versions, identities, promotion.
//! - `beside`: readers, other programs and this process's own other connections.
//! - `crashes`: killed at the commit, and a full disk.
//! - `probe`: the process that the others start: this binary once more, with a role.
//! - `store`: a store of a test's own.

mod batches;
mod beside;
mod crashes;
mod input;
mod opening;
mod probe;
mod retention;
mod schemas;
mod store;
mod streams;
#[path = "../support/mod.rs"]
mod support;
