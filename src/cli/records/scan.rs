//! `records scan`: the rows of a stream, to its end or for ever.
//!
//! Each window is read by itself: between two of them no read transaction is open that would keep the owner's log from
//! being emptied, or a replaced file alive.

use lockhouse::owner::ReadOnly;
use lockhouse::records::Window;
use nix::sys::signal::Signal;
use serde_json::json;

use super::super::Context;
use super::super::console::Console;
use super::super::exit::Failure;
use super::args::ScanArgs;
use super::look::no_such_stream;
use super::read_only;
use super::rows::{Out, nobody_reads};

/// How many rows are read at a time.
const WINDOW: usize = 5000;

/// Prints the rows.
pub(super) async fn scan(context: &mut Context, args: ScanArgs) -> Result<i32, Failure> {
    let store = read_only(&context.global)?;
    let console = context.console.clone();
    let scanning = Scanning {
        out: Out::start(args.with_seq)?,
        left: args.limit.unwrap_or(u64::MAX),
        next: args.from.max(1),
        generation: None,
        store,
        args: &args,
        console,
    };
    tokio::select! {
        biased;
        signal = context.signals.interrupted() => match signal {
            // How one leaves it.
            Ok(Signal::SIGINT | Signal::SIGTERM) if args.follow => Ok(0),
            signal => Err(Failure::interrupted(signal)),
        },
        scanned = scanning.run() => scanned.map(|()| 0),
    }
}

struct Scanning<'a> {
    args: &'a ScanArgs,
    store: ReadOnly,
    console: Console,
    out: Out,
    /// How many rows may still be printed.
    left: u64,
    /// The seq that comes next.
    next: u64,
    /// The generation of the rows that were printed.
    generation: Option<u64>,
}

/// How far one look came.
enum Came {
    /// All that is there is printed.
    ToTheEnd,
    /// There is no such stream.
    Nowhere,
    /// Nothing more is wanted.
    Enough,
}

impl Scanning<'_> {
    async fn run(mut self) -> Result<(), Failure> {
        // From before the first look: what is written after that is not missed.
        let mut changes = self.args.follow.then(|| self.store.changes());
        let mut told = false;
        loop {
            let came = self.print_what_is_there().await?;
            let Some(changes) = &mut changes else {
                return match came {
                    Came::Nowhere => Err(no_such_stream(self.store.name(), &self.args.stream)),
                    Came::ToTheEnd | Came::Enough => Ok(()),
                };
            };
            match came {
                Came::Enough => return Ok(()),
                Came::Nowhere if !told => {
                    told = true;
                    let text = format!("there is no stream {} yet; waiting for it", self.args.stream);
                    self.console.event("waiting", json!({"stream": self.args.stream}), &text);
                }
                Came::Nowhere | Came::ToTheEnd => {}
            }
            changes.next().await;
            if nobody_reads() {
                return Ok(());
            }
        }
    }

    /// Prints what is there.
    async fn print_what_is_there(&mut self) -> Result<Came, Failure> {
        loop {
            let limit = usize::try_from(self.left).unwrap_or(usize::MAX).min(WINDOW);
            if limit == 0 {
                return Ok(Came::Enough);
            }
            let window = match self.store.scan(&self.args.stream, self.next, limit).await {
                Ok(Some(window)) => window,
                Ok(None) => return Ok(Came::Nowhere),
                // It may pass: a file that is being replaced, another program's lock.
                Err(error) if self.args.follow && error.is_retryable() => {
                    tracing::debug!(%error, "looking again");
                    return Ok(Came::ToTheEnd);
                }
                Err(error) => return Err(error.into()),
            };
            if self.begins_anew(&window) {
                continue;
            }
            self.next = window.next.max(self.next);
            if window.rows.is_empty() {
                return Ok(Came::ToTheEnd);
            }
            if !self.out.write(&window).await? {
                return Ok(Came::Enough);
            }
            self.left -= window.rows.len() as u64;
        }
    }

    /// Whether the stream is another than the one whose rows were printed: then its first row comes next.
    fn begins_anew(&mut self, window: &Window) -> bool {
        let generation = window.meta.generation;
        let before = self.generation.replace(generation);
        let Some(before) = before.filter(|before| *before != generation) else { return false };
        let text = format!(
            "stream {} was deleted, and there is another: generation {generation} after {before}; from its first row on",
            self.args.stream
        );
        let fields = json!({"stream": self.args.stream, "generation": generation, "before": before});
        self.console.event("generation", fields, &text);
        self.next = 1;
        true
    }
}
