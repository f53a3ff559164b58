//! Those who want to be told when the owner goes: open connections, on which nothing is said any more.
//!
//! They belong to the ownership and not to the server: no runtime has to run, and no task to be polled, for them to be
//! told at the very moment.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use super::WATCHERS;
use crate::backend::local::files;

/// The connections of those who watch.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Vec<UnixStream>);

impl Watchers {
    /// Whether there is room for one more, once those are forgotten who have gone.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.0.len() >= WATCHERS {
            self.0.retain(is_there);
        }
        self.0.len() < WATCHERS
    }

    /// Keeps a connection; ends it if there is no room.
    pub(crate) fn keep(&mut self, watcher: UnixStream) {
        if self.has_room() {
            // The kernel is to close it early when this process is killed.
            self.0.push(files::raised(&watcher).map_or(watcher, UnixStream::from));
        }
    }

    /// Tells all of them. A copy that a forked child still has open keeps nobody from being told.
    pub(crate) fn end(&mut self) {
        for watcher in self.0.drain(..) {
            let _ = watcher.shutdown(Shutdown::Both);
        }
    }
}

/// One that has closed its side is gone, and one that says more than it may is forgotten too.
fn is_there(mut watcher: &UnixStream) -> bool {
    matches!(watcher.read(&mut [0]), Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
}
