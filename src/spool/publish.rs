//! Publishing: a batch is written where nobody looks, made durable, and then renamed to where it is found.
//!
//! The rename is the only commit point. Before it an error says that nothing was published. After it, and where it cannot
//! be told, the error is [`Error::Pending`] with the batch's id: what is published is applied, and sending it again
//! under another id would apply it twice.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::batch::NewBatch;
use super::codec::{Format, Formats};
use super::directories::Directories;
use super::fill::fill;
use super::instance::{Alive, Instance, Place, Taken};
use super::manifest::Origin;
use super::name::BatchName;
use super::open::Spool;
use crate::backend::local::lock;
use crate::crash;
use crate::error::{Error, Pending, Result};
use crate::holder::Holder;
use crate::records::Batch;

/// What the presence of an instance in `tmp/` is called after its instance. No batch's directory is called so: there a
/// dash follows the instance.
pub(super) const ALIVE: &str = ".alive";

/// One instance: what one process hands over, in order.
///
/// Any number of threads may use it; their batches get their places one after the other. A forked child that uses its
/// copy is another instance.
#[derive(Debug)]
pub struct Producer {
    spool: Spool,
    instance: Instance,
    host: String,
    build: String,
    formats: Formats,
}

impl Producer {
    /// A new instance. `build` is told to people who look at its batches.
    pub fn new(spool: &Spool, build: impl Into<String>) -> Producer {
        Producer::with_formats(spool, build, Formats::default())
    }

    /// As [`Producer::new`], with the formats that it can write.
    pub fn with_formats(spool: &Spool, build: impl Into<String>, formats: Formats) -> Producer {
        let host = Holder::here(None).host;
        Producer { spool: spool.clone(), instance: Instance::new(), host, build: build.into(), formats }
    }

    /// The random name of this instance.
    pub fn instance(&self) -> String {
        self.instance.name()
    }

    /// The spool that it publishes to.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Gives a batch the next place and hands it to `apply`, which says whether the place is taken by it now.
    ///
    /// For the owner, which needs no spool to hand itself a batch: its own writes have places, too, so that what it
    /// published before it became the owner stays in order with what it writes since.
    ///
    /// # Errors
    ///
    /// `Invalid` for a batch over the limits; otherwise that of `apply`.
    pub fn directly<T, E: From<Error>>(
        &self,
        batch: NewBatch,
        apply: impl FnOnce(Batch) -> Taken<T, E>,
    ) -> Result<T, E> {
        batch.check(self.spool.store())?;
        self.instance.take(|place, _| apply(batch.at(place)))
    }

    /// Publishes a batch, its rows in files of the named format: one that the owner reads. When it returns, the batch is
    /// on the disk under the name that it returns. Waits for the disk, and for another thread's batch.
    ///
    /// # Errors
    ///
    /// `Invalid` for a batch over the limits, and for an unknown format; `Unavailable` while the disk is full: nothing
    /// was published then. `Pending` if it is published, and not known to be durable, or if that cannot be told.
    pub fn publish(&self, batch: &NewBatch, format: &str) -> Result<BatchName> {
        batch.check(self.spool.store())?;
        let Some(format) = self.formats.get(format) else {
            let names = self.formats.names().join(", ");
            let message = format!("{} is no format that this build writes: {names}", crate::describe::brief(format));
            return Err(Error::invalid_at(self.spool.store(), message));
        };
        self.instance.take(|place, alive| match self.write(batch, place, alive, format) {
            Ok((directories, from, name)) => self.commit(&directories, &from, name),
            Err(error) => Taken::No(error),
        })
    }

    /// Writes the batch to `tmp/`, whole and synced. Leaves nothing there when it fails, if it can.
    fn write(
        &self,
        batch: &NewBatch,
        place: &Place,
        alive: &Alive,
        format: &dyn Format,
    ) -> Result<(Arc<Directories>, String, BatchName)> {
        let directories = self.spool.directories()?;
        let presence = directories.tmp.path().join(format!("{}{ALIVE}", place.instance));
        let claim = serde_json::to_vec(&Holder::here(None)).unwrap_or_default();
        let published = alive.or_publish(|| lock::publish(&presence, &claim));
        self.spool.trouble("publishing", &presence, published)?;
        let from = format!("{}-{}", place.instance, batch.id);
        let created = crate::clock::wall();
        let Some(name) = BatchName::new(created, &place.instance, place.seq, &batch.id) else {
            let message = format!("a batch of {created}, seq {}, has no name; set the clock", place.seq);
            return Err(Error::invalid_at(self.spool.store(), message));
        };
        let at = directories.tmp.path().join(&from);
        // What an earlier attempt could not remove.
        let cleared = directories.tmp.remove(from.as_ref());
        self.spool.trouble("removing", &at, cleared)?;
        let origin = Origin {
            instance: place.instance.clone(),
            seq: place.seq,
            pid: std::process::id(),
            host: self.host.clone(),
            build: self.build.clone(),
        };
        let written = fill(&self.spool, &directories, &from, batch, (origin, created), format);
        if written.is_err()
            && let Err(error) = directories.tmp.remove(from.as_ref())
        {
            tracing::debug!(%error, path = %at.display(), "what was not published stays until its producer ends");
        }
        written.map(|()| (directories, from, name))
    }

    /// The rename, and what makes it durable.
    fn commit(&self, directories: &Directories, from: &str, name: BatchName) -> Taken<BatchName, Error> {
        let pending = |why: String| {
            let (store, batch_id) = (self.spool.store().clone(), name.id().to_owned());
            Error::from(Pending { store, batch_id, why })
        };
        let to = name.to_string();
        if let Err(error) = rustix::fs::renameat(directories.tmp.fd(), from, directories.incoming.fd(), &to) {
            let shown = directories.incoming.path().join(&to);
            let arrived = directories.incoming.stat(OsStr::new(&to));
            let stayed = directories.tmp.stat(OsStr::new(from));
            match (arrived, stayed) {
                // It is there, whatever the call said.
                (Ok(Some(_)), Ok(None)) => {}
                (Ok(None), Ok(Some(_))) => {
                    let _ = directories.tmp.remove(from.as_ref());
                    return Taken::No(self.no(&shown, error));
                }
                // It was taken away in `tmp/`.
                _ if error == Errno::NOENT => return Taken::No(self.no(&shown, error)),
                _ => return Taken::Perhaps(pending(format!("renaming it to {}: {error}", shown.display()))),
            }
        }
        crash::point("batch-published");
        if let Err(error) = directories.incoming.sync() {
            let why = format!("it is published, and syncing {} failed: {error}", directories.incoming.path().display());
            return Taken::YesBut(pending(why));
        }
        crash::point("incoming-synced");
        Taken::Yes(name)
    }

    fn no(&self, path: &Path, error: Errno) -> Error {
        match self.spool.trouble::<()>("renaming a batch to", path, Err(error.into())) {
            Err(error) => error,
            Ok(()) => Error::internal("an error is none"),
        }
    }
}
