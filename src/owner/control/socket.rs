//! The address of the control socket, and its file.
//!
//! The address of a Unix socket has room for some 100 bytes. A longer path is reached through a descriptor of its
//! directory, as `/proc/self/fd/N/sock`: the name in the temporary directory that others choose then could be taken
//! by another user, and is another one in each container.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::backend::local::files::{self, FileId};
use crate::backend::local::path::StorePath;
use crate::error::Result;

/// The longest path that is an address itself, in bytes.
const LONGEST_ADDRESS: usize = 100;

/// Where the owner of the store at `path` has its control socket: `P.sock`, or `P.leases/sock` when the first would be
/// over 100 bytes.
///
/// # Errors
///
/// `Invalid` or `Denied` for a path that cannot be a store's.
pub fn socket_path(path: impl AsRef<Path>) -> Result<PathBuf> {
    Ok(place(&StorePath::resolve(path.as_ref())?))
}

pub(super) fn place(store: &StorePath) -> PathBuf {
    let beside = store.socket();
    if beside.as_os_str().len() <= LONGEST_ADDRESS { beside } else { store.inner_socket() }
}

/// What a socket is bound and reached by.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) path: PathBuf,
    /// The directory that the path goes through.
    _directory: Option<OwnedFd>,
}

impl Address {
    pub(super) fn of(socket: &Path) -> io::Result<Address> {
        if socket.as_os_str().len() <= LONGEST_ADDRESS {
            return Ok(Address { path: socket.to_owned(), _directory: None });
        }
        let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty())?;
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        Ok(Address { path, _directory: Some(directory) })
    }
}

/// The file of a bound socket.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    id: FileId,
}

impl SocketFile {
    /// Unlinks the file, if it is still this socket's: a later owner's may be in its place.
    pub(crate) fn unlink(self) {
        if files::id_at(&self.path).ok().flatten() == Some(self.id)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(%error, path = %self.path.display(), "the control socket cannot be unlinked");
        }
    }
}

/// Binds the socket, in the place of a dead owner's. To be called by the holder of P.lock alone: nobody else can know
/// that the one that is there is dead.
///
/// # Errors
///
/// `AlreadyExists` if something is in its place that is no socket; those of binding.
pub(super) fn bind(socket: &Path) -> io::Result<(std::os::unix::net::UnixListener, SocketFile)> {
    match std::fs::symlink_metadata(socket) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(socket)?,
        Ok(_) => {
            let message = format!("something that is no socket is at {}", socket.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = std::os::unix::net::UnixListener::bind(&Address::of(socket)?.path)?;
    let id = files::id_at(socket)?.ok_or_else(|| io::Error::other("the socket was unlinked while it was bound"))?;
    let file = SocketFile { path: socket.to_owned(), id };
    // Whoever connects before has to be the same user all the same.
    let set = std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600));
    match set.and_then(|()| listener.set_nonblocking(true)) {
        Ok(()) => Ok((listener, file)),
        Err(error) => {
            file.unlink();
            Err(error)
        }
    }
}
