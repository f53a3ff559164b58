//! The next batch is loaded while the store takes the one before: reading, digesting and parsing it has a processor of its
//! own then.
//!
//! What came out badly, for whatever reason, counts as not loaded: it is loaded when it is its turn, and judged then.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, Scope};

use crate::records::Batch;
use crate::spool::{self, BatchName, Directory, Formats, LIMITS_AHEAD};

/// Loads one batch ahead, on a thread that ends with it.
#[derive(Debug)]
pub(super) struct Ahead<'p> {
    /// `None`: there is no thread.
    ask: Option<Sender<&'p BatchName>>,
    loaded: Receiver<Option<Batch>>,
    asked: Option<&'p BatchName>,
}

impl<'p> Ahead<'p> {
    /// To begin with a single batch is not worth a thread.
    pub(super) fn of<'s>(
        scope: &'s Scope<'s, 'p>,
        incoming: &'p Directory,
        formats: &'p Formats,
        ready: &[BatchName],
    ) -> Ahead<'p> {
        let (ask, asked) = mpsc::channel::<&BatchName>();
        let (give, loaded) = mpsc::channel();
        let run = move || {
            for name in asked {
                let batch = spool::load(incoming, name, formats, &LIMITS_AHEAD).ok();
                if give.send(batch).is_err() {
                    return;
                }
            }
        };
        let builder = Builder::new().name("lockhouse-ahead".to_owned());
        let runs = ready.len() > 1 && builder.spawn_scoped(scope, run).is_ok();
        Ahead { ask: runs.then_some(ask), loaded, asked: None }
    }

    /// Begins with a batch.
    pub(super) fn begin(&mut self, name: &'p BatchName) {
        if let Some(ask) = &self.ask
            && ask.send(name).is_ok()
        {
            self.asked = Some(name);
        }
    }

    /// The batch, if it was begun with last and came out well.
    pub(super) fn take(&mut self, name: &BatchName) -> Option<Batch> {
        let asked = self.asked.take()?;
        // Waited for although it is another: the thread does one thing after the other.
        let loaded = self.loaded.recv().ok()?;
        loaded.filter(|_| asked == name)
    }
}
