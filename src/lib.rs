//! Writer leases and an exclusive fsck lease for stores that many processes write.

#![deny(clippy::disallowed_methods, clippy::disallowed_macros)]

mod backend;
pub mod clock;
mod connect;
mod coordinator;
pub mod describe;
mod entropy;
mod error;
mod holder;
mod lease;
mod request;
mod store_url;
mod timing;

pub use backend::Init;
pub use backend::memory::MemoryStore;
pub use connect::CoordinatorBuilder;
pub use coordinator::{Coordinator, DEFAULT_DRAIN_BUDGET};
pub use error::{DrainTimeout, Error, ErrorKind, Failure, LeaseLost, Locked, LossReason, Result, StoreLocked};
pub use holder::Holder;
pub use lease::status::{HistoryEntry, LeaseInfo, LeaseKind, LeaseState, Phase, Status, StoreState};
pub use lease::{Cleared, DrainProgress, Event, FsckLease, Lease, WriterLease};
pub use request::{AcquireFsck, AcquireWriter, Clear};
pub use store_url::{MongoUrl, StoreName, StoreUrl};
pub use timing::{LeaseTiming, PEER_STALE_AFTER};
