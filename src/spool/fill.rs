//! What a producer writes into the directory of a batch: the files of its appends, then the manifest, each synced, then the
//! directory itself.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::batch::NewBatch;
use super::codec::Format;
use super::digest::{BUFFER, Digesting};
use super::directories::Directories;
use super::limits::LIMITS;
use super::manifest::{MANIFEST, MANIFEST_VERSION, Manifest, ManifestEntry, Origin};
use super::open::Spool;
use crate::crash;
use crate::error::{Error, Result};
use crate::records::{Entry, KindName, Operation, Row};

/// Makes the directory `name` in `tmp/` and writes the batch into it.
pub(super) fn fill(
    spool: &Spool,
    directories: &Directories,
    name: &str,
    batch: &NewBatch,
    (producer, created): (Origin, Timestamp),
    format: &dyn Format,
) -> Result<()> {
    let at = directories.tmp.path().join(name);
    let into = spool.trouble("making", &at, make_directory(directories, name))?;
    crash::point("batch-directory-made");
    let mut filling = Filling { spool, batch, into, at, format, unpacked: 0 };
    let numbered = batch.entries.iter().enumerate();
    let entries = numbered.map(|(index, entry)| filling.entry(index + 1, entry)).collect::<Result<_>>()?;
    let schemas = batch.schemas.clone();
    let version = MANIFEST_VERSION;
    filling.finish(&Manifest { version, id: batch.id.clone(), producer, created, schemas, entries })
}

/// The longest row that room is made for beforehand, in bytes.
const USUAL_ROW: usize = 4096;

struct Filling<'a> {
    spool: &'a Spool,
    batch: &'a NewBatch,
    into: OwnedFd,
    at: PathBuf,
    format: &'a dyn Format,
    /// The bytes of all rows so far.
    unpacked: usize,
}

impl Filling<'_> {
    fn invalid(&self, message: impl Into<String>) -> Error {
        Error::invalid_at(self.spool.store(), message)
    }

    fn entry(&mut self, number: usize, entry: &Entry) -> Result<ManifestEntry> {
        let bare = ManifestEntry::bare(entry.operation.name(), &entry.stream, entry.generation);
        Ok(match &entry.operation {
            Operation::Append { kind, rows, ttl, seal } => {
                let name = format!("{number}.{}", self.format.name());
                let sha256 = self.file(&name, entry, kind, rows)?;
                ManifestEntry {
                    kind: Some(kind.clone()),
                    file: Some(name),
                    format: Some(self.format.name().to_owned()),
                    rows: Some(rows.len() as u64),
                    sha256: Some(sha256),
                    seal: *seal,
                    ttl: ttl.map(|ttl| self.ttl(ttl)).transpose()?,
                    ..bare
                }
            }
            Operation::Seal | Operation::Reopen | Operation::Delete => bare,
            Operation::Trim { before } => ManifestEntry { before: Some(*before), ..bare },
            Operation::Expire { ttl } => ManifestEntry { ttl: Some(self.ttl(*ttl)?), ..bare },
        })
    }

    /// Writes the file of an append, and returns its digest.
    fn file(&mut self, name: &str, entry: &Entry, kind: &KindName, rows: &[Row]) -> Result<String> {
        let Some(schema) = self.batch.schemas.iter().find(|schema| schema.kind == *kind) else {
            return Err(self.invalid(format!("a batch appends rows of kind {kind}, and has no schema of it")));
        };
        let mut wrong = None;
        let mut unpacked = self.unpacked;
        let mut longest = 0;
        let mut texts = rows.iter().map_while(|row| {
            // Room for what the format adds, too.
            let mut json = Vec::with_capacity(longest + 1);
            schema.write(row, &mut json);
            longest = json.len().clamp(longest, USUAL_ROW);
            unpacked = unpacked.saturating_add(json.len() + 1);
            if unpacked as u64 > LIMITS.unpacked {
                wrong = Some(format!("its rows have more than {} bytes; make it several batches", LIMITS.unpacked));
            }
            wrong.is_none().then_some(json)
        });
        let written = create(&self.into, name).and_then(|file| {
            crash::point("batch-file-created");
            let mut file = BufWriter::with_capacity(BUFFER, Digesting::new(file, LIMITS.file));
            self.format.encode(&mut texts, &mut file)?;
            let (sha256, file) = file.into_inner().map_err(io::IntoInnerError::into_error)?.finish();
            crash::point("batch-file-written");
            file.sync_all()?;
            crash::point("batch-file-synced");
            Ok(sha256)
        });
        self.unpacked = unpacked;
        let stream = &entry.stream;
        match (wrong, written) {
            (Some(wrong), _) => Err(self.invalid(format!("an append to stream {stream}: {wrong}"))),
            (None, Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Err(self.invalid(format!("an append to stream {stream}: {error}; make it several batches")))
            }
            (None, written) => self.spool.trouble("writing", &self.at.join(name), written),
        }
    }

    fn ttl(&self, ttl: Duration) -> Result<SignedDuration> {
        SignedDuration::try_from(ttl).map_err(|_| self.invalid("a time to live is longer than can be written"))
    }

    fn finish(self, manifest: &Manifest) -> Result<()> {
        let json = serde_json::to_vec(manifest)
            .map_err(|error| Error::internal(format!("a manifest cannot be written as JSON: {error}")))?;
        if json.len() as u64 > LIMITS.manifest {
            let (is, most) = (json.len(), LIMITS.manifest);
            return Err(self.invalid(format!(
                "the manifest of a batch has {is} bytes, and may have {most}; give it fewer entries"
            )));
        }
        let written = create(&self.into, MANIFEST).and_then(|mut file| {
            crash::point("batch-manifest-created");
            file.write_all(&json)?;
            crash::point("batch-manifest-written");
            file.sync_all()
        });
        self.spool.trouble("writing", &self.at.join(MANIFEST), written)?;
        crash::point("batch-manifest-synced");
        let synced = rustix::fs::fsync(&self.into).map_err(io::Error::from);
        self.spool.trouble("syncing", &self.at, synced)?;
        crash::point("batch-directory-synced");
        Ok(())
    }
}

/// A directory in `tmp/`, private whatever the umask, and open.
fn make_directory(directories: &Directories, name: &str) -> io::Result<OwnedFd> {
    let tmp = directories.tmp.fd();
    rustix::fs::mkdirat(tmp, name, Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = match rustix::fs::openat(tmp, name, flags, Mode::empty()) {
        // The umask took our own right to read it.
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(tmp, name, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(tmp, name, flags, Mode::empty())?
        }
        made => made?,
    };
    rustix::fs::fchmod(&made, Mode::RWXU)?;
    Ok(made)
}

/// A new file in a batch, private whatever the umask.
fn create(into: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(into, name, flags, Mode::RUSR | Mode::WUSR)?);
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}
