//! What a process of the demo does: it pretends to write, and notes from when to when.
//!
//! A note is a line that is appended in one piece: `PID NAME + TIME` before and `PID NAME - TIME` after, the time in
//! microseconds since boot. The end of a process that never came shows as a begin without an end.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockhouse::clock::{Clock, Moment, SystemClock};

use super::super::args::DemoWork;
use super::super::exit;

/// How long one pretended write takes.
const WRITE: Duration = Duration::from_millis(20);

/// From when to when one process did one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    /// Of which process of the story.
    pub(super) name: String,
    pub(super) begin: Duration,
    /// None if it never ended.
    pub(super) end: Option<Duration>,
}

/// The time since boot, the same for all processes.
pub(super) fn now() -> Duration {
    SystemClock.now().since(Moment::ORIGIN)
}

/// Blocks for a while, as a write would.
#[expect(clippy::disallowed_methods, reason = "the demo's processes and threads have no runtime, and hold no lease")]
pub(super) fn nap(length: Duration) {
    std::thread::sleep(length);
}

/// The hidden command.
pub(crate) fn work(args: &DemoWork) -> i32 {
    match write_for(args) {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "lockhouse: the demo's notes cannot be written: {error}");
            exit::UNEXPECTED
        }
    }
}

fn write_for(args: &DemoWork) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(&args.file)?;
    let end = now() + args.length;
    let mut note = |sign: char| {
        let line = format!("{} {} {sign} {}\n", std::process::id(), args.name, now().as_micros());
        file.write_all(line.as_bytes())
    };
    while now() < end {
        note('+')?;
        nap(WRITE);
        note('-')?;
    }
    Ok(())
}

/// The file with the notes, in a directory of its own that goes with this value.
pub(super) struct Notes {
    directory: PathBuf,
    file: PathBuf,
}

impl Notes {
    pub(super) fn create() -> io::Result<Notes> {
        let name = format!("lockhouse-demo-{}-{}", std::process::id(), now().as_nanos());
        let directory = std::env::temp_dir().join(name);
        // Not shared with anybody, and an error if somebody was faster.
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let file = directory.join("notes");
        File::create_new(&file)?;
        Ok(Notes { directory, file })
    }

    /// A local store for the story.
    pub(super) fn store(&self) -> PathBuf {
        self.directory.join("store")
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn read(&self) -> io::Result<Vec<Span>> {
        Ok(parse(&std::fs::read_to_string(&self.file)?))
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn parse(text: &str) -> Vec<Span> {
    let mut open: BTreeMap<(&str, &str), Duration> = BTreeMap::new();
    let mut spans = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(pid), Some(name), Some(sign), Some(time)) = (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Ok(time) = time.parse().map(Duration::from_micros) else {
            continue;
        };
        if sign == "+" {
            open.insert((pid, name), time);
        } else if let Some(begin) = open.remove(&(pid, name)) {
            let name = name.to_owned();
            spans.push(Span { name, begin, end: Some(time) });
        }
    }
    spans.extend(open.into_iter().map(|((_, name), begin)| Span { name: name.to_owned(), begin, end: None }));
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_become_spans() {
        let text = "7 a + 10\n8 b + 11\n7 a - 12\n8 b - 13\n9 a + 20\n";
        let span = |name: &str, begin, end: Option<u64>| Span {
            name: name.to_owned(),
            begin: Duration::from_micros(begin),
            end: end.map(Duration::from_micros),
        };
        assert_eq!(parse(text), [span("a", 10, Some(12)), span("b", 11, Some(13)), span("a", 20, None)]);
    }
}
