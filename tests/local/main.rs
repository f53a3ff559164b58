//! Leases on local stores, through the program and the library, with real processes on real files.
//!
//! - `exclusion`: `run` and `fsck` keep each other out, and a killed one is out of the way at once.
//! - `children`: who keeps a lease when its wrapper is killed.
//! - `containers`: processes that are all process 1, on hosts of other names.
//! - `tampering`: files removed or replaced under a living holder.
//! - `paths`: every way to a store, and those that are refused.
//! - `strange`: what else may be in the place of a store's files; users, modes, full disks.
//! - `crashes`: killed at each named point.
//! - `looks`: looking and being told.
//! - `overruns`: so much happens while a process is stopped that the kernel drops events.
//! - `probe`: the process that is stopped.
//! - `store`: a store of a test's own.

mod children;
mod containers;
mod crashes;
mod exclusion;
mod looks;
mod overruns;
mod paths;
mod probe;
mod store;
mod strange;
#[path = "../support/mod.rs"]
mod support;
mod tampering;
