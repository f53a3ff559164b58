//! One process of a local store writes it: the owner, elected by a file lock.

pub use crate::backend::local::filesystem::{network_filesystem, refuse_network_filesystem};
