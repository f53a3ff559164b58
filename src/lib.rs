//! Writer leases and an exclusive fsck lease for stores that many processes write.

mod backend;
pub mod clock;
pub mod describe;
mod error;
mod holder;
pub mod lease;
mod store_url;
mod timing;

pub use error::{
    DrainTimeout, Error, ErrorKind, Failure, LeaseLost, Locked, LossReason, Result, StoreLocked,
};
pub use holder::Holder;
pub use store_url::{MongoUrl, StoreName, StoreUrl};
pub use timing::{LeaseTiming, PEER_STALE_AFTER};
