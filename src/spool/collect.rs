//! What nobody needs any more: `trash/`, and in `tmp/` what dead producers left.
//!
//! Age is never a reason. A producer publishes its presence, locked, before anything of it is in `tmp/`: what has none
//! that is locked is nobody's.

use std::ffi::OsStr;
use std::io;

use super::directories::Directories;
use super::name::{is_batch_id, is_instance};
use super::publish::ALIVE;
use crate::backend::local::files;
use crate::backend::local::lock::{self, Looked};
use crate::clock::{Clock, Moment};

/// What a collection did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Collected {
    /// Removed from `trash/`.
    pub(crate) trash: usize,
    /// Removed from `tmp/`.
    pub(crate) abandoned: usize,
    /// There was no time for all of it.
    pub(crate) more: bool,
}

/// Removes what is nobody's, until a moment. What cannot be removed is traced and left for the next time.
pub(crate) fn collect(directories: &Directories, clock: &dyn Clock, until: Moment) -> io::Result<Collected> {
    let mut collected = Collected::default();
    for name in directories.trash.names()? {
        if clock.now() >= until {
            return Ok(Collected { more: true, ..collected });
        }
        match directories.trash.remove(&name) {
            Ok(()) => collected.trash += 1,
            Err(error) => tracing::debug!(%error, ?name, "it stays in the trash"),
        }
    }
    let mut names = directories.tmp.names()?;
    // The presence of an instance goes after what it kept: `-` comes before `.`.
    names.sort_unstable();
    for name in names {
        if clock.now() >= until {
            return Ok(Collected { more: true, ..collected });
        }
        match abandoned(directories, &name) {
            Ok(true) => collected.abandoned += 1,
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, ?name, "it stays in tmp/"),
        }
    }
    Ok(collected)
}

/// Removes what is in `tmp/` under a name, if it is a dead producer's.
fn abandoned(directories: &Directories, name: &OsStr) -> io::Result<bool> {
    let tmp = &directories.tmp;
    let Some(text) = name.to_str() else { return Ok(false) };
    if files::is_temporary(text) || text.strip_suffix(ALIVE).is_some_and(is_instance) {
        let path = tmp.path().join(name);
        return match lock::look(&path) {
            Looked::Dead(dead) => lock::remove_dead(&path, &dead),
            Looked::Living(_) | Looked::Absent | Looked::Strange(_) | Looked::Unclear(_) => Ok(false),
        };
    }
    let Some((instance, id)) = text.split_once('-') else { return Ok(false) };
    if !is_instance(instance) || !is_batch_id(id) {
        return Ok(false);
    }
    match lock::look(&tmp.path().join(format!("{instance}{ALIVE}"))) {
        Looked::Absent | Looked::Dead(_) => tmp.remove(name).map(|()| true),
        Looked::Living(_) | Looked::Strange(_) | Looked::Unclear(_) => Ok(false),
    }
}
