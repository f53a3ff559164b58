//! `failed/`: what could not be applied, and why. Nothing there is ever removed but by somebody who says so.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

use rustix::fs::FileType;
use sha2::{Digest, Sha256};

use super::batch::NewBatch;
use super::codec::Formats;
use super::digest::hex;
use super::directories::Directories;
use super::dispose::{Reason, UNFINISHED_REASON, beside};
use super::limits::LIMITS;
use super::load::{LoadError, load_as, open, open_directory_at};
use super::manifest::REASON;
use super::name::BatchName;
use super::open::Spool;
use super::publish::Producer;
use crate::backend::local::files;
use crate::error::{Error, Result};
use crate::records::Batch;

/// The longest reason that is read.
const LONGEST_REASON: u64 = 64 * 1024;

/// Something that lies in `failed/`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedFile {
    /// Its name there.
    pub file: OsString,
    /// The batch that it was, where the name is one of a batch.
    pub name: Option<BatchName>,
    /// Why it lies there. `None`: nobody could write it down, or it cannot be read; the ledger may know.
    pub reason: Option<Reason>,
}

/// How many of these names are no reasons of others.
pub(super) fn count(names: &[OsString]) -> u64 {
    let reasons: HashSet<OsString> = names.iter().map(|name| beside(name)).collect();
    names.iter().filter(|name| *name != UNFINISHED_REASON && !reasons.contains(*name)).count() as u64
}

/// What lies in the `failed/` of a spool.
#[derive(Debug, Clone)]
pub struct FailedFiles {
    spool: Spool,
}

impl FailedFiles {
    /// Those of a spool.
    pub fn of(spool: &Spool) -> FailedFiles {
        FailedFiles { spool: spool.clone() }
    }

    /// All of it, by name. Reads nothing but the reasons.
    ///
    /// # Errors
    ///
    /// Those of reading a directory.
    pub fn list(&self) -> Result<Vec<FailedFile>> {
        let directories = self.spool.directories()?;
        let names = self.spool.trouble("listing", directories.failed.path(), directories.failed.names())?;
        let mut names: Vec<OsString> = names.into_iter().filter(|name| name != UNFINISHED_REASON).collect();
        names.sort_unstable();
        let reasons: HashSet<OsString> = names.iter().map(|name| beside(name)).collect();
        let all = names.iter().filter(|name| !reasons.contains(*name));
        Ok(all.map(|file| look(&directories, file)).collect())
    }

    /// How many there are. Reads no reasons.
    ///
    /// # Errors
    ///
    /// As [`FailedFiles::list`].
    pub fn count(&self) -> Result<u64> {
        let directories = self.spool.directories()?;
        let names = self.spool.trouble("listing", directories.failed.path(), directories.failed.names())?;
        Ok(count(&names))
    }

    /// One of them, by its name or by the id of its batch. `None`: there is none.
    ///
    /// # Errors
    ///
    /// As [`FailedFiles::list`].
    pub fn find(&self, which: &OsStr) -> Result<Option<FailedFile>> {
        let id = |failed: &FailedFile| failed.name.as_ref().is_some_and(|name| OsStr::new(name.id()) == which);
        Ok(self.list()?.into_iter().find(|failed| failed.file == which || id(failed)))
    }

    /// What the batch would have done, if this build can read it.
    ///
    /// # Errors
    ///
    /// `Invalid` with the reason if it cannot; `Unavailable` or `Internal` if the system does not let it.
    pub fn show(&self, failed: &FailedFile, formats: &Formats) -> Result<Batch> {
        let directories = self.spool.directories()?;
        let shown = failed.file.to_string_lossy();
        let invalid =
            |why: String| Error::invalid_at(self.spool.store(), format!("{}: {why}", crate::describe::brief(&shown)));
        let Some(name) = &failed.name else { return Err(invalid("its name is none of a batch".to_owned())) };
        let mut loaded = load_as(&directories.failed, &failed.file, name, formats, &LIMITS);
        if matches!(loaded, Err(LoadError::Unreadable(_)))
            && let Some(original) = without_suffix(&failed.file)
            && let Ok(batch) = load_as(&directories.failed, &failed.file, &original, formats, &LIMITS)
        {
            loaded = Ok(batch);
        }
        match loaded {
            Ok(batch) => Ok(batch),
            Err(LoadError::Gone) => Err(invalid("it is not there any more".to_owned())),
            Err(LoadError::Unreadable(why)) => Err(invalid(why)),
            Err(LoadError::Trouble(what, error)) => {
                self.spool.trouble("reading", &directories.failed.path().join(&failed.file).join(what), Err(error))
            }
        }
    }

    /// Removes one for good. It may be gone already.
    ///
    /// # Errors
    ///
    /// Those of removing.
    pub fn drop(&self, failed: &FailedFile) -> Result<()> {
        let directories = self.spool.directories()?;
        let path = directories.failed.path().join(&failed.file);
        self.spool.trouble("removing", &path, directories.failed.remove(&failed.file))?;
        let reason = beside(&failed.file);
        self.spool.trouble("removing", &directories.failed.path().join(&reason), directories.failed.remove(&reason))
    }

    /// Publishes one again, as a batch of `producer`'s with a new id, and removes it. Its new name.
    ///
    /// The new id comes from the old name: if this is killed after publishing and called again, the ledger knows the
    /// second for the first.
    ///
    /// # Errors
    ///
    /// As [`FailedFiles::show`] and [`Producer::publish`]; it is still there then. After `Pending` it may be published.
    pub fn retry(
        &self,
        failed: &FailedFile,
        producer: &Producer,
        formats: &Formats,
        format: &str,
    ) -> Result<BatchName> {
        let Batch { schemas, entries, .. } = self.show(failed, formats)?;
        let digest = hex(&Sha256::digest(failed.file.as_encoded_bytes()));
        let id = format!("retry-{}", &digest[..32]);
        let name = producer.publish(&NewBatch { id, schemas, entries }, format)?;
        crate::crash::point("failed-republished");
        self.drop(failed)?;
        Ok(name)
    }
}

fn look(directories: &Directories, file: &OsStr) -> FailedFile {
    FailedFile { file: file.to_owned(), name: BatchName::parse(file), reason: reason(directories, file) }
}

fn reason(directories: &Directories, file: &OsStr) -> Option<Reason> {
    let failed = &directories.failed;
    let stat = failed.stat(file).ok()??;
    let opened = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        open(open_directory_at(failed.fd(), file).ok()?, OsStr::new(REASON), LONGEST_REASON)
    } else {
        open(failed.fd(), beside(file), LONGEST_REASON)
    };
    serde_json::from_slice(&files::read_up_to(&opened.ok()?, LONGEST_REASON).ok()?).ok()
}

/// The name that something had before another's stood in its way.
fn without_suffix(file: &OsStr) -> Option<BatchName> {
    let (name, suffix) = file.to_str()?.rsplit_once('.')?;
    suffix.parse::<u32>().ok()?;
    BatchName::parse(name.as_ref())
}
