//! Rows in: read, checked and gathered to batches on a thread of their own, one batch ahead of what is handed over. No
//! more than that is ever in memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;

use lockhouse::records::{KindName, LONGEST_ROW, Refusal, Row, Schema};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc;

use super::super::exit::Failure;

/// Rows in a batch, and bytes of them.
const ROWS: usize = 50_000;
const BYTES: usize = 16 << 20;
/// How many rows, and bytes of them, show a schema.
const SHOWN_ROWS: usize = 1000;
const SHOWN_BYTES: usize = 1 << 20;
/// What waits for more input so long is handed over as it is, in milliseconds.
const IDLE: u16 = 500;

/// Where rows come from.
#[derive(Debug)]
pub(super) struct Input {
    source: BufReader<File>,
    /// The length of a file, for people who watch.
    pub(super) length: Option<u64>,
    line: u64,
}

/// What the rows are made by.
#[derive(Debug)]
pub(super) enum By {
    Schema(Schema),
    /// What the first rows show, with a key.
    Shown {
        kind: KindName,
        key: Vec<String>,
    },
}

/// Some rows, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    /// The line of each.
    pub(super) lines: Vec<u64>,
    /// What they took as they came.
    pub(super) bytes: usize,
}

/// What comes of the input.
#[derive(Debug)]
pub(super) enum Piece {
    /// What the first rows show.
    Schema(Box<Schema>),
    /// There is more.
    Rows(Rows),
    /// These are the last ones, if there are any.
    Last(Rows),
    /// A row is bad: it has the number of its line. With the line of the first row that is not handed over with it.
    Bad { refusal: Box<Refusal>, from: u64 },
    /// It cannot be read.
    Broken(io::Error),
}

impl Input {
    /// A file, or stdin.
    pub(super) fn open(file: Option<&Path>) -> Result<Input, Failure> {
        let opened = match file {
            Some(path) => File::open(path),
            None => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        };
        let name = || file.map_or_else(|| "stdin".to_owned(), |path| path.display().to_string());
        let refused = |error: io::Error| Failure::Usage(format!("the rows cannot be read from {}: {error}", name()));
        let source = opened.map_err(refused)?;
        let metadata = source.metadata().map_err(refused)?;
        if metadata.is_dir() {
            return Err(Failure::Usage(format!("the rows cannot be read from {}: it is a directory", name())));
        }
        let length = metadata.is_file().then_some(metadata.len());
        Ok(Input { source: BufReader::with_capacity(1 << 18, source), length, line: 0 })
    }

    /// Starts reading.
    pub(super) fn start(self, by: By) -> Result<mpsc::Receiver<Piece>, Failure> {
        let (sender, receiver) = mpsc::channel(1);
        std::thread::Builder::new()
            .name("rows".to_owned())
            .spawn(move || {
                // `None`: nobody listens any more.
                let _ = self.run(by, &sender);
            })
            .map_err(|error| Failure::system("no thread for reading rows", error))?;
        Ok(receiver)
    }

    /// The pieces one after the other; `None` as soon as nobody listens.
    fn run(mut self, by: By, sender: &mpsc::Sender<Piece>) -> Option<()> {
        let mut shown = Vec::new();
        let schema = match by {
            By::Schema(schema) => schema,
            By::Shown { kind, key } => {
                match self.show(&mut shown) {
                    Ok(()) => {}
                    Err(error) => return sender.blocking_send(Piece::Broken(error)).ok(),
                }
                if shown.is_empty() {
                    return sender.blocking_send(Piece::Last(Rows::default())).ok();
                }
                match infer(&kind, key, &shown) {
                    Ok(schema) => {
                        sender.blocking_send(Piece::Schema(Box::new(schema.clone()))).ok()?;
                        schema
                    }
                    Err(refusal) => {
                        let (refusal, from) = (Box::new(refusal), shown[0].0);
                        return sender.blocking_send(Piece::Bad { refusal, from }).ok();
                    }
                }
            }
        };
        let mut gathered = Rows::default();
        let mut shown = shown.into_iter();
        let mut line = Vec::new();
        loop {
            let at = match shown.next() {
                Some((at, json)) => {
                    line = json;
                    at
                }
                None => match self.next(&mut line, !gathered.rows.is_empty()) {
                    Ok(Next::Line) => self.line,
                    Ok(Next::Nothing) => {
                        sender.blocking_send(Piece::Rows(std::mem::take(&mut gathered))).ok()?;
                        continue;
                    }
                    Ok(Next::End) => return sender.blocking_send(Piece::Last(gathered)).ok(),
                    Err(error) => return sender.blocking_send(Piece::Broken(error)).ok(),
                },
            };
            // Only when there is another: the last batch is known to be the last.
            if gathered.rows.len() >= ROWS || gathered.bytes >= BYTES {
                sender.blocking_send(Piece::Rows(std::mem::take(&mut gathered))).ok()?;
            }
            match schema.row(&line) {
                Ok(row) => {
                    gathered.rows.push(row);
                    gathered.lines.push(at);
                    gathered.bytes += line.len();
                }
                Err(mut refusal) => {
                    refusal.row = Some(at);
                    let from = gathered.lines.first().copied().unwrap_or(at);
                    return sender.blocking_send(Piece::Bad { refusal: Box::new(refusal), from }).ok();
                }
            }
        }
    }

    /// Reads the rows that show a schema.
    fn show(&mut self, shown: &mut Vec<(u64, Vec<u8>)>) -> io::Result<()> {
        let mut bytes = 0;
        while shown.len() < SHOWN_ROWS && bytes < SHOWN_BYTES {
            let mut line = Vec::new();
            match self.next(&mut line, !shown.is_empty())? {
                Next::Line => {
                    bytes += line.len();
                    shown.push((self.line, line));
                }
                Next::Nothing | Next::End => break,
            }
        }
        Ok(())
    }

    /// The next line that is not blank. One that is too long is cut, and refused by the schema for its length.
    fn next(&mut self, line: &mut Vec<u8>, hurry: bool) -> io::Result<Next> {
        loop {
            if hurry && self.source.buffer().is_empty() && !self.ready()? {
                return Ok(Next::Nothing);
            }
            line.clear();
            let longest = LONGEST_ROW as u64 + 2;
            if (&mut self.source).take(longest).read_until(b'\n', line)? == 0 {
                return Ok(Next::End);
            }
            self.line += 1;
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Next::Line);
            }
        }
    }

    /// Whether there is something to read, or will be in a moment.
    fn ready(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.source.get_ref().as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut fds, PollTimeout::from(IDLE)) {
                Ok(found) => return Ok(found > 0),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What reading a line came to.
enum Next {
    Line,
    Nothing,
    End,
}

/// A schema of the first rows; a refusal has the number of the line.
fn infer(kind: &KindName, key: Vec<String>, shown: &[(u64, Vec<u8>)]) -> Result<Schema, Refusal> {
    let schema = Schema::infer(kind, shown.iter().map(|(_, json)| json.as_slice())).map_err(|mut refusal| {
        let nth = refusal.row.and_then(|row| usize::try_from(row - 1).ok());
        refusal.row = nth.and_then(|nth| shown.get(nth)).map(|(line, _)| *line);
        refusal
    })?;
    if key.is_empty() { Ok(schema) } else { schema.with_key(key) }
}
