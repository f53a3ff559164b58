//! Writer leases and an exclusive fsck lease for stores that many processes write.

mod backend;
pub mod clock;
mod coordinator;
pub mod describe;
mod entropy;
mod error;
mod holder;
mod lease;
mod store_url;
mod timing;

pub use backend::Init;
pub use backend::memory::MemoryStore;
pub use coordinator::{AcquireFsck, AcquireWriter, Clear, Coordinator, CoordinatorBuilder, DEFAULT_DRAIN_BUDGET};
pub use error::{DrainTimeout, Error, ErrorKind, Failure, LeaseLost, Locked, LossReason, Result, StoreLocked};
pub use holder::Holder;
pub use lease::status::{HistoryEntry, LeaseInfo, LeaseKind, LeaseState, Phase, Status, StoreState};
pub use lease::{Cleared, DrainProgress, Event, FsckLease, Lease, WriterLease};
pub use store_url::{MongoUrl, StoreName, StoreUrl};
pub use timing::{LeaseTiming, PEER_STALE_AFTER};
