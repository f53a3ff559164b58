//! Looks: statements that read, batch by batch, without turning documents into maps.
//!
//! The server's clock comes with every document of the same statement, so an age is the difference of two
//! of its times. It is computed here and saturates: in the server one absurd heartbeat would make the
//! statement, and with it every look at the store, fail.

use bson::{DateTime, Document, RawDocument, RawDocumentBuf};
use futures::StreamExt;
use mongodb::error::{Error, Result};
use mongodb::raw_batch_cursor::RawBatch;
use mongodb::{ClientSession, Collection};

use crate::backend::Record;

use super::documents::{self, LAYOUT_ID};
use super::pulse::Pulse;

/// One round trip as long as the answer stays below the server's limit of 16 MB for a reply.
const BATCH: u32 = 1_000_000;

/// What a look saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The server's clock; `None` if there was no document.
    pub(super) now: Option<DateTime>,
    pub(super) generation: Option<i64>,
    pub(super) leases: Vec<Record<Pulse>>,
    /// Another lease's fence document was among them.
    pub(super) fences: bool,
}

impl Seen {
    /// What a statement saw that answers with one document.
    pub(super) fn of(row: &RawDocument) -> Seen {
        let mut seen = Seen::default();
        seen.take(row);
        seen
    }

    fn take(&mut self, row: &RawDocument) {
        self.now = row.get_datetime("now").ok().or(self.now);
        let document = row.get_document("d").unwrap_or(row);
        match document.get_str("_id") {
            Ok(LAYOUT_ID) => self.generation = documents::generation(document),
            Ok(id) if id.starts_with("fence/") => self.fences = true,
            // Also an `_id` that cannot be read: it stands among the leases.
            Ok(_) | Err(_) => self.leases.push(documents::record(document, self.now)),
        }
    }

    /// Whether a document was not read as it is: a lean look saw only a part of it.
    pub(super) fn needs_detail(&self) -> bool {
        self.leases.iter().any(|lease| matches!(lease.pulse, Pulse::Whole(_)))
    }

    /// Takes the lease with this `_id` out.
    pub(super) fn remove(&mut self, id: &str) -> Option<Record<Pulse>> {
        let at = self.leases.iter().position(|lease| lease.id == id)?;
        Some(self.leases.swap_remove(at))
    }
}

/// Runs a look.
pub(super) async fn look(
    collection: &Collection<RawDocumentBuf>,
    session: Option<&mut ClientSession>,
    pipeline: Vec<Document>,
) -> Result<Seen> {
    let mut seen = Seen::default();
    let take = |batch: RawBatch| {
        for row in batch.doc_slices()?.iter_elements() {
            if let Some(row) = row.and_then(|row| row.value())?.as_document() {
                seen.take(row);
            }
        }
        Ok::<(), Error>(())
    };
    let aggregate = collection.aggregate(pipeline).batch_size(BATCH);
    match session {
        Some(session) => {
            let mut cursor = aggregate.session(&mut *session).batch().await?;
            each(cursor.stream(session), take).await?;
        }
        None => each(aggregate.batch().await?, take).await?,
    }
    Ok(seen)
}

async fn each(
    mut batches: impl futures::Stream<Item = Result<RawBatch>> + Unpin,
    mut take: impl FnMut(RawBatch) -> Result<()>,
) -> Result<()> {
    while let Some(batch) = batches.next().await {
        take(batch?)?;
    }
    Ok(())
}

/// The documents of a plain find.
pub(super) async fn find(
    collection: &Collection<RawDocumentBuf>,
    filter: Document,
    projection: Document,
) -> Result<Vec<RawDocumentBuf>> {
    let mut found = Vec::new();
    let cursor = collection.find(filter).projection(projection).batch_size(BATCH).batch().await?;
    each(cursor, |batch| {
        for row in batch.doc_slices()?.iter_elements() {
            if let Some(row) = row.and_then(|row| row.value())?.as_document() {
                found.push(row.to_owned());
            }
        }
        Ok(())
    })
    .await?;
    Ok(found)
}
