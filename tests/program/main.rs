//! The program as its users meet it: the real binary against a real server.
//!
//! - `running`: exit codes, the environment of a command, wrappers inside wrappers, lost leases, killed wrappers.
//! - `draining`: `fsck` and its writers.
//! - `waiting`: `--wait`, and what is told meanwhile.
//! - `interrupts`: signals at each stage.
//! - `dead`: stale leases, `clear`, `prune`.
//! - `looking`: `status` and `history`, for people and with few rights.
//! - `contract`: the JSON forms, field by field.
//! - `usage`: the command line, and what must not be shown.
//! - `demo`: the whole story.
//! - `outages`: a server that stops answering.
//! - `terminals`: what shows on a terminal.
//! - `program`: what they all start it with.

mod contract;
mod dead;
mod demo;
mod draining;
mod interrupts;
mod looking;
mod outages;
mod program;
#[path = "../support/pty.rs"]
#[expect(dead_code, reason = "the tests of commands on terminals use the rest")]
mod pty;
mod running;
#[path = "../support/mod.rs"]
mod support;
mod terminals;
mod usage;
mod waiting;
