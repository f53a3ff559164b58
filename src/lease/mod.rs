//! The engine: handshake, supervision, drain, clearing and status, written once over the trait `Backend`.
//!
//! # What it does not promise
//!
//! No lease can stop a write that was already sent: an operation that a server has begun outlives its
//! client. A machine whose every clock stops unnoticed (a hypervisor's pause) does not notice its deadline.
//! A user who edits leases by hand can break anything.
//!
//! # Who may hold what together
//!
//! Any number of writers; or one fsck. The order makes it safe: each side *first* makes its own document
//! durable and *then* looks for the other's.
//!
//! ```text
//! writer: register ─▶ look: no fsck there? ─▶ granted            else withdraw
//! fsck:   install  ─▶ look: who is there?  ─▶ wait for those ─▶ phase exclusive, generation + 1: granted
//! ```
//!
//! Whichever document is durable first is seen by the other side's look. An fsck waits for the writers of
//! its *first* look only: one that registers later finds the fsck document and withdraws.
//!
//! # How long a lease is believed
//!
//! The holder believes in it until `stale_after − refresh_interval` after the instant before its last
//! confirmed write was *sent*, on a clock that counts sleep. Others call it stale when its heartbeat is
//! `stale_after` old by the *store's* clock, and dead when its pulse stood still for `stale_after` on their
//! own clock. Only dead leases are removed, on condition of exactly the pulse that was watched.
//!
//! # What is known when a call fails
//!
//! Absence in a read-back proves nothing, for the statement may still be under way. Whoever does not go on
//! as the holder sends the delete, through the same session, until it is confirmed; a new attempt has a new
//! name. Where the store cannot refuse late statements of a session (a standalone MongoDB server), the
//! delete is repeated one stale age later.
//!
//! # Files
//!
//! `supervisor` runs everything on its thread; `writer`, `fsck` and `drain` acquire; `renew` keeps alive and
//! watches deadlines; `release` gives back and withdraws; `dead` clears; `look` shows; `state` is one lease;
//! `gate` shares one lease; `slots` has the fence documents of one; `measures` counts; `rules` names what must never be
//! left out.

pub(crate) mod attempt;
pub(crate) mod command;
pub(crate) mod dead;
pub(crate) mod drain;
pub(crate) mod events;
mod fsck;
pub(crate) mod gate;
mod guard;
mod look;
pub(crate) mod measures;
mod pulse;
mod release;
mod renew;
mod rules;
#[cfg(test)]
mod simulation;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod supervisor;
mod wait;
pub(crate) mod watch;
mod writer;

pub use dead::Cleared;
pub use drain::DrainProgress;
pub use events::Event;
pub use gate::{GateOptions, GateState, OnFsck, WriteGuard, WriterGate};
pub(crate) use guard::Hold;
pub use guard::{FsckLease, Lease, WriterLease};
pub use measures::{AcquireOutcome, DrainMeasures, GateMeasures, HeldLease, LATENCY_BOUNDS, Latency, Measures};
#[cfg(test)]
pub(crate) use rules::{Rule, Rules};
pub use watch::Watch;
