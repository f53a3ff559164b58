//! One process of a local store writes it: the owner, elected by a file lock.
//!
//! ```text
//! Candidate ── elect ─▶ OwnerLock ── serve_control ─▶ ControlServer ◀── control_status, watch
//!     ▲                     │                                               │
//!     └──── Takeover ◀──────┴── P.owner.json ◀── read_state        Takeover ┘
//! ```
//!
//! [`exclusive()`] is all of it for a store that only one process can open at all; [`Store`] for records that any
//! process may read and write.
//!
//! # What it does not promise
//!
//! The lock alone says who owns the store. The state, and the socket that answers with it, are for people and for
//! finding the owner quickly: they may be missing, old, or somebody else's, and nothing decides by them. A user who
//! removes or replaces P.lock or P.leases breaks the exclusion: the owner notices and stops, but not before somebody
//! else may have begun.
//!
//! # From the Go package `owner`
//!
//! | there | here |
//! | --- | --- |
//! | `ControlIngest(path, ids, wait, timeout)` | [`control_ingest`] |
//! | `ControlStatus(path)` | [`control_status`] |
//! | `ServeControl(path, handler)`, `ControlServer.Close` | [`serve_control`], for the holder of the lock alone; [`ControlServer`] |
//! | `ControlHandler` | [`ControlHandler`]; [`StatusOnly`] where there is nothing to ingest |
//! | `SocketPath(path)` | [`socket_path`]; a long address lies in `P.leases/`, not in the temp dir |
//! | `Exclusive(path, build)` | [`exclusive()`], which takes a writer lease too |
//! | `NetworkFilesystem(name)`, `RefuseNetworkFilesystem(dir)` | [`network_filesystem`], [`refuse_network_filesystem`] |
//! | `State`, `SpoolState`, `Phase` | [`State`], [`SpoolState`], [`Phase`], read by [`read_state`] |
//! | `ErrLocked`, `LockedError` | [`Error::StoreLocked`](crate::Error::StoreLocked) with [`Locked::Owned`](crate::Locked::Owned) |
//! | `Open(ctx, options)`, `Options` | [`Store::open`], [`OpenStore`]: `path`, [`build`](OpenStore::build), [`format`](OpenStore::format), [`start_wait`](OpenStore::start_wait), [`drain_on_close`](OpenStore::drain_on_close), [`poll`](OpenStore::poll) |
//! | `Options.Open`, `Options.Store`, `Options.CatalogVersion` | [`Opener`]: it opens for writing and for reading, names the file, and says which catalog it reads; [`Sqlite`] |
//! | `Store.Backend` | [`Store::read`], [`Store::scan`], [`Store::meta`], [`Store::kinds`]; [`Store::write`], [`Store::append`], [`Store::apply`] |
//! | `Store.Role`, `Store.OnRole`, `Role` | [`Store::role`], [`Store::on_role`], [`Role`] |
//! | `Store.Status`, `Store.Close` | [`Store::status`], [`Store::close`] |
//! | `Store.Await` | [`Store::await_batch`], [`BatchResult`] |
//! | `Store.Writer`, `Writer`, `Writer.Flush`, `FlushOptions.Wait` | [`Store::writer`], [`StoreWriter`], [`StoreWriter::flush`], [`Until`] |
//! | `ErrPending`, `PendingError` | [`Error::Pending`](crate::Error::Pending) |
//! | `ErrCatalogVersion`, `CatalogVersionError` | [`Error::CatalogVersion`](crate::Error::CatalogVersion) |
//! | `Target` | [`records::Target`](crate::records::Target): what an owner does to a store |
//!
//! # Map
//!
//! `candidate` elects, `lock` is what the elected one holds, `keeper` is the thread that re-checks and beats, `state` is
//! what the owner says about itself, `exclusive` is the owner that is nothing else, `ingest` applies what the spool has,
//! `store` is all of it for records, `control` the socket, `takeover` how a follower becomes the owner.

mod candidate;
mod control;
mod exclusive;
mod ingest;
mod keeper;
mod lock;
mod state;
mod store;
mod takeover;

pub use crate::backend::local::filesystem::{network_filesystem, refuse_network_filesystem};
pub use candidate::Candidate;
pub use control::{
    ControlHandler, ControlServer, Ingested, StatusOnly, Watch, control_ingest, control_status, serve_control,
    socket_path, watch,
};
pub use exclusive::{AcquireExclusive, Exclusive, exclusive};
pub use ingest::{AppliedBatch, Cause, FailedBatch, Ingestor, OnPoison, Paused, Round, Stuck, Waiting};
pub use lock::OwnerLock;
pub use state::{Claim, Ownership, Phase, SpoolState, State, left_state, read_state, store_name};
pub use store::{
    BatchResult, Changes, Delivered, Flushed, OpenStore, Opener, ReadOnly, Role, Sqlite, Store, StoreWriter, Until,
    read_only,
};
pub use takeover::Takeover;
