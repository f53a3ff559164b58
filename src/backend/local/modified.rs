//! Being told when certain files are written: directory events of the kernel, on a thread of their own.
//!
//! Only the directory is opened, never one of the files: for a file that SQLite has open in this process, closing any
//! other descriptor would drop SQLite's locks. Like every watch it only shortens a wait; polling goes on behind it.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::sync::watch;

use super::watch::pollable;

/// Tells when a file of one of these names in a directory is written, made, replaced or removed. It ends with the
/// directory; the thread, when nobody listens any more.
pub(crate) fn modified(directory: &Path, names: Vec<OsString>) -> io::Result<watch::Receiver<()>> {
    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let of_interest = WatchFlags::MODIFY
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    inotify::add_watch(&events, directory, of_interest)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (sender, receiver) = watch::channel(());
    let run = move || runtime.block_on(tell(events, &names, &sender));
    std::thread::Builder::new().name("lockhouse-changes".to_owned()).spawn(run)?;
    Ok(receiver)
}

async fn tell(events: OwnedFd, names: &[OsString], sender: &watch::Sender<()>) {
    let Ok(events) = pollable(events) else { return };
    loop {
        let readable = tokio::select! {
            readable = events.readable() => readable,
            () = sender.closed() => return,
        };
        let Ok(mut ready) = readable else { return };
        let (mut ours, mut watched) = (false, true);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&events, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    watched &= !event.events().intersects(ReadFlags::IGNORED | ReadFlags::UNMOUNT);
                    // One without a name is of the directory, or of a queue that ran over.
                    ours |= event
                        .file_name()
                        .is_none_or(|found| names.iter().any(|name| name.as_bytes() == found.to_bytes()));
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::debug!(%error, "directory events broke off; polling goes on");
                    return;
                }
            }
        }
        ready.clear_ready();
        if ours {
            sender.send_replace(());
        }
        if !watched {
            return;
        }
    }
}
