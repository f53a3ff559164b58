//! A whole store in the process, with its own server clock.
//!
//! Programs test with it without a server; the engine is simulated on it. It keeps the same documents and
//! answers the same statements as the MongoDB backend, one at a time.
//!
//! What it keeps is in `documents`, how it answers in `statements`, and what may lie in between in `link`.

mod documents;
mod link;
mod statements;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::{Clock, Moment, SystemClock};

#[cfg(test)]
pub(crate) use documents::Doc;
pub(crate) use documents::State;
#[cfg(test)]
pub(crate) use link::{Link, Reply, Statement};
pub(crate) use statements::Memory;

/// A store in this process. Clones are the same store.
///
/// ```
/// # futures::executor::block_on(async {
/// use lockhouse::{Coordinator, MemoryStore};
///
/// let store = MemoryStore::new();
/// let coordinator = Coordinator::on_memory(&store).connect().await?;
/// coordinator.init().await?;
/// let lease = coordinator.acquire_writer().await?;
/// lease.check()?;
/// lease.release().await?;
/// # Ok::<(), lockhouse::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// An empty store without a layout, whose server clock runs with the machine's.
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(SystemClock)
    }

    /// An empty store whose server clock runs with `clock`.
    pub fn with_clock(clock: impl Clock) -> MemoryStore {
        MemoryStore { state: Arc::new(Mutex::new(State::default())), clock: Arc::new(clock) }
    }

    /// Sets the server's clock forward, or back with a negative number of milliseconds.
    pub fn shift_server_clock(&self, millis: i64) {
        self.lock().shift_ms += millis;
    }

    /// Cuts the store off, or brings it back: while it is cut off no statement reaches it.
    pub fn set_reachable(&self, reachable: bool) {
        self.lock().cut_off = !reachable;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn now_in(&self, state: &State) -> i64 {
        self.server_now(state)
    }

    fn server_now(&self, state: &State) -> i64 {
        let since_start = self.clock.now().since(Moment::ORIGIN);
        SERVER_EPOCH_MS + i64::try_from(since_start.as_millis()).unwrap_or(i64::MAX / 2) + state.shift_ms
    }
}

/// The store's clock in milliseconds, for a peer that writes documents of its own.
#[cfg(test)]
pub(crate) fn server_now(store: &MemoryStore) -> i64 {
    store.server_now(&store.lock())
}

/// Where the server's clock starts: some day, so that times look like times.
const SERVER_EPOCH_MS: i64 = 1_767_225_600_000;
