//! The hand-over of writes to the process that owns a store.
//!
//! ```text
//! tmp/<instance>-<id>/ ── rename ─▶ incoming/<created>-<instance>-<seq>-<id>/ ── applied ─▶ trash/
//!                                                                             ── cannot be ─▶ failed/
//! ```
//!
//! # The order
//!
//! A *batch* is a directory: files of rows, and a manifest that says what is to be done with them. Its producer writes it
//! where nobody looks for batches, syncs every file and the directory, and then renames it into `incoming/`: before the
//! rename there is no batch, after it there is the whole batch. Who applied it moves it on only when what it did is on
//! the disk. Whoever is killed in between, on either side, leaves nothing that the next one could take for something else.
//!
//! Each *instance*, one open of a spool by one process, numbers its batches from 1, and they are applied in that order.
//! Between instances no order is promised.
//!
//! # What it does not promise
//!
//! Nothing is said of when a batch is applied, nor that anybody is there to do it. What a user does by hand in these
//! directories is noticed (no damaged or exchanged batch is applied, and a missing one is waited for and then said to be
//! missing), but not undone.
//!
//! # Map
//!
//! `name` has the names of batches, `instance` numbers them, `batch` is what becomes one, `manifest` and `codec` how it
//! lies on the disk, `limits` how large it may be, `directories` the four directories. `publish` and `load` are the two
//! ends of the way. `listing` and `order` say what comes next, `dispose` and `collect` where it goes afterwards, and
//! `failed` is for what went wrong, `status` for whoever looks. `writer` gathers entries to batches.

mod batch;
mod codec;
mod collect;
mod digest;
mod directories;
mod dispose;
mod failed;
mod fill;
mod instance;
mod limits;
mod listing;
mod load;
mod manifest;
mod name;
mod open;
mod order;
mod publish;
mod status;
mod writer;

pub use batch::NewBatch;
pub use codec::{Budget, Format, Formats, Ndjson, NdjsonGz, TakeRow};
pub use dispose::Reason;
pub use failed::{FailedFile, FailedFiles};
pub use instance::{Place, Taken};
pub use listing::Listing;
pub use manifest::MANIFEST_VERSION;
pub use name::{BatchName, is_batch_id, is_instance};
pub use open::Spool;
pub use order::Gap;
pub use publish::Producer;
pub use status::SpoolStatus;
pub use writer::{Caps, NotTaken, Sink, Writer};

pub(crate) use collect::collect;
pub(crate) use directories::{Directories, Directory};
pub(crate) use dispose::{explain, fail, trash};
pub(crate) use limits::{LIMITS, LIMITS_AHEAD};
pub(crate) use listing::Listed;
pub(crate) use load::{LoadError, load};
pub(crate) use order::{Gaps, plan};
