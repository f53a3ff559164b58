//! Looks: statements that read, batch by batch, without turning documents into maps.
//!
//! The server's clock comes with the same statement, so an age is the difference of two of its times. It
//! is computed here and saturates: in the server one absurd heartbeat would make the statement, and with
//! it every look at the store, fail.

use std::collections::BTreeSet;

use bson::{DateTime, Document, RawDocument, RawDocumentBuf, doc};
use futures::StreamExt;
use mongodb::error::{Error, Result};
use mongodb::raw_batch_cursor::RawBatch;
use mongodb::{ClientSession, Collection};

use crate::backend::{Detail, FSCK_ID, Record};

use super::documents::{self, LAYOUT_ID};
use super::pulse::Pulse;
#[cfg(doc)]
use super::statements;

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
    /// What a statement saw that answers with documents in the [`statements::view`].
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a RawDocumentBuf>) -> Seen {
        let mut seen = Seen::default();
        for row in rows {
            seen.now = row.get_datetime("now").ok().or(seen.now);
            if let Ok(document) = row.get_document("d") {
                seen.take(document, Detail::Full);
            }
        }
        seen
    }

    /// A row of a look: the first is the only one without an `_id`, all others are documents as stored.
    fn row(&mut self, row: &RawDocument, detail: Detail) {
        if matches!(row.get("_id"), Ok(None)) {
            self.now = row.get_datetime("now").ok();
            let layout = row.get_array("layout").and_then(|layout| layout.get_document(0));
            self.generation = layout.ok().and_then(documents::generation);
        } else {
            self.take(row, detail);
        }
    }

    fn take(&mut self, document: &RawDocument, detail: Detail) {
        match document.get_str("_id") {
            Ok(LAYOUT_ID) => self.generation = documents::generation(document),
            Ok(id) if id.starts_with("fence/") => self.fences = true,
            // Also an `_id` that cannot be read: it stands among the leases.
            Ok(_) | Err(_) => self.leases.push(documents::record(document, self.now, detail)),
        }
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
    detail: Detail,
) -> Result<Seen> {
    let mut seen = Seen::default();
    let take = |batch: RawBatch| {
        for row in batch.doc_slices()?.iter_elements() {
            if let Some(row) = row.and_then(|row| row.value())?.as_document() {
                seen.row(row, detail);
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

/// The ids of the writers in a range, from the index alone: no document is read.
pub(super) async fn ids(
    collection: &Collection<RawDocumentBuf>,
    session: &mut ClientSession,
    range: Document,
) -> Result<BTreeSet<String>> {
    let mut ids = Vec::new();
    let take = |batch: RawBatch| {
        for row in batch.doc_slices()?.iter_elements() {
            if let Some(row) = row.and_then(|row| row.value())?.as_document()
                && let Ok(id) = row.get_str("_id")
                && id != FSCK_ID
            {
                ids.push(id.to_owned());
            }
        }
        Ok::<(), Error>(())
    };
    let find = collection.find(range).projection(doc! { "_id": 1 }).batch_size(BATCH);
    let mut cursor = find.session(&mut *session).batch().await?;
    each(cursor.stream(session), take).await?;
    // They come in the order of the index, from which a set is made without comparing each with many.
    Ok(ids.into_iter().collect())
}

/// The documents of a plain find.
pub(super) async fn find(
    collection: &Collection<RawDocumentBuf>,
    session: Option<&mut ClientSession>,
    filter: Document,
    projection: Document,
) -> Result<Vec<RawDocumentBuf>> {
    let mut found = Vec::new();
    let take = |batch: RawBatch| {
        for row in batch.doc_slices()?.iter_elements() {
            if let Some(row) = row.and_then(|row| row.value())?.as_document() {
                found.push(row.to_owned());
            }
        }
        Ok::<(), Error>(())
    };
    let find = collection.find(filter).projection(projection).batch_size(BATCH);
    match session {
        Some(session) => {
            let mut cursor = find.session(&mut *session).batch().await?;
            each(cursor.stream(session), take).await?;
        }
        None => each(find.batch().await?, take).await?,
    }
    Ok(found)
}
