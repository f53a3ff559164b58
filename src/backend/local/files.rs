//! Opening, reading and replacing a store's own files.
//!
//! Whoever may write the directory can put anything in a file's place: a link to elsewhere, a fifo that never
//! opens, a file of another user. So every file is opened without following links and without blocking, and is
//! trusted only if it is a regular file with one link, ours, and no larger than it can be. Files have the mode
//! 0600 and directories 0700, whatever the umask.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::crash;

/// What makes a file that very file, as long as it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(file: &File) -> io::Result<FileId> {
        Ok(FileId::from(&file.metadata()?))
    }
}

impl From<&std::fs::Metadata> for FileId {
    fn from(metadata: &std::fs::Metadata) -> FileId {
        FileId { device: metadata.dev(), inode: metadata.ino() }
    }
}

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

fn safe() -> OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE).custom_flags(flags.bits().cast_signed());
    options
}

/// Opens a file for reading and writing; makes it if it is missing.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    match safe().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match create_new(path) {
            // Somebody was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => safe().read(true).write(true).open(path),
            created => created,
        },
        opened => opened,
    }
}

/// Makes a file that nobody else has.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let file = safe().read(true).write(true).create_new(true).open(path)?;
    if file.metadata()?.mode() & 0o777 != FILE_MODE {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    Ok(file)
}

/// Opens a file for appending; makes it if it is missing.
pub(crate) fn open_to_append(path: &Path) -> io::Result<File> {
    drop(open_or_create(path)?);
    safe().append(true).open(path)
}

/// Opens a file read-only. `None`: there is none.
pub(crate) fn open_to_look(path: &Path) -> io::Result<Option<File>> {
    match safe().read(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a directory if it is missing. `true` if it was.
pub(crate) fn create_directory(path: &Path) -> io::Result<bool> {
    match std::fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Ok(()) => {
            std::fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// The same open file under a high number, for what others wait for when this process is killed: the kernel then
/// closes descriptors one after the other, high numbers first, and closing one of inotify takes it 10 ms and more.
/// `None`: it has one, or there is none; whoever waits only waits longer.
pub(crate) fn raised(file: &impl AsFd) -> Option<OwnedFd> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let file = file.as_fd();
    let high = high_number(file.as_raw_fd(), limit)?;
    if file.as_raw_fd() >= high { None } else { rustix::io::fcntl_dupfd_cloexec(file, high).ok() }
}

/// From which number on a descriptor is a high one in a process whose newest has the number `newest`.
///
/// Every process has a table of 64; making it larger takes the kernel 15 ms in a process with threads. So one with few
/// open files stays within those 64.
fn high_number(newest: i32, limit: Option<u64>) -> Option<i32> {
    const FEW: i32 = 32;
    const ABOVE_FEW: u64 = 48;
    const ABOVE_MANY: u64 = 512;
    let high = if newest < FEW { ABOVE_FEW } else { ABOVE_MANY };
    i32::try_from(limit.map_or(high, |limit| high.min(limit / 2))).ok()
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Which file a path leads to, without following a last link. `None`: there is none.
pub(crate) fn id_at(path: &Path) -> io::Result<Option<FileId>> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(FileId::from(&metadata))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that an open file is one that a process of this user can have made.
///
/// # Errors
///
/// `InvalidData` with the reason if it is not; `NotFound` if it was removed since it was opened.
pub(crate) fn trusted(file: &File, path: &Path, longest: u64) -> io::Result<FileId> {
    let metadata = file.metadata()?;
    let distrust = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    let shown = path.display();
    if !metadata.is_file() {
        return distrust(format!("{shown} is no regular file"));
    }
    let uid = rustix::process::geteuid().as_raw();
    if metadata.uid() != uid {
        return distrust(format!("{shown} belongs to uid {}, and this is uid {uid}", metadata.uid()));
    }
    match metadata.nlink() {
        0 => return Err(io::Error::new(io::ErrorKind::NotFound, format!("{shown} was removed"))),
        1 => {}
        links => return distrust(format!("{shown} has {links} links, and must have one")),
    }
    if metadata.len() > longest {
        return distrust(format!("{shown} has {} bytes, and may have {longest}", metadata.len()));
    }
    Ok(FileId::from(&metadata))
}

/// Whether [`trusted`] failed because the file was removed since it was opened.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Reads a file that may grow meanwhile.
pub(crate) fn read_up_to(file: &File, longest: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(longest).read_to_end(&mut content)?;
    Ok(content)
}

/// Reads a trusted file whole. `None`: there is none.
pub(crate) fn read(path: &Path, longest: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open_to_look(path)? else { return Ok(None) };
    match trusted(&file, path, longest) {
        Ok(_) => read_up_to(&file, longest).map(Some),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a replaced file has to survive a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It is on the disk when the call returns.
    Synced,
    /// It says something about living processes, which a crash ends.
    Fleeting,
}

/// Replaces a file whole: nobody ever reads half of it. Only one process may do so at a time, the one that holds
/// the election which the file belongs to: what a killed one left is written over.
pub(crate) fn replace(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut new_name = name.to_owned();
    new_name.push(".new");
    replace_through(&directory.join(new_name), path, content, durability)
}

/// As [`replace`], through a temporary file of a name that only the caller uses.
pub(crate) fn replace_through(temporary: &Path, path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    match std::fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = create_new(temporary)?;
    let written = file.write_all(content).and_then(|()| match durability {
        Durability::Synced => file.sync_all(),
        Durability::Fleeting => Ok(()),
    });
    crash::point("replacement-written");
    if let Err(error) = written.and_then(|()| std::fs::rename(temporary, path)) {
        let _ = std::fs::remove_file(temporary);
        return Err(error);
    }
    match durability {
        Durability::Synced => sync_directory(directory),
        Durability::Fleeting => Ok(()),
    }
}

/// A name that no other file has. It begins with a dot and ends in `.tmp`.
pub(crate) fn temporary_name() -> String {
    format!(".{}.tmp", crate::entropy::unique())
}

/// Whether a file was on its way to another name.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_descriptor_stays_in_the_table_that_every_process_has() {
        assert_eq!(high_number(5, None), Some(48));
        assert_eq!(high_number(40, Some(1 << 20)), Some(512));
        assert_eq!(high_number(5, Some(64)), Some(32), "room is left below a small limit");
    }
}
