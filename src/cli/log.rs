//! Traces of the library on stderr: warnings always, more with `-v`, anything with `LOCKHOUSE_LOG`.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::console::Console;

/// Starts tracing. A filter that cannot be read is said, and does not end the program.
pub(crate) fn start(console: &Console, verbose: u8) {
    let level = match verbose {
        0 => "lockhouse=warn",
        1 => "lockhouse=info",
        2 => "lockhouse=debug",
        _ => "lockhouse=trace,mongodb=debug",
    };
    let asked = std::env::var("LOCKHOUSE_LOG").unwrap_or_default();
    let filter = match asked.trim() {
        "" => EnvFilter::new(level),
        asked => EnvFilter::try_new(asked).unwrap_or_else(|error| {
            console.say("log", &format!("LOCKHOUSE_LOG cannot be used: {error}"));
            EnvFilter::new(level)
        }),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(console.has_colour())
        .with_writer(Writer(console.clone()))
        .finish();
    // It fails only if there is one already, and nobody else sets one.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Hands each trace to the console as a whole, so that no thread of the library ever waits for stderr.
struct Writer(Console);

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Event<'a>;

    fn make_writer(&'a self) -> Event<'a> {
        Event { console: &self.0, text: Vec::new() }
    }
}

/// One trace while it is formatted.
struct Event<'a> {
    console: &'a Console,
    text: Vec<u8>,
}

impl Write for Event<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.text);
        self.console.trace(text.trim_end());
    }
}
