//! The path of a store: made plain, checked, and what lies beside it.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

use crate::error::{Error, Failure, Result};
use crate::store_url::StoreName;

/// The longest last component, in bytes: the names beside it are longer, and a file system takes 255.
pub(crate) const LONGEST_NAME: usize = 200;

/// A store's path with every link resolved: two ways to the same store have the same one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StorePath {
    directory: PathBuf,
    name: OsString,
}

impl StorePath {
    /// Resolves a path whole, its last component too. The store itself need not exist, its directory must.
    ///
    /// # Errors
    ///
    /// `Invalid`: no such directory, a dangling link, a mount point, a file with more than one link, a name over
    /// [`LONGEST_NAME`] bytes, or neither a file nor a directory. `Denied`: the directory is writable by everybody,
    /// or cannot be looked at.
    pub(crate) fn resolve(path: &Path) -> Result<StorePath> {
        let shown = StoreName::path(path);
        let cannot = |what: &str, error: io::Error| refused(&shown, what, error);
        let absolute = std::path::absolute(path).map_err(|error| cannot("it is no path", error))?;
        let resolved = match std::fs::symlink_metadata(&absolute) {
            Ok(metadata) => match std::fs::canonicalize(&absolute) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && metadata.is_symlink() => {
                    return Err(Error::invalid_at(&shown, "it is a link that leads nowhere; mend or remove the link"));
                }
                resolved => resolved.map_err(|error| cannot("it cannot be resolved", error))?,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(directory), Some(name)) = (absolute.parent(), absolute.file_name()) else {
                    return Err(Error::invalid_at(&shown, "it names no file in a directory"));
                };
                let directory = std::fs::canonicalize(directory)
                    .map_err(|error| cannot(&format!("its directory {}", directory.display()), error))?;
                directory.join(name)
            }
            Err(error) => return Err(cannot("it cannot be looked at", error)),
        };
        let (Some(directory), Some(name)) = (resolved.parent(), resolved.file_name()) else {
            return Err(Error::invalid_at(&shown, "it is a root directory; name a path inside it"));
        };
        if name.len() > LONGEST_NAME {
            let message = format!(
                "its last component has {} bytes; at most {LONGEST_NAME}, for the files beside it have longer names",
                name.len()
            );
            return Err(Error::invalid_at(&shown, message));
        }
        let store = StorePath { directory: directory.to_owned(), name: name.to_owned() };
        store.check()?;
        Ok(store)
    }

    /// Checks what is at the path now.
    pub(crate) fn check(&self) -> Result<()> {
        let (path, shown) = (self.path(), self.display());
        let directory = std::fs::metadata(&self.directory)
            .map_err(|error| refused(&shown, &format!("its directory {}", self.directory.display()), error))?;
        let others_may_write = directory.mode() & 0o002 != 0;
        let sticky = directory.mode() & 0o1000 != 0;
        if others_may_write && !sticky {
            let message = format!(
                "everybody may write its directory {}, and so replace its files; type `chmod o-w {}`",
                self.directory.display(),
                self.directory.display()
            );
            return Err(denied(&shown, message));
        }
        let metadata = match std::fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(refused(&shown, "it cannot be looked at", error)),
        };
        if is_mount_point(&path) {
            return Err(Error::invalid_at(
                &shown,
                "it is a mount point, and reached elsewhere it would be another store; mount the directory and name a path inside it",
            ));
        }
        let kind = metadata.file_type();
        if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() || kind.is_symlink() {
            return Err(Error::invalid_at(&shown, "it is neither a file nor a directory"));
        }
        if metadata.is_file() && metadata.nlink() > 1 {
            let message = format!(
                "it has {} links, and by each it would be another store; copy it, or remove the other links",
                metadata.nlink()
            );
            return Err(Error::invalid_at(&shown, message));
        }
        Ok(())
    }

    /// The store's own path, P.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The name for people.
    pub(crate) fn display(&self) -> StoreName {
        StoreName::path(&self.path())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.name.clone();
        name.push(suffix);
        self.directory.join(name)
    }

    /// The election of the store's owner.
    pub(crate) fn lock(&self) -> PathBuf {
        self.beside(".lock")
    }

    /// The owner's advisory state.
    pub(crate) fn owner_state(&self) -> PathBuf {
        self.beside(".owner.json")
    }

    /// What becomes the owner's advisory state: only the owner uses it.
    pub(crate) fn owner_state_temporary(&self) -> PathBuf {
        self.beside(".owner.json.tmp")
    }

    /// The control socket, where its address is short enough.
    pub(crate) fn socket(&self) -> PathBuf {
        self.beside(".sock")
    }

    /// The directory of the leases.
    pub(crate) fn leases(&self) -> PathBuf {
        self.beside(".leases")
    }

    /// The control socket, where the other's address is too long.
    pub(crate) fn inner_socket(&self) -> PathBuf {
        self.leases().join("sock")
    }

    /// The directory of batches that are handed over.
    pub(crate) fn spool(&self) -> PathBuf {
        self.beside(".spool")
    }

    /// The election of the fsck.
    pub(crate) fn fsck_lock(&self) -> PathBuf {
        self.leases().join("fsck.lock")
    }

    /// The presence of the fsck.
    pub(crate) fn fsck(&self) -> PathBuf {
        self.leases().join("fsck.json")
    }

    /// The directory of the writers' presences.
    pub(crate) fn writers(&self) -> PathBuf {
        self.leases().join("writers")
    }

    /// The presence of the store's owner.
    pub(crate) fn owner(&self) -> PathBuf {
        self.leases().join("owner.json")
    }

    /// The store's id and generation.
    pub(crate) fn turn(&self) -> PathBuf {
        self.leases().join("turn.json")
    }

    pub(crate) fn layout(&self) -> PathBuf {
        self.leases().join("layout.json")
    }

    /// The audit trail.
    pub(crate) fn history(&self) -> PathBuf {
        self.leases().join("history.ndjson")
    }

    /// The part of the audit trail that became too long.
    pub(crate) fn older_history(&self) -> PathBuf {
        self.leases().join("history.1.ndjson")
    }
}

/// By the kernel's word, or else by the list of mounts.
fn is_mount_point(path: &Path) -> bool {
    match rustix::fs::statx(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Ok(found) if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        }
        _ => super::filesystem::mounts().is_ok_and(|mounts| mounts.iter().any(|mount| mount.point == path)),
    }
}

/// The error for a path that cannot be used.
fn refused(store: &StoreName, what: &str, error: io::Error) -> Error {
    let message = format!("{what}: {error}");
    match error.kind() {
        io::ErrorKind::PermissionDenied => denied(store, message),
        _ => Error::invalid_at(store, message),
    }
}

fn denied(store: &StoreName, message: String) -> Error {
    Error::Denied(Box::new(Failure { store: Some(store.clone()), message, source: None }))
}
