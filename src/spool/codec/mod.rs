//! How rows lie in a file: each as one JSON object, framed by a format that has a name.
//!
//! What is read may be anything, so a format works within a [`Budget`]: it never holds more than one row, and gives up
//! where the rows of a batch get too much, however small their file is.

mod lines;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

pub use lines::{Ndjson, NdjsonGz};

/// What is left of what the files of a batch may be when they are unpacked.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    row: usize,
    left: u64,
}

impl Budget {
    pub(crate) fn new(row: usize, unpacked: u64) -> Budget {
        Budget { row, left: unpacked }
    }

    /// The longest row, in bytes.
    pub fn row(&self) -> usize {
        self.row
    }

    /// Takes unpacked bytes from what is left.
    ///
    /// # Errors
    ///
    /// `InvalidData` if not so much is left.
    pub fn spend(&mut self, bytes: usize) -> io::Result<()> {
        let left = u64::try_from(bytes).ok().and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its files unpack to too much"))?;
        Ok(())
    }
}

/// Takes the JSON of one row.
pub type TakeRow<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// A way in which rows lie in a file.
pub trait Format: fmt::Debug + Send + Sync + 'static {
    /// Its name: in manifests, and what the names of its files end in.
    fn name(&self) -> &str;

    /// Writes rows, each of them a JSON object without a line end.
    ///
    /// # Errors
    ///
    /// Those of writing.
    fn encode(&self, rows: &mut dyn Iterator<Item = Vec<u8>>, to: &mut dyn Write) -> io::Result<()>;

    /// Reads rows up to the end of the file, one at a time, within the budget.
    ///
    /// # Errors
    ///
    /// Those of reading and of `row`, as they are; `InvalidData`, `InvalidInput` or `UnexpectedEof` where it is no such
    /// file.
    fn decode(&self, from: &mut dyn BufRead, budget: &mut Budget, row: TakeRow<'_>) -> io::Result<()>;
}

/// The formats that a process knows, by name.
#[derive(Debug, Clone)]
pub struct Formats(BTreeMap<String, Arc<dyn Format>>);

impl Default for Formats {
    /// `ndjson` and `ndjson.gz`.
    fn default() -> Formats {
        let mut formats = Formats(BTreeMap::new());
        formats.register(Ndjson);
        formats.register(NdjsonGz);
        formats
    }
}

impl Formats {
    /// Adds a format; it takes the place of one of the same name.
    pub fn register(&mut self, format: impl Format) {
        self.0.insert(format.name().to_owned(), Arc::new(format));
    }

    /// The format of a name.
    pub fn get(&self, name: &str) -> Option<&dyn Format> {
        self.0.get(name).map(|format| &**format)
    }

    /// The names, in order.
    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}
