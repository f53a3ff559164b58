//! What an error of the operating system means for a lease: nobody ever goes on without the lock.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::filesystem;
use crate::backend::{Answer, BackendError, Fault};

/// Says what was being done to which file.
pub(crate) trait Trouble<T> {
    fn trouble(self, doing: &str, path: &Path) -> Answer<T>;
}

impl<T> Trouble<T> for io::Result<T> {
    fn trouble(self, doing: &str, path: &Path) -> Answer<T> {
        self.map_err(|error| explain(doing, path, &error))
    }
}

/// The refusal for an error of the operating system.
pub(crate) fn explain(doing: &str, path: &Path, error: &io::Error) -> BackendError {
    let shown = path.display();
    let at = |fault, next: &str| BackendError::new(fault, format!("{doing} {shown}: {error}{next}"));
    if error.kind() == io::ErrorKind::InvalidData {
        return BackendError::new(Fault::Invalid, format!("{error}; remove it if nothing uses it"));
    }
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => at(Fault::Denied, "; run as the user that the store belongs to"),
        Some(Errno::ROFS) => at(Fault::Denied, "; a lease needs a file system that can be written"),
        Some(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {
            let on = match mount_of(path) {
                Some((point, kind)) => format!("; {point}, a file system of type {kind}, has no locks"),
                None => "; this file system has no locks".to_owned(),
            };
            at(Fault::Invalid, &on)
        }
        Some(Errno::NOSPC | Errno::DQUOT) => at(Fault::Busy, "; make room on the disk"),
        Some(Errno::MFILE | Errno::NFILE) => at(Fault::Busy, "; raise the limit of open files"),
        Some(Errno::NOENT | Errno::NOTDIR) => {
            at(Fault::Invalid, "; the store's files are gone: if it is the right path, type `lockhouse init`")
        }
        Some(Errno::LOOP) => at(Fault::Invalid, "; a link is in the place of a file of the store: remove it"),
        _ => at(Fault::Internal, ""),
    }
}

fn mount_of(path: &Path) -> Option<(String, String)> {
    let mounts = filesystem::mounts().ok()?;
    let mount =
        mounts.iter().filter(|mount| path.starts_with(&mount.point)).max_by_key(|m| m.point.components().count());
    mount.map(|mount| (mount.point.display().to_string(), mount.kind().to_owned()))
}

/// Refuses a store of another user, to root too: files that root makes there lock its own user out.
pub(crate) fn belongs_to_another(leases: &Path) -> Answer<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = match std::fs::symlink_metadata(leases) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata.trouble("looking at", leases)?,
    };
    let uid = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() {
        return Err(BackendError::new(Fault::Invalid, format!("{} is no directory; remove it", leases.display())));
    }
    if metadata.uid() != uid {
        let owner = metadata.uid();
        return Err(BackendError::new(
            Fault::Denied,
            format!("it belongs to uid {owner}, and this is uid {uid}; run as that user"),
        ));
    }
    Ok(())
}
