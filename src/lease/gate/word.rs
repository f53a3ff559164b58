//! Who is inside, and whether the gate is open, in one atomic word: entering and leaving are one exchange each.
//!
//! ```text
//! 63  62 │ 61 … 32        │ 31 … 0
//! state  │ entries so far │ guards inside
//! ```
//!
//! The entries only tell whether anybody came since the last look; they wrap around.

use std::sync::atomic::{AtomicU64, Ordering};

const INSIDE: u64 = (1 << 32) - 1;
const ENTRY: u64 = 1 << 32;
const ENTRIES: u64 = ((1 << 62) - 1) & !INSIDE;
const STATE: u64 = 0b11 << 62;

const CLOSED: u64 = 0;
const OPEN: u64 = 1 << 62;
const CLOSING: u64 = 2 << 62;

/// What a word is kept in: the real one, or one whose every interleaving a test tries.
pub(crate) trait Cell {
    fn load(&self) -> u64;
    fn exchange(&self, old: u64, new: u64) -> Result<u64, u64>;
    fn subtract(&self, by: u64) -> u64;
}

impl Cell for AtomicU64 {
    fn load(&self) -> u64 {
        AtomicU64::load(self, Ordering::Acquire)
    }

    fn exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire)
    }

    fn subtract(&self, by: u64) -> u64 {
        self.fetch_sub(by, Ordering::AcqRel)
    }
}

/// The word of one gate.
#[derive(Debug)]
pub(crate) struct Word<C = AtomicU64>(C);

/// A word as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    pub(crate) fn inside(self) -> u64 {
        self.0 & INSIDE
    }

    /// Who got in so far, in as many bits as there are.
    pub(crate) fn entries(self) -> u64 {
        (self.0 & ENTRIES) / ENTRY
    }

    /// Who got in since there were so many.
    pub(crate) fn entries_since(self, before: u64) -> u64 {
        self.entries().wrapping_sub(before) & (ENTRIES / ENTRY)
    }

    pub(crate) fn is_open(self) -> bool {
        self.0 & STATE == OPEN
    }

    pub(crate) fn is_closing(self) -> bool {
        self.0 & STATE == CLOSING
    }
}

impl Word {
    pub(crate) fn closed() -> Word {
        Word(AtomicU64::new(CLOSED))
    }
}

impl<C: Cell> Word<C> {
    pub(crate) fn seen(&self) -> Seen {
        Seen(self.0.load())
    }

    /// Gets in, if the gate is open.
    pub(crate) fn enter(&self) -> bool {
        let mut word = self.0.load();
        loop {
            if word & STATE != OPEN {
                return false;
            }
            let entries = word.wrapping_add(ENTRY) & ENTRIES;
            let new = OPEN | entries | ((word & INSIDE) + 1);
            match self.0.exchange(word, new) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Gets out. `true` for the last one out of a closing gate, who has to say so.
    #[must_use = "somebody may be waiting for the last one"]
    pub(crate) fn leave(&self) -> bool {
        let before = self.0.subtract(1);
        before & STATE == CLOSING && before & INSIDE == 1
    }

    /// Lets in. The gate was closed.
    pub(crate) fn open(&self) {
        self.change(|word| (word & STATE == CLOSED).then_some(OPEN | (word & !STATE)));
    }

    /// Lets nobody in any more.
    pub(crate) fn close(&self) {
        self.change(|word| (word & STATE == OPEN).then_some(CLOSING | (word & !STATE)));
    }

    /// As [`Word::close`], if nobody is inside and nobody came since the word was seen.
    pub(crate) fn close_unused(&self, since: Seen) -> bool {
        since.is_open()
            && since.inside() == 0
            && self.change(|word| (word == since.0).then_some(CLOSING | (word & !STATE)))
    }

    /// The end of closing, once nobody is inside.
    pub(crate) fn closed_for_all(&self) -> bool {
        self.change(|word| (word & STATE == CLOSING && word & INSIDE == 0).then_some(CLOSED | (word & !STATE)))
    }

    fn change(&self, to: impl Fn(u64) -> Option<u64>) -> bool {
        let mut word = self.0.load();
        loop {
            let Some(new) = to(word) else { return false };
            match self.0.exchange(word, new) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_into_a_gate_that_is_not_open() {
        let word = Word::closed();
        assert!(!word.enter());
        word.open();
        assert!(word.enter() && word.enter());
        word.close();
        assert!(!word.enter());
        assert!(word.seen().is_closing() && word.seen().inside() == 2);
        assert!(!word.closed_for_all());
        assert!(!word.leave() && word.leave(), "the last one says so");
        assert!(word.closed_for_all() && !word.enter());
    }

    #[test]
    fn a_gate_that_was_used_since_is_not_idle() {
        let word = Word::closed();
        word.open();
        let seen = word.seen();
        assert!(word.enter() && !word.leave());
        assert!(!word.close_unused(seen));
        assert!(word.close_unused(word.seen()));
    }

    #[test]
    fn the_entries_wrap_around() {
        let word = Word(AtomicU64::new(OPEN | ENTRIES | 3));
        assert!(word.enter());
        assert_eq!(word.seen(), Seen(OPEN | 4));
        assert_eq!(word.seen().entries_since(Seen(ENTRIES).entries()), 1);
    }

    impl Cell for loom::sync::atomic::AtomicU64 {
        fn load(&self) -> u64 {
            loom::sync::atomic::AtomicU64::load(self, Ordering::Acquire)
        }

        fn exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
            self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        }

        fn subtract(&self, by: u64) -> u64 {
            self.fetch_sub(by, Ordering::AcqRel)
        }
    }

    /// Every interleaving of two that enter, a keeper that closes, waits for the last one and gives the lease
    /// back: nobody is ever inside without a lease, and the keeper always hears of the last one.
    #[test]
    fn nobody_is_inside_without_a_lease_in_any_interleaving() {
        use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
        use loom::sync::{Arc, Notify};
        use loom::thread;

        // All but those in which a thread is interrupted more than three times.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let word = Arc::new(Word(AtomicU64::new(CLOSED)));
            let lease = Arc::new(AtomicBool::new(true));
            let drained = Arc::new(Notify::new());
            word.open();
            let entries: Vec<_> = (0..2)
                .map(|_| {
                    let (word, lease, drained) = (word.clone(), lease.clone(), drained.clone());
                    thread::spawn(move || {
                        if word.enter() {
                            assert!(lease.load(SeqCst), "inside without a lease");
                            if word.leave() {
                                drained.notify();
                            }
                        }
                    })
                })
                .collect();
            word.close();
            // A keeper that is never told of the last one waits for ever, which the model reports.
            while !word.closed_for_all() {
                drained.wait();
            }
            lease.store(false, SeqCst);
            for entry in entries {
                entry.join().unwrap();
            }
            assert!(!word.enter());
        });
    }
}
