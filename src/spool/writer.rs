//! Gathers what is to be written, and cuts it into batches: one transaction each, so neither too small to be quick nor
//! too large to be held.

use std::fmt;

use super::batch::{NewBatch, rows_of};
use super::limits::LIMITS;
use crate::error::{Error, Result};
use crate::records::{Cell, Entry, Operation, Row, Schema, StreamName};

/// When a batch is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// At so many rows.
    pub rows: usize,
    /// At about so many bytes of rows.
    pub bytes: usize,
}

impl Default for Caps {
    /// 50,000 rows, 64 MiB.
    fn default() -> Caps {
        Caps { rows: 50_000, bytes: 64 << 20 }
    }
}

/// About what an entry takes in a manifest, beside the name of its stream.
const ENTRY: usize = 400;

/// Where the batches of a [`Writer`] go: to the spool, or straight to the store.
pub trait Sink {
    /// What is known of a batch that was taken.
    type Done;

    /// Takes a batch.
    ///
    /// # Errors
    ///
    /// With the batch where nothing came of it, so that it can be handed over again; without it where something may have.
    fn take(&mut self, batch: NewBatch) -> Result<Self::Done, NotTaken>;
}

impl<D, F: FnMut(NewBatch) -> Result<D, NotTaken>> Sink for F {
    type Done = D;

    fn take(&mut self, batch: NewBatch) -> Result<D, NotTaken> {
        self(batch)
    }
}

/// A batch that was not taken, or may have been.
#[derive(Debug)]
pub struct NotTaken {
    /// Why.
    pub error: Error,
    /// The batch, if nothing came of it.
    pub batch: Option<Box<NewBatch>>,
}

impl NotTaken {
    /// What an error says of the batch: after [`Error::Pending`] it is, or may be, with the store.
    pub fn new(error: Error, batch: NewBatch) -> NotTaken {
        let batch = (!matches!(error, Error::Pending(_))).then(|| Box::new(batch));
        NotTaken { error, batch }
    }
}

/// Gathers entries to batches. One is cut when it is full and when [`Writer::flush`] is called; what was not flushed when
/// the writer is dropped is lost.
pub struct Writer<S: Sink> {
    sink: S,
    caps: Caps,
    gathered: Gathered,
    /// A batch that was not taken: it goes first.
    unsent: Option<NewBatch>,
    done: Vec<S::Done>,
}

#[derive(Debug, Default)]
struct Gathered {
    schemas: Vec<Schema>,
    entries: Vec<Entry>,
    rows: usize,
    bytes: usize,
    manifest: usize,
}

impl<S: Sink> fmt::Debug for Writer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("caps", &self.caps).field("rows", &self.gathered.rows).finish_non_exhaustive()
    }
}

impl<S: Sink> Writer<S> {
    /// A writer whose batches go to `sink`.
    pub fn new(sink: S) -> Writer<S> {
        Writer::with_caps(sink, Caps::default())
    }

    /// As [`Writer::new`], with smaller or larger batches. What no batch may have is not gathered whatever they say.
    pub fn with_caps(sink: S, caps: Caps) -> Writer<S> {
        let most = usize::try_from(LIMITS.rows).unwrap_or(usize::MAX);
        let caps = Caps { rows: caps.rows.clamp(1, most), bytes: caps.bytes.max(1) };
        Writer { sink, caps, gathered: Gathered::default(), unsent: None, done: Vec::new() }
    }

    /// Adds a row to a stream. Rows that come one after the other for one stream become one append, as far as a batch
    /// reaches.
    ///
    /// # Errors
    ///
    /// That of the sink, if a full batch had to be handed over first and was not taken: the row is not added then.
    pub fn row(&mut self, stream: &StreamName, schema: &Schema, row: Row) -> Result<()> {
        let bytes = size_of(schema, &row);
        self.make_room(1, bytes, Some(schema))?;
        let gathered = &mut self.gathered;
        gathered.learn(schema);
        gathered.rows += 1;
        gathered.bytes = gathered.bytes.saturating_add(bytes);
        if let Some(Entry { stream: last, generation: None, operation }) = gathered.entries.last_mut()
            && let Operation::Append { kind, rows, ttl: None, seal: false } = operation
            && (&*last, &*kind) == (stream, &schema.kind)
        {
            rows.push(row);
            return Ok(());
        }
        let operation = Operation::Append { kind: schema.kind.clone(), rows: vec![row], ttl: None, seal: false };
        gathered.add(Entry { stream: stream.clone(), generation: None, operation });
        Ok(())
    }

    /// Adds an entry, which is never divided. `schema` is that of the rows that it appends.
    ///
    /// # Errors
    ///
    /// As [`Writer::row`].
    pub fn entry(&mut self, schema: Option<&Schema>, entry: Entry) -> Result<()> {
        let rows = rows_of(&entry.operation);
        let bytes = match (&entry.operation, schema) {
            (Operation::Append { rows, .. }, Some(schema)) => rows.iter().map(|row| size_of(schema, row)).sum(),
            _ => 0,
        };
        self.make_room(rows, bytes, schema)?;
        if let Some(schema) = schema {
            self.gathered.learn(schema);
        }
        self.gathered.rows += rows;
        self.gathered.bytes = self.gathered.bytes.saturating_add(bytes);
        self.gathered.add(entry);
        Ok(())
    }

    /// Hands over all that was gathered. What became of each batch since the last flush, in order.
    ///
    /// # Errors
    ///
    /// That of the sink. What it did not take is kept, and handed over with the next flush, under the same id; what it
    /// may have taken is not.
    pub fn flush(&mut self) -> Result<Vec<S::Done>> {
        self.cut()?;
        Ok(std::mem::take(&mut self.done))
    }

    fn make_room(&mut self, rows: usize, bytes: usize, schema: Option<&Schema>) -> Result<()> {
        let gathered = &self.gathered;
        let full = gathered.rows + rows > self.caps.rows
            || gathered.bytes.saturating_add(bytes) > self.caps.bytes
            || gathered.entries.len() >= LIMITS.entries
            || gathered.manifest as u64 > LIMITS.manifest / 2
            || schema.is_some_and(|schema| gathered.has_another(schema));
        if full && !gathered.entries.is_empty() { self.cut() } else { Ok(()) }
    }

    fn cut(&mut self) -> Result<()> {
        while self.unsent.is_some() || !self.gathered.entries.is_empty() {
            let batch = match self.unsent.take() {
                Some(batch) => batch,
                None => {
                    let Gathered { schemas, entries, .. } = std::mem::take(&mut self.gathered);
                    NewBatch::new(schemas, entries)
                }
            };
            match self.sink.take(batch) {
                Ok(done) => self.done.push(done),
                Err(NotTaken { error, batch }) => {
                    self.unsent = batch.map(|batch| *batch);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl Gathered {
    fn learn(&mut self, schema: &Schema) {
        if !self.schemas.iter().any(|known| known.kind == schema.kind) {
            self.manifest += serde_json::to_string(schema).map_or(0, |json| json.len());
            self.schemas.push(schema.clone());
        }
    }

    /// A batch has one schema of a kind.
    fn has_another(&self, schema: &Schema) -> bool {
        self.schemas.iter().any(|known| known.kind == schema.kind && known != schema)
    }

    fn add(&mut self, entry: Entry) {
        self.manifest += ENTRY + entry.stream.as_str().len();
        self.entries.push(entry);
    }
}

/// About what a row takes as JSON.
fn size_of(schema: &Schema, row: &Row) -> usize {
    const NUMBER: usize = 12;
    const AROUND: usize = 6;
    let cell = |cell: &Cell| match cell {
        Cell::Null => 0,
        Cell::Text(text) | Cell::Json(text) => text.len() + AROUND,
        Cell::Integer(_) | Cell::Real(_) | Cell::Boolean(_) => NUMBER + AROUND,
    };
    let named = |(column, value): (&crate::records::Column, &Cell)| match value {
        Cell::Null => 0,
        value => column.name.len() + cell(value),
    };
    schema.columns.iter().zip(row.cells()).map(named).sum()
}
