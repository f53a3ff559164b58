//! A thread that does one thing after the other: what blocks on a disk must not hold up whoever awaits it.

use std::fmt;
use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::error::{Error, Result};

type Work<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread with a state of its own. It ends with the last handle on it, after what it was given.
pub(super) struct Worker<S>(mpsc::Sender<Work<S>>);

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Worker")
    }
}

impl<S: 'static> Worker<S> {
    /// Starts a thread whose state is made on it.
    ///
    /// # Errors
    ///
    /// `Internal` if the system has no thread left.
    pub(super) fn start(name: &str, state: impl FnOnce() -> S + Send + 'static) -> Result<Worker<S>> {
        let (sender, work) = mpsc::channel::<Work<S>>();
        let run = move || {
            let mut state = state();
            while let Ok(work) = work.recv() {
                work(&mut state);
            }
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(|error| Error::internal(format!("a thread cannot be started: {error}; end other programs")))?;
        Ok(Worker(sender))
    }

    /// Does something on the thread. Once it has begun it is done to the end, whether or not somebody waits for it; what
    /// has not begun when nobody waits any more is left out.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let work = move |state: &mut S| {
            if !reply.is_closed() {
                // Nobody has to wait to the end.
                let _ = reply.send(work(state));
            }
        };
        let ended = || Error::internal("a thread of the store ended early; open the store anew");
        self.0.send(Box::new(work)).map_err(|_| ended())?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }
}
