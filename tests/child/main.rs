//! Commands under a lease, with real processes and real terminals.
//!
//! - `exits`: how a command starts and ends: codes, environment, dispositions, descriptors.
//! - `groups`: signals, grandchildren, orphans, pid 1, a killed wrapper.
//! - `lease`: deadlines and losses.
//! - `terminal`: Ctrl-C, Ctrl-Z, `fg`, `bg`, pipelines.
//! - `wrapper`: what they all start it with.

mod exits;
mod groups;
mod lease;
#[path = "../support/pty.rs"]
mod pty;
mod terminal;
mod wrapper;
