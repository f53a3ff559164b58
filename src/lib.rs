//! Writer leases and an exclusive fsck lease for stores that many processes write.
//!
//! Any number of processes hold a [`WriterLease`] at once; one holds the [`FsckLease`], alone, once every
//! writer that was there before it has gone. A [`Coordinator`] is the handle on one store: a MongoDB database,
//! where only the server's clock judges the age of a lease; a path on this machine, where the kernel knows who lives; or
//! a [`MemoryStore`] within the process for tests.
//!
//! ```no_run
//! use lockhouse::Coordinator;
//!
//! # async fn example() -> lockhouse::Result<()> {
//! let coordinator = Coordinator::connect("mongodb://localhost/shop").await?;
//! let lease = coordinator.acquire_writer().await?;
//! lease.check()?;
//! lease.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it does not promise
//!
//! No lease can stop a write that was already sent: an operation that a server has begun outlives its client.
//! A stale lease is never taken by itself; a person, or a script that a person wrote, clears it.
//!
//! # Map
//!
//! [`Coordinator`] and its verbs: `init`, `acquire_writer`, `acquire_fsck`, `clear_stale_lock`,
//! `prune_stale_writers`, `status`, `history`, `events`, `measures`, `shutdown`. [`Error`] and [`ErrorKind`] say what to do
//! when one fails. [`LeaseTiming`] has the numbers, [`clock`] what measures them.
//!
//! `records` (feature `local`) has append-only streams of rows: what is written to them travels in batches, each applied
//! once, and `records::sqlite` keeps them in a SQLite file.
//!
//! # From httk-store
//!
//! With the collection `_httk_store_metadata` both keep each other out of the same store. Its names and ours:
//!
//! | httk-store | lockhouse |
//! | --- | --- |
//! | `StoreLockedError` | [`Error::StoreLocked`], with [`Locked`] saying who; [`Error::DrainTimeout`] after the budget |
//! | `LeaseLostError` | [`Error::LeaseLost`], with [`LossReason`] saying why |
//! | `LeaseTiming(refresh_interval=2.0, stale_multiplier=4, poll_initial=0.02, poll_max=0.25)` | [`LeaseTiming::default`], the same numbers |
//! | `LeaseTiming.stale_after` | [`LeaseTiming::stale_after`] |
//! | `Lease.database`, `identifier`, `owner`, `timing` | [`Lease::database`], [`Lease::identifier`], [`Lease::owner`], [`Lease::timing`] |
//! | `Lease.refresh_heartbeat(force=False)` | [`Lease::refresh_heartbeat`]; the supervisor refreshes by itself |
//! | `Lease.release()` | [`WriterLease::release`], [`FsckLease::release`], or drop it |
//! | `WriterLease.generation` | [`Lease::generation`] |
//! | `acquire_writer(database, timing=…)` | [`Coordinator::acquire_writer`] |
//! | `acquire_fsck(database, force=False, timing=…)` | [`Coordinator::acquire_fsck`]; [`AcquireFsck::force`] removes the dead and spares the living |
//! | `clear_stale_lock(database, timing=…)` | [`Coordinator::clear_stale_lock`], which watches before it clears |
//! | `DEFAULT_TIMING` | [`LeaseTiming::default`]; on a replica set [`LeaseTiming::for_failover`] |

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

mod backend;
pub mod clock;
mod connect;
mod coordinator;
#[cfg(feature = "local")]
mod crash;
pub mod describe;
mod entropy;
mod error;
#[cfg(feature = "mongo")]
mod fence;
mod holder;
mod lease;
#[cfg(feature = "local")]
pub mod owner;
#[cfg(feature = "local")]
pub mod records;
mod request;
#[cfg(feature = "service")]
pub mod service;
#[cfg(feature = "local")]
pub mod spool;
mod store_url;
mod timing;

pub use backend::Init;
pub use backend::memory::MemoryStore;
pub use connect::CoordinatorBuilder;
pub use coordinator::{Coordinator, DEFAULT_DRAIN_BUDGET};
#[cfg(feature = "local")]
pub use error::{CatalogVersion, Refused};
pub use error::{DrainTimeout, Error, ErrorKind, Failure, LeaseLost, Locked, LossReason, Pending, Result, StoreLocked};
#[cfg(feature = "mongo")]
pub use fence::FencedError;
pub use holder::Holder;
pub use lease::status::{HistoryEntry, LeaseInfo, LeaseKind, LeaseState, Phase, Status, StoreState};
pub use lease::{AcquireOutcome, DrainMeasures, GateMeasures, HeldLease, LATENCY_BOUNDS, Latency, Measures};
pub use lease::{Cleared, DrainProgress, Event, FsckLease, Lease, WriterLease};
pub use lease::{GateOptions, GateState, OnFsck, Watch, WriteGuard, WriterGate};
pub use request::{AcquireFsck, AcquireWriter, Clear};
pub use store_url::{MongoUrl, StoreName, StoreUrl};
pub use timing::{LeaseTiming, PEER_STALE_AFTER};

/// The driver whose sessions a lease fences.
#[cfg(feature = "mongo")]
pub use mongodb;

/// The README's example is compiled as a test.
#[cfg(all(doctest, feature = "mongo"))]
#[doc = include_str!("../README.md")]
struct Readme;
