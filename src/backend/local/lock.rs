//! The only place that locks files.
//!
//! # Two kinds of files
//!
//! An **election** file is locked by whoever wants to be the one: `LOCK_EX | LOCK_NB`, on a file that is never
//! deleted. Nobody looks at it by locking: a look that took it for an instant would make an election fail.
//!
//! A **presence** file says that its holder lives. It is created and locked under a temporary name and *then*
//! renamed in, and never rewritten: whoever finds it finds it locked and complete. Others only ever ask for
//! `LOCK_SH | LOCK_NB`, on a read-only descriptor, to look. Whoever gets that has found a dead holder's file, if
//! the path still leads to that very file.
//!
//! # Why flock(2)
//!
//! It belongs to the open file, not to the process: opening and closing the file elsewhere in the same program does
//! not drop it, as it does with the locks of fcntl(2); and a command that inherits the descriptor keeps it. The
//! kernel drops it with the last descriptor, however the holder died. Never blocking, never converted.
//!
//! # What it does not promise
//!
//! A user who removes or replaces the files breaks the exclusion. A holder notices with its next re-check
//! ([`HeldLock::recheck`]), not before.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::files::{self, FileId};
use crate::crash;

#[cfg(test)]
mod tests;

/// A lock that this process holds on a file at a path.
///
/// Dropping it unlocks and closes, but only in the process that locked: in a forked child it only closes, for
/// the child's unlock would be the parent's.
#[derive(Debug)]
pub(crate) struct HeldLock {
    file: File,
    path: PathBuf,
    id: FileId,
    pid: u32,
}

/// What a try for an election file came to.
#[derive(Debug)]
pub(crate) enum Elected {
    Held(HeldLock),
    /// Another process holds it.
    Taken,
}

/// What a look at a presence file found.
#[derive(Debug)]
pub(crate) enum Looked {
    Absent,
    /// Its holder is gone.
    Dead(Found),
    /// Its holder lives.
    Living(Found),
    /// It is no file that a holder could have made: no regular file, too many links, another's.
    Strange(String),
    /// It cannot be told: counts as a living holder, never as absence.
    Unclear(io::Error),
}

/// A presence file that was looked at.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) id: FileId,
    pub(crate) content: Vec<u8>,
    /// For a dead one it has the shared lock until it is dropped: nobody else can come to hold it.
    file: File,
}

/// How often a file that is exchanged under the eye is looked at again.
const LOOKS: usize = 64;
/// How often a publication is tried again whose temporary file was taken for a dead one's.
const TRIES: usize = 16;
/// The longest presence file that is read.
const LONGEST: u64 = 64 * 1024;

/// Tries once to become the holder of an election file, which is made if it is missing.
///
/// # Errors
///
/// Those of opening and locking; `InvalidData` with the reason if the path is no file that can be trusted.
pub(crate) fn elect(path: &Path) -> io::Result<Elected> {
    for _ in 0..TRIES {
        let file = files::open_or_create(path)?;
        let id = files::trusted(&file, path, LONGEST)?;
        if !try_lock(&file, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(Elected::Taken);
        }
        // The file may have been exchanged between opening and locking.
        if files::id_at(path)? == Some(id) {
            crash::point("elected");
            return Ok(Elected::Held(HeldLock::new(file, path.to_owned(), id)));
        }
    }
    Err(io::Error::other("it is exchanged over and over"))
}

/// Publishes a presence file, locked from before anybody can see it. Replaces one of the same name.
///
/// # Errors
///
/// Those of creating, writing, locking and renaming. Nothing is left behind then, but a temporary file if it
/// cannot be removed.
pub(crate) fn publish(path: &Path, content: &[u8]) -> io::Result<HeldLock> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    for _ in 0..TRIES {
        let temporary = directory.join(files::temporary_name());
        let mut file = files::create_new(&temporary)?;
        crash::point("presence-created");
        // Whoever cleans up may have taken the file for a dead one's before it was locked: he has a shared lock
        // on it, or has removed it already.
        if !try_lock(&file, FlockOperation::NonBlockingLockExclusive)? {
            let _ = std::fs::remove_file(&temporary);
            continue;
        }
        let id = FileId::of(&file)?;
        let renamed = file.write_all(content).and_then(|()| {
            crash::point("presence-locked");
            std::fs::rename(&temporary, path)
        });
        crash::point("presence-published");
        match renamed {
            Ok(()) => return Ok(HeldLock::new(file, path.to_owned(), id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory.is_dir() => {}
            Err(error) => {
                let _ = std::fs::remove_file(&temporary);
                return Err(error);
            }
        }
    }
    Err(io::Error::other("its temporary file is taken away over and over"))
}

/// Looks at a presence file without disturbing its holder.
pub(crate) fn look(path: &Path) -> Looked {
    look_for(path, Wanted::Content)
}

/// What a look is to bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Whether its holder lives, and what it says.
    Content,
    /// Only whether its holder lives.
    Life,
}

/// As [`look`]; what is not wanted is left empty.
pub(crate) fn look_for(path: &Path, wanted: Wanted) -> Looked {
    for _ in 0..LOOKS {
        let file = match files::open_to_look(path) {
            Ok(Some(file)) => file,
            Ok(None) => return Looked::Absent,
            // A symbolic link, or a socket.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::NXIO)) => {
                return Looked::Strange("it is no regular file".to_owned());
            }
            Err(error) => return Looked::Unclear(error),
        };
        let id = match files::trusted(&file, path, LONGEST) {
            Ok(id) => id,
            Err(error) if files::is_gone(&error) => continue,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Looked::Strange(error.to_string()),
            Err(error) => return Looked::Unclear(error),
        };
        let content = match wanted {
            Wanted::Life => Ok(Vec::new()),
            Wanted::Content => files::read_up_to(&file, LONGEST),
        };
        let content = match content {
            Ok(content) => content,
            Err(error) => return Looked::Unclear(error),
        };
        match try_lock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(false) => return Looked::Living(Found { id, content, file }),
            Ok(true) => match files::id_at(path) {
                Ok(Some(now)) if now == id => return Looked::Dead(Found { id, content, file }),
                // It is another's by now, or gone.
                Ok(_) => {}
                Err(error) => return Looked::Unclear(error),
            },
            Err(error) => return Looked::Unclear(error),
        }
    }
    Looked::Unclear(io::Error::other("it is exchanged over and over"))
}

/// Removes a dead holder's file. The shared lock keeps anybody from coming to hold that very file meanwhile.
///
/// The caller knows that nobody publishes under the same name: the name is one acquisition's, or the caller holds
/// the election that goes before it.
pub(crate) fn remove_dead(path: &Path, dead: &Found) -> io::Result<bool> {
    if files::id_at(path)? != Some(dead.id) {
        return Ok(false);
    }
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // Nothing, or the shared lock of a look: closing would do as well, but a fork in another thread may have
        // copied the descriptor.
        let _ = unlock(&self.file);
    }
}

impl HeldLock {
    fn new(file: File, path: PathBuf, id: FileId) -> HeldLock {
        HeldLock { file, path, id, pid: std::process::id() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the lock is still what it was: the path leads to the locked file, and the lock is ours. Asking for
    /// the lock again changes nothing for its holder; it fails when a forked child has unlocked it and somebody
    /// else has come.
    pub(crate) fn recheck(&self) -> io::Result<bool> {
        Ok(files::id_at(&self.path)? == Some(self.id)
            && try_lock(&self.file, FlockOperation::NonBlockingLockExclusive)?)
    }

    /// A descriptor of the same open file, for a command that is to keep the lock as long as it lives.
    /// Closed on execution, until whoever starts the command says otherwise.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// Lets the kernel free the lock of a killed process before anything that takes it time.
    pub(crate) fn hasten(&mut self) {
        // The lock belongs to the open file, which both lead to.
        if let Some(raised) = files::raised(&self.file) {
            self.file = raised.into();
        }
    }

    /// Removes the file if the path still leads to it, then unlocks. For presence files; an election file stays.
    pub(crate) fn withdraw(self) -> io::Result<()> {
        if self.is_own() && files::id_at(&self.path)? == Some(self.id) {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }

    /// Whether this is the process that locked, and not a fork of it.
    fn is_own(&self) -> bool {
        std::process::id() == self.pid
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if self.is_own() {
            // Before the descriptor is closed, which a forked child may still have.
            let _ = unlock(&self.file);
        }
    }
}

/// `false`: another open file has a lock in the way.
#[expect(clippy::disallowed_methods, reason = "the one home of file locks")]
fn try_lock(file: &File, how: FlockOperation) -> io::Result<bool> {
    loop {
        match rustix::fs::flock(file, how) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one home of file locks")]
fn unlock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, FlockOperation::NonBlockingUnlock)?)
}
