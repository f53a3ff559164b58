//! Being told when something leaves or comes: directory events of the kernel. They only ever shorten a sleep;
//! when they cannot be had, polling goes on.
//!
//! Removing, renaming and closing after writing are told of, opening and reading are not: a look would wake the
//! one who looks. A holder has its presence file open for writing, so the kernel tells of a killed one too.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

#[expect(unsafe_code, reason = "a descriptor is handed to the runtime's poller")]
pub(super) fn pollable(events: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays the same and open for as long as the value lives, which owns it.
    unsafe { AsyncFd::register(events) }.map_err(Into::into)
}

/// Starts watching directories. Runs as a task of the caller's local set, until the directories go or nobody
/// listens any more.
pub(crate) fn changes(directories: &[&Path]) -> std::io::Result<watch::Receiver<()>> {
    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let of_interest = WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    for directory in directories {
        inotify::add_watch(&events, *directory, of_interest)?;
    }
    let events = pollable(events)?;
    let (sender, receiver) = watch::channel(());
    tokio::task::spawn_local(async move {
        loop {
            let readable = tokio::select! {
                readable = events.readable() => readable,
                () = sender.closed() => return,
            };
            let Ok(mut ready) = readable else { return };
            let mut watched = true;
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&events, &mut buffer);
            loop {
                match reader.next() {
                    // A queue that ran over is a change like any other.
                    Ok(event) => watched &= !event.events().intersects(ReadFlags::IGNORED | ReadFlags::UNMOUNT),
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => {
                        tracing::warn!(%error, "directory events broke off; polling goes on");
                        watched = false;
                        break;
                    }
                }
            }
            ready.clear_ready();
            sender.send_replace(());
            if !watched {
                // A directory is gone. Whoever listens next starts anew.
                return;
            }
        }
    });
    Ok(receiver)
}
