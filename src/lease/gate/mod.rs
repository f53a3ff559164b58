//! One writer lease for a whole process, entered by each of its writes at the price of an atomic.
//!
//! ```text
//!            an entry, and no fsck in the way
//!   Closed ────────────────────────────────────▶ Open ──(an fsck, a loss, idleness, the last handle)──▶ Closing
//!     ▲                                                                                                    │
//!     └──────────────── the last guard has gone, and the lease is given back ◀────────────────────────────┘
//! ```
//!
//! A closed gate has no lease; the first entry acquires it for all. While an fsck is in the way entries wait, or
//! fail, as the gate was told. A gate that closes lets nobody in and waits for the guards inside; then it gives the
//! lease back, and acquires anew when somebody wants in.
//!
//! # What it does not promise
//!
//! A guard that is held for long holds up the fsck, and whoever waits for the gate. A guard says that the lease was
//! valid when it was entered; a long write asks [`WriteGuard::check`] on its way, and has a time limit below
//! [`WriteGuard::remaining`]. A guard may be dropped only after its writes were *answered*.

mod keeper;
mod word;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::coordinator::Coordinator;
use crate::error::{Error, Result};
use crate::lease::command::Command;
use crate::lease::state::LeaseCell;
use word::Word;

/// What entries do while an fsck is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnFsck {
    /// They wait until it has gone.
    #[default]
    Wait,
    /// They fail with `StoreLocked`.
    Fail,
}

/// Options of a [`WriterGate`].
#[derive(Debug, Clone, Default)]
pub struct GateOptions {
    /// Gives the lease back when nobody entered for so long. `None`, the default: never.
    pub idle_release: Option<Duration>,
    /// What entries do while an fsck is in the way.
    pub on_fsck: OnFsck,
    /// What `status` and a draining fsck call this process, instead of the coordinator's label.
    pub label: Option<String>,
    /// What the lease is for.
    pub reason: Option<String>,
}

/// Where a gate is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateState {
    /// It has no lease; the next entry acquires one.
    Closed,
    /// Entries get in at once.
    Open,
    /// It lets nobody in, and waits for the guards inside.
    Closing,
}

/// What entries, guards and the supervisor share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) word: Word,
    /// The lease of the present period: it stays the same while anybody is inside.
    pub(crate) cell: ArcSwapOption<LeaseCell>,
    /// The last one has left a closing gate.
    pub(crate) drained: Notify,
    /// Whether the present period is over, for guards that are held for long.
    pub(crate) closing: watch::Sender<bool>,
    #[cfg(feature = "mongo")]
    commands: mpsc::UnboundedSender<Command>,
}

/// An entry that found the gate not open.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Told when the gate is open, or why it does not open.
    pub(crate) reply: oneshot::Sender<Result<()>>,
}

/// The supervisor's half of a gate.
#[derive(Debug)]
pub(crate) struct GateParts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: GateOptions,
    pub(crate) entries: mpsc::UnboundedReceiver<Entry>,
}

/// One writer lease that all writes of a process share. Clones are the same gate; the lease goes when the last of
/// them, and of its guards, is dropped.
#[derive(Debug, Clone)]
pub struct WriterGate {
    shared: Arc<Shared>,
    entries: mpsc::UnboundedSender<Entry>,
    coordinator: Coordinator,
}

impl Shared {
    pub(crate) fn closed(#[cfg(feature = "mongo")] commands: mpsc::UnboundedSender<Command>) -> Shared {
        Shared {
            word: Word::closed(),
            cell: ArcSwapOption::empty(),
            drained: Notify::new(),
            closing: watch::Sender::new(false),
            #[cfg(feature = "mongo")]
            commands,
        }
    }
}

impl WriterGate {
    pub(crate) fn new(coordinator: Coordinator, options: GateOptions) -> WriterGate {
        let shared = Arc::new(Shared::closed(
            #[cfg(feature = "mongo")]
            coordinator.0.commands.clone(),
        ));
        let (entries, receiver) = mpsc::unbounded_channel();
        // A supervisor that is gone answers no entry, and each of them says so.
        let _ = coordinator.send(Command::Gate(GateParts { shared: shared.clone(), options, entries: receiver }));
        WriterGate { shared, entries, coordinator }
    }

    /// Gets in: at once if the gate is open, else once the lease is acquired, for as long as that takes.
    ///
    /// # Errors
    ///
    /// `StoreLocked` while an fsck is in the way of a gate that was told to fail; `Invalid`, `Denied`,
    /// `Unavailable` as acquiring a writer lease does.
    ///
    /// # Cancellation
    ///
    /// The future may be dropped at any time; an acquisition that nobody waits for any more is withdrawn.
    pub async fn enter(&self) -> Result<WriteGuard> {
        loop {
            if let Some(guard) = self.try_enter() {
                return Ok(guard);
            }
            self.coordinator.is_usable()?;
            let (reply, answer) = oneshot::channel();
            if self.entries.send(Entry { reply }).is_err() {
                return Err(self.coordinator.ended());
            }
            self.coordinator.answer(answer).await?;
        }
    }

    /// As [`WriterGate::enter`], at most so long.
    ///
    /// # Errors
    ///
    /// `StoreLocked` naming the fsck in the way when the time is over, `Unavailable` if there is none.
    pub async fn enter_timeout(&self, limit: Duration) -> Result<WriteGuard> {
        tokio::select! {
            biased;
            entered = self.enter() => entered,
            // The supervisor has a clock, whatever runtime this is.
            why = self.coordinator.ask(|reply| Command::WhyClosed { after: limit, reply }) => Err(match why {
                Err(why) => why,
                Ok(()) => {
                    let waited = crate::describe::duration(limit);
                    Error::unavailable_at(self.coordinator.store(), format!("the gate did not open within {waited}"))
                }
            }),
        }
    }

    /// Gets in if the gate is open. Needs neither a runtime nor the supervisor.
    pub fn try_enter(&self) -> Option<WriteGuard> {
        if !self.shared.word.enter() {
            return None;
        }
        // From here on the guard leaves again, whatever happens.
        let guard = WriteGuard { shared: self.shared.clone(), _gate: self.entries.clone() };
        let valid = self.shared.cell.load().as_ref().is_some_and(|cell| cell.check().is_ok());
        valid.then_some(guard)
    }

    #[cfg(feature = "local")]
    pub(crate) fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// Where the gate is in its life.
    pub fn state(&self) -> GateState {
        let seen = self.shared.word.seen();
        if seen.is_open() {
            GateState::Open
        } else if seen.is_closing() {
            GateState::Closing
        } else {
            GateState::Closed
        }
    }

    /// How many guards are inside.
    pub fn inside(&self) -> u64 {
        self.shared.word.seen().inside()
    }
}

/// A write that is inside the gate. Leaves when it is dropped, which has to be after its writes were answered.
#[must_use = "a guard that is dropped has left the gate"]
#[derive(Debug)]
pub struct WriteGuard {
    shared: Arc<Shared>,
    /// The gate lives as long as one of its guards.
    _gate: mpsc::UnboundedSender<Entry>,
}

impl WriteGuard {
    fn cell(&self) -> Arc<LeaseCell> {
        // Nobody exchanges it while somebody is inside.
        self.shared.cell.load_full().expect("whoever is inside has a lease")
    }

    #[cfg(feature = "mongo")]
    pub(crate) fn parts(&self) -> (Arc<LeaseCell>, &mpsc::UnboundedSender<Command>) {
        (self.cell(), &self.shared.commands)
    }

    /// Whether the write may go on. Costs a clock read.
    ///
    /// # Errors
    ///
    /// `LeaseLost` with the reason.
    pub fn check(&self) -> Result<()> {
        let cell = self.shared.cell.load();
        let cell = cell.as_ref().expect("whoever is inside has a lease");
        cell.check().map_err(|why| cell.error(why))
    }

    /// How long the lease is valid without another confirmed refresh. Give a long write a time limit below it.
    pub fn remaining(&self) -> Duration {
        self.cell().remaining()
    }

    /// Completes with the `LeaseLost` error as soon as the lease is no longer valid.
    pub async fn lost(&self) -> Error {
        let cell = self.cell();
        let why = cell.lost().await;
        cell.error(why)
    }

    /// Completes when the gate begins to close: an fsck waits for this guard. For a guard that is held for many writes; one
    /// that is held for a single write leaves soon anyway.
    pub async fn closing(&self) {
        let mut closing = self.shared.closing.subscribe();
        // The other side lives as long as this one.
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// The generation that the lease was acquired in. To be stored beside the data and compared: it only grows.
    pub fn generation(&self) -> i64 {
        self.cell().generation()
    }

    /// The lease's id.
    pub fn identifier(&self) -> String {
        self.cell().terms.key.id.clone()
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        if self.shared.word.leave() {
            self.shared.drained.notify_one();
        }
    }
}
