//! The four directories of a spool, and the few things that are done in them, by name below an open directory: a path
//! may lead elsewhere from one call to the next.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::{Trouble, belongs_to_another};
use crate::backend::local::{files, filesystem};
use crate::error::{Error, Failure, Result};
use crate::store_url::StoreName;

/// How often another name is tried for what is moved to where its name is taken.
const SUFFIXES: u32 = 1000;
/// The longest name that a file system takes, in bytes.
pub(super) const LONGEST_NAME: usize = 255;

/// How a directory is opened. A link in its place is not followed.
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// One directory, open.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
}

/// The directories of a spool.
#[derive(Debug)]
pub(crate) struct Directories {
    pub(crate) tmp: Directory,
    pub(crate) incoming: Directory,
    pub(crate) failed: Directory,
    pub(crate) trash: Directory,
}

/// What they are opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Look,
    Write,
}

impl Directories {
    /// Opens them; makes those that are missing. They are synced whoever made them: it may have been killed before.
    ///
    /// # Errors
    ///
    /// `Denied` for another user's, for one that everybody may write, and for a file system whose locks cannot be
    /// trusted; `Invalid` if something else is in their place.
    pub(crate) fn open(store: &StorePath, allowed: &[String]) -> Result<Directories> {
        Directories::get(store, allowed, Use::Write)
    }

    /// Opens them as they are: makes nothing, and syncs nothing.
    ///
    /// # Errors
    ///
    /// As [`Directories::open`]; `Invalid` if one is not there.
    pub(crate) fn look(store: &StorePath, allowed: &[String]) -> Result<Directories> {
        Directories::get(store, allowed, Use::Look)
    }

    fn get(store: &StorePath, allowed: &[String], to: Use) -> Result<Directories> {
        let name = store.display();
        belongs_to_another(&store.leases()).map_err(|error| error.at(&name))?;
        let spool = store.spool();
        let at = |doing: &'static str, path: &Path, done: io::Result<()>| {
            done.trouble(doing, path).map_err(|error| error.at(&name))
        };
        let make = |path: &Path| match to {
            Use::Write => at("making", path, files::create_directory(path).map(drop)),
            Use::Look => Ok(()),
        };
        make(&spool)?;
        if to == Use::Write {
            at("syncing", store.directory(), files::sync_directory(store.directory()))?;
        }
        filesystem::judge(&spool, allowed, &name)?;
        let own = Directory::open(spool.clone(), &name)?;
        let inner = |part: &str| {
            let path = spool.join(part);
            make(&path)?;
            Directory::open(path, &name)
        };
        let directories = Directories {
            tmp: inner("tmp")?,
            incoming: inner("incoming")?,
            failed: inner("failed")?,
            trash: inner("trash")?,
        };
        if to == Use::Write {
            at("syncing", &spool, own.sync())?;
        }
        let device = |directory: &Directory| rustix::fs::fstat(&directory.fd).map(|stat| stat.st_dev);
        for part in directories.all() {
            if device(part).ok() != device(&own).ok() {
                let shown = part.path.display();
                let message = format!("{shown} is another file system, into which nothing can be renamed; unmount it");
                return Err(Error::invalid_at(&name, message));
            }
        }
        Ok(directories)
    }

    fn all(&self) -> [&Directory; 4] {
        [&self.tmp, &self.incoming, &self.failed, &self.trash]
    }

    /// Whether their paths still lead to them.
    pub(crate) fn stand(&self) -> io::Result<bool> {
        for directory in self.all() {
            let open = rustix::fs::fstat(&directory.fd)?;
            match rustix::fs::statat(rustix::fs::CWD, &directory.path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) if (found.st_dev, found.st_ino) == (open.st_dev, open.st_ino) => {}
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

impl Directory {
    fn open(path: PathBuf, store: &StoreName) -> Result<Directory> {
        let opened = rustix::fs::open(&path, OPEN, Mode::empty()).map_err(io::Error::from);
        let fd = opened.trouble("opening", &path).map_err(|error| error.at(store))?;
        let stat = rustix::fs::fstat(&fd).map_err(io::Error::from);
        let stat = stat.trouble("looking at", &path).map_err(|error| error.at(store))?;
        let shown = path.display();
        let denied = |message: String| {
            Err(Error::Denied(Box::new(Failure { store: Some(store.clone()), message, source: None })))
        };
        let uid = rustix::process::geteuid().as_raw();
        if stat.st_uid != uid {
            return denied(format!("{shown} belongs to uid {}, and this is uid {uid}; run as that user", stat.st_uid));
        }
        if stat.st_mode & 0o002 != 0 {
            return denied(format!("everybody may write {shown}; type `chmod 700 {shown}`"));
        }
        Ok(Directory { path, fd })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// The names in it, in no order. One that is renamed meanwhile may be missed.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        names(&self.fd)
    }

    /// What is there, not followed. `None`: nothing.
    pub(crate) fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves what is there to another directory, never onto anything; under another name if its own is taken. Returns
    /// the name that it has then.
    pub(crate) fn move_to(&self, name: &OsStr, to: &Directory) -> io::Result<OsString> {
        let mut new_name = name.to_owned();
        for suffix in 1..=SUFFIXES {
            match rename_new(self, name, to, &new_name) {
                Err(Errno::EXIST | Errno::NOTEMPTY) => {
                    let suffix = format!(".{suffix}");
                    let keep = name.len().min(LONGEST_NAME - suffix.len());
                    new_name = OsStr::from_bytes(&name.as_bytes()[..keep]).to_owned();
                    new_name.push(suffix);
                }
                Ok(()) => return Ok(new_name),
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other(format!("its name is taken in {}, and so are {SUFFIXES} others", to.path.display())))
    }

    /// Removes what is there, with all that is in it; follows no link. It may be gone already.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        let Some(stat) = self.stat(name)? else { return Ok(()) };
        let path = self.path.join(name);
        let directory = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
        let removed = if directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// The names in the directory that has this path, whosever it is, for looking alone.
pub(super) fn names_at(path: &Path) -> io::Result<Vec<OsString>> {
    names(rustix::fs::open(path, OPEN, Mode::empty())?)
}

/// The names in an open directory.
pub(crate) fn names(directory: impl AsFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    // A descriptor of its own: the place in the listing belongs to the open directory.
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Renames onto nothing that is there, where the file system can promise that; else if nothing was there just before.
fn rename_new(from: &Directory, name: &OsStr, to: &Directory, new_name: &OsStr) -> Result<(), Errno> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    match rustix::fs::renameat_with(&from.fd, name, &to.fd, new_name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        renamed => return renamed,
    }
    match rustix::fs::statat(&to.fd, new_name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => rustix::fs::renameat(&from.fd, name, &to.fd, new_name),
        Ok(_) => Err(Errno::EXIST),
        Err(error) => Err(error),
    }
}
