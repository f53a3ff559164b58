//! Loading a published batch: whatever lies there, with bounded memory and without waiting for anybody.
//!
//! Everything is opened below the directory of the batch, never following a link and never blocking; what is no regular
//! file with one link, and ours, is not read at all, nor what is larger than a batch may be. The digest is taken from the
//! bytes that are parsed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use super::codec::{Budget, Formats};
use super::digest::{BUFFER, Digesting};
use super::directories::Directory;
use super::limits::Limits;
use super::manifest::{FileOf, MANIFEST, Manifest, ManifestEntry, Task};
use super::name::BatchName;
use crate::backend::local::files;
use crate::describe::brief;
use crate::records::{Batch, Entry, Operation, Row, Schema};

/// Why a batch was not loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// It is not there any more.
    Gone,
    /// It never will be, by this build.
    Unreadable(String),
    /// The machine is short of something, or the disk fails: it may be later.
    Trouble(String, io::Error),
}

impl LoadError {
    fn of(what: &str, error: io::Error) -> LoadError {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => LoadError::Unreadable(format!("{what} is missing")),
            Some(Errno::LOOP | Errno::MLINK) => LoadError::Unreadable(format!("{what} is a link")),
            Some(Errno::NOTDIR) => LoadError::Unreadable(format!("{what} is no directory")),
            Some(Errno::ISDIR | Errno::NXIO | Errno::NODEV) => {
                LoadError::Unreadable(format!("{what} is no regular file"))
            }
            Some(Errno::ACCESS | Errno::PERM | Errno::NAMETOOLONG) => {
                LoadError::Unreadable(format!("{what} cannot be opened: {error}"))
            }
            Some(_) => LoadError::Trouble(what.to_owned(), error),
            // Not the system's word, but what a check or a format found.
            None if error.kind() == io::ErrorKind::OutOfMemory => LoadError::Trouble(what.to_owned(), error),
            None => LoadError::Unreadable(format!("{what}: {error}")),
        }
    }
}

type Loaded<T> = Result<T, LoadError>;

/// For so many rows room is made before they are seen.
const BELIEVED: usize = 1 << 16;

/// Loads the batch of this name.
pub(crate) fn load(from: &Directory, name: &BatchName, formats: &Formats, limits: &Limits) -> Loaded<Batch> {
    load_as(from, name.to_string().as_ref(), name, formats, limits)
}

/// Loads a batch that lies under another name than its own.
pub(crate) fn load_as(
    from: &Directory,
    lies_at: &OsStr,
    name: &BatchName,
    formats: &Formats,
    limits: &Limits,
) -> Loaded<Batch> {
    let directory = match open_directory_at(from.fd(), lies_at) {
        Err(Errno::NOENT) => return Err(LoadError::Gone),
        opened => opened.map_err(|error| LoadError::of("it", error.into()))?,
    };
    let uid = rustix::process::geteuid().as_raw();
    let stat = rustix::fs::fstat(&directory).map_err(|error| LoadError::of("it", error.into()))?;
    if stat.st_uid != uid {
        return Err(LoadError::Unreadable(format!("it belongs to uid {}, and this is uid {uid}", stat.st_uid)));
    }
    let manifest = open(&directory, MANIFEST, limits.manifest)
        .and_then(|file| files::read_up_to(&file, limits.manifest))
        .map_err(|error| LoadError::of(MANIFEST, error))?;
    let manifest = Manifest::read(&manifest, name, limits).map_err(LoadError::Unreadable)?;
    if let Some(Err(bad)) = manifest.schemas.iter().map(Schema::check).find(Result::is_err) {
        return Err(LoadError::Unreadable(bad.to_string()));
    }
    let mut loading = Loading {
        directory,
        schemas: &manifest.schemas,
        formats,
        limits,
        budget: Budget::new(limits.row, limits.unpacked),
    };
    let entries = manifest.entries.iter().map(|entry| loading.entry(entry)).collect::<Loaded<_>>()?;
    Ok(Batch {
        id: manifest.id,
        instance: manifest.producer.instance,
        seq: manifest.producer.seq,
        schemas: manifest.schemas,
        entries,
    })
}

struct Loading<'a> {
    directory: OwnedFd,
    schemas: &'a [Schema],
    formats: &'a Formats,
    limits: &'a Limits,
    budget: Budget,
}

impl Loading<'_> {
    fn entry(&mut self, entry: &ManifestEntry) -> Loaded<Entry> {
        let operation = match entry.task().map_err(LoadError::Unreadable)? {
            Task::Whole(operation) => operation,
            Task::Append(file, ttl) => {
                let rows = self.rows(&file)?;
                Operation::Append { kind: file.kind.clone(), rows, ttl, seal: entry.seal }
            }
        };
        Ok(Entry { stream: entry.stream.clone(), generation: entry.generation, operation })
    }

    fn rows(&mut self, said: &FileOf<'_>) -> Loaded<Vec<Row>> {
        let unreadable = |why: String| Err(LoadError::Unreadable(why));
        let Some(format) = self.formats.get(said.format) else {
            return unreadable(format!(
                "{} has the format {}, and this build reads {}; retry it with a build that knows it",
                said.file,
                brief(said.format),
                self.formats.names().join(", ")
            ));
        };
        let Some(schema) = self.schemas.iter().find(|schema| schema.kind == *said.kind) else {
            return unreadable(format!("{MANIFEST} has no schema of kind {}", said.kind));
        };
        let of = |error| LoadError::of(said.file, error);
        let file = open(&self.directory, said.file, self.limits.file).map_err(of)?;
        let mut file = BufReader::with_capacity(BUFFER, Digesting::new(file, self.limits.file));
        let mut rows = Vec::with_capacity(usize::try_from(said.rows).unwrap_or(usize::MAX).min(BELIEVED));
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut take = |json: &[u8]| {
            let number = rows.len() as u64 + 1;
            if number > said.rows {
                return Err(invalid(format!("it has more than the {} rows that {MANIFEST} says", said.rows)));
            }
            rows.push(schema.row(json).map_err(|why| invalid(why.at_row(number).to_string()))?);
            Ok(())
        };
        format.decode(&mut file, &mut self.budget, &mut take).map_err(of)?;
        // A format may stop before the end: what it did not read counts all the same.
        io::copy(&mut file, &mut io::sink()).map_err(of)?;
        let (sha256, _) = file.into_inner().finish();
        if rows.len() as u64 != said.rows {
            return unreadable(format!("{} has {} rows, and {MANIFEST} says {}", said.file, rows.len(), said.rows));
        }
        if sha256 != said.sha256 {
            let said_sum = brief(said.sha256);
            return unreadable(format!(
                "{} is damaged: its SHA-256 is {sha256}, and {MANIFEST} says {said_sum}",
                said.file
            ));
        }
        Ok(rows)
    }
}

/// Opens what is to be a directory.
pub(super) fn open_directory_at(from: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(from, name, flags, Mode::empty())
}

/// Opens what is to be a file of a batch, and checks that it is one before anything is read.
pub(super) fn open(directory: impl AsFd, name: impl AsRef<Path>, longest: u64) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(directory, name.as_ref(), flags, Mode::empty())?);
    files::trusted(&file, name.as_ref(), longest)?;
    Ok(file)
}
