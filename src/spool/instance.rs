//! Who publishes: a random name for each open of a spool, and the counter that numbers its batches.
//!
//! The counter is never stored. A process that lost it, by dying or by a fork, is another instance with another name;
//! so no two batches ever have the same place.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::backend::local::lock::HeldLock;

/// What became of a place in the order of an instance that was offered.
#[derive(Debug)]
pub enum Taken<T, E> {
    /// A batch has it.
    Yes(T),
    /// No batch has it: the next one will.
    No(E),
    /// That cannot be told. The next batch is another instance's, at its place 1: it neither waits for this place nor
    /// takes it twice.
    Perhaps(E),
    /// A batch has it, and yet there is something to be told.
    YesBut(E),
}

/// A place in the order of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The instance.
    pub instance: String,
    /// From 1.
    pub seq: u64,
}

/// Numbers what one open of a store hands over. Any number of threads may use it; one of them has the turn.
pub(crate) struct Instance {
    line: ArcSwap<Line>,
}

/// One instance. What a forked child finds may be locked by a thread that it has not: so the child makes its own.
struct Line {
    name: String,
    pid: u32,
    turn: Mutex<Turn>,
    alive: Alive,
}

struct Turn {
    last: u64,
    ended: bool,
}

/// What says that an instance lives, once it has anything that must not be taken for a dead one's: a presence file,
/// which goes with it.
#[derive(Debug, Default)]
pub(crate) struct Alive(Mutex<Option<HeldLock>>);

impl Alive {
    /// Publishes the presence with `publish`, unless it stands.
    pub(crate) fn or_publish(&self, publish: impl FnOnce() -> io::Result<HeldLock>) -> io::Result<()> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stands = match &*held {
            Some(held) => held.recheck()?,
            None => false,
        };
        if !stands {
            *held = Some(publish()?);
        }
        Ok(())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let held = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = held.take().map(HeldLock::withdraw) {
            // It is a dead instance's then, and is collected.
            tracing::debug!(%error, "the presence of a producer cannot be removed");
        }
    }
}

impl Line {
    fn new() -> Line {
        Line {
            name: crate::entropy::unique().simple().to_string(),
            pid: std::process::id(),
            turn: Mutex::new(Turn { last: 0, ended: false }),
            alive: Alive::default(),
        }
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Instance").field(&self.line.load().name).finish()
    }
}

impl Instance {
    pub(crate) fn new() -> Instance {
        Instance { line: ArcSwap::from_pointee(Line::new()) }
    }

    /// Its name. Another one after a fork.
    pub(crate) fn name(&self) -> String {
        self.own().name.clone()
    }

    fn own(&self) -> Arc<Line> {
        let line = self.line.load_full();
        if line.pid == std::process::id() { line } else { self.renew(&line) }
    }

    /// Another line in the place of this one, unless somebody was faster.
    fn renew(&self, old: &Arc<Line>) -> Arc<Line> {
        self.line.compare_and_swap(old, Arc::new(Line::new()));
        self.line.load_full()
    }

    /// Offers the next place, to one at a time.
    pub(crate) fn take<T, E>(&self, with: impl FnOnce(&Place, &Alive) -> Taken<T, E>) -> Result<T, E> {
        let mut line = self.own();
        loop {
            let mut turn = line.turn.lock().unwrap_or_else(PoisonError::into_inner);
            if turn.ended {
                drop(turn);
                line = self.renew(&line);
                continue;
            }
            let place = Place { instance: line.name.clone(), seq: turn.last + 1 };
            // A panic in there may come after the place was taken.
            turn.ended = true;
            let taken = with(&place, &line.alive);
            turn.ended = matches!(taken, Taken::Perhaps(_));
            if matches!(taken, Taken::Yes(_) | Taken::YesBut(_)) {
                turn.last = place.seq;
            }
            return match taken {
                Taken::Yes(value) => Ok(value),
                Taken::No(error) | Taken::YesBut(error) | Taken::Perhaps(error) => Err(error),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(instance: &Instance) -> Place {
        instance.take(|place, _| Taken::<_, ()>::Yes(place.clone())).unwrap()
    }

    #[test]
    fn a_place_that_nobody_took_is_offered_again() {
        let instance = Instance::new();
        assert_eq!(place(&instance).seq, 1);
        assert!(instance.take(|place, _| Taken::<(), _>::No(place.seq)).is_err_and(|seq| seq == 2));
        assert_eq!(place(&instance).seq, 2);
        assert!(instance.take(|place, _| Taken::<(), _>::YesBut(place.seq)).is_err_and(|seq| seq == 3));
        assert_eq!(place(&instance).seq, 4);
    }

    #[test]
    fn what_may_have_taken_a_place_is_followed_by_another_instance() {
        let instance = Instance::new();
        let first = place(&instance);
        assert!(instance.take(|_, _| Taken::<(), _>::Perhaps(())).is_err());
        let next = place(&instance);
        assert_eq!(next.seq, 1);
        assert_ne!(next.instance, first.instance);
    }

    #[test]
    fn a_panic_with_the_turn_begins_another_instance() {
        let instance = Instance::new();
        let first = place(&instance);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = instance.take(|_, _| -> Taken<(), ()> { panic!("as a sink may") });
        }));
        assert!(panicked.is_err());
        let next = place(&instance);
        assert_eq!(next.seq, 1);
        assert_ne!(next.instance, first.instance);
    }
}
