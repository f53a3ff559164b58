//! The owner's own thread: refreshes the advisory state, and looks whether the files are still the owner's.
//!
//! A thread, so that nothing in the caller's program can starve it. Directory events make it look at once; it looks
//! every second all the same.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::lock::Shared;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};

/// How often the state is refreshed.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often the files are looked at, whatever the kernel tells.
const LOOK: Duration = Duration::from_secs(1);

/// The thread, until the owner ends or is lost.
pub(super) fn keep(shared: &Shared) {
    let events = Events::start(shared).inspect_err(|error| {
        tracing::debug!(%error, store = %shared.name, "no directory events for the owner; looking every second instead");
    });
    let events = events.ok();
    let mut beat = SystemClock.now() + HEARTBEAT;
    // Something may have happened before the events were there.
    let mut look = SystemClock.now();
    loop {
        let now = SystemClock.now();
        if look <= now {
            match shared.check() {
                Ok(()) => {}
                Err(Error::LeaseLost(_)) => return,
                Err(error) => {
                    debug_assert_ne!(error.kind(), ErrorKind::LeaseLost);
                    tracing::warn!(%error, "whether the store is still owned cannot be told");
                }
            }
            look = now + LOOK;
        }
        if beat <= now {
            shared.update(|_| {});
            beat = now + HEARTBEAT;
        }
        let told = wait(shared, events.as_ref(), look.min(beat).since(SystemClock.now()));
        if shared.has_ended() {
            return;
        }
        if told {
            look = SystemClock.now();
        }
    }
}

/// Waits for the end, for something that concerns the owner's files, or until the time is up. `true` for the second.
fn wait(shared: &Shared, events: Option<&Events>, limit: Duration) -> bool {
    let mut descriptors = vec![PollFd::new(shared.wake_descriptor(), PollFlags::IN)];
    descriptors.extend(events.map(|events| PollFd::new(&events.inotify, PollFlags::IN)));
    let limit =
        Timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), tv_nsec: limit.subsec_nanos().into() };
    match rustix::event::poll(&mut descriptors, Some(&limit)) {
        Ok(0) | Err(_) => false,
        Ok(_) => events.is_some_and(Events::concern_the_owner),
    }
}

/// The changes of the two directories that the owner's files are in.
struct Events {
    inotify: OwnedFd,
    names: [Vec<u8>; 3],
}

impl Events {
    fn start(shared: &Shared) -> rustix::io::Result<Events> {
        let store = &shared.store;
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let of_interest = WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&inotify, store.directory(), of_interest)?;
        inotify::add_watch(&inotify, store.leases(), of_interest)?;
        let name = |path: std::path::PathBuf| path.file_name().unwrap_or_default().as_bytes().to_owned();
        Ok(Events { inotify, names: [name(store.lock()), name(store.leases()), name(store.owner())] })
    }

    /// Reads what has happened.
    fn concern_the_owner(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut concerned = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let of_directory = ReadFlags::DELETE_SELF
                        | ReadFlags::MOVE_SELF
                        | ReadFlags::IGNORED
                        | ReadFlags::UNMOUNT
                        | ReadFlags::QUEUE_OVERFLOW;
                    concerned |= event.events().intersects(of_directory)
                        || event.file_name().is_some_and(|name| self.names.iter().any(|own| own == name.to_bytes()));
                }
                Err(Errno::INTR) => {}
                Err(_) => return concerned,
            }
        }
    }
}
