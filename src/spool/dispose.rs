//! Where a batch goes when the store is done with it: to `trash/`, or to `failed/` with the reason.
//!
//! The ledger has the truth already when something is moved here. So nothing needs to be synced: a move that a crash of
//! the machine undoes is done again.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::directories::{Directories, LONGEST_NAME};
use super::load::open_directory_at;
use super::manifest::REASON;
use crate::crash;

/// What a reason is called until it is whole.
pub(super) const UNFINISHED_REASON: &str = ".error.json.new";
/// The version of a reason.
const VERSION: u32 = 1;

/// Why something lies in `failed/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reason {
    /// The version of this form.
    pub version: u32,
    /// When it was given up, by the owner's wall clock.
    pub at: Timestamp,
    /// What is wrong with it.
    pub error: String,
}

impl Reason {
    pub(crate) fn new(at: Timestamp, error: impl Into<String>) -> Reason {
        Reason { version: VERSION, at, error: error.into() }
    }
}

/// Moves what was applied to `trash/`.
pub(crate) fn trash(directories: &Directories, name: &OsStr) -> io::Result<()> {
    directories.incoming.move_to(name, &directories.trash)?;
    crash::point("batch-trashed");
    Ok(())
}

/// Moves what cannot be applied to `failed/`, and returns the name that it has there.
pub(crate) fn fail(directories: &Directories, name: &OsStr) -> io::Result<OsString> {
    let moved = directories.incoming.move_to(name, &directories.failed)?;
    crash::point("batch-failed");
    Ok(moved)
}

/// Writes why something lies in `failed/`: into it, or beside it where it is no directory.
pub(crate) fn explain(directories: &Directories, name: &OsStr, reason: &Reason) -> io::Result<()> {
    let failed = &directories.failed;
    let json = serde_json::to_vec(reason)?;
    match failed.stat(name)? {
        // Somebody dropped it, or retried it.
        None => Ok(()),
        Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            put(open_directory_at(failed.fd(), name)?, OsStr::new(REASON), &json)
        }
        Some(_) => put(failed.fd(), &beside(name), &json),
    }
}

/// The name of the reason beside what is no directory.
pub(crate) fn beside(name: &OsStr) -> OsString {
    let suffix = format!(".{REASON}");
    let keep = name.len().min(LONGEST_NAME - suffix.len());
    let mut beside = OsStr::from_bytes(&name.as_bytes()[..keep]).to_owned();
    beside.push(suffix);
    beside
}

/// Puts a small file in the place of whatever has its name.
fn put(directory: impl AsFd, name: &OsStr, content: &[u8]) -> io::Result<()> {
    match rustix::fs::unlinkat(&directory, UNFINISHED_REASON, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, UNFINISHED_REASON, flags, Mode::RUSR | Mode::WUSR)?;
    let written = File::from(file).write_all(content);
    let put = written.and_then(|()| Ok(rustix::fs::renameat(&directory, UNFINISHED_REASON, &directory, name)?));
    if put.is_err() {
        // On a full disk not even this may stay.
        let _ = rustix::fs::unlinkat(&directory, UNFINISHED_REASON, AtFlags::empty());
    }
    crash::point("failure-explained");
    put
}
