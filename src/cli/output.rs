//! What goes to stdout: data, for people or as JSON. A reader that has gone away (`| head`) is no failure.

use std::io::{self, IsTerminal, Write};

use lockhouse::describe::printable;
use serde::Serialize;

use super::exit::{self, Failure};

/// Prints to stdout.
///
/// # Errors
///
/// When stdout cannot be written, for another reason than that nobody reads it.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::system("stdout cannot be written", error))
        }
        _ => Ok(()),
    }
}

/// Prints to stdout, and says whether anybody still reads.
pub(crate) fn print_while_read(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::system("stdout cannot be written", error)),
    }
}

/// One JSON value on one line, with everything that could steer a terminal escaped. It stays the same value.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    let plain = serde_json::to_string(value).unwrap_or_else(|error| {
        // Only a map with keys that are no text could fail; there is none.
        format!("{{\"schema\":1,\"error\":{{\"kind\":\"Internal\",\"message\":\"{error}\"}}}}")
    });
    escaped(&plain)
}

/// JSON text with everything that could steer a terminal escaped.
pub(crate) fn escaped(plain: &str) -> String {
    let mut safe = String::with_capacity(plain.len());
    for c in plain.chars() {
        // JSON itself escapes what is below a space, and outside of strings there is only ASCII.
        let mut buffer = [0; 4];
        let text = c.encode_utf8(&mut buffer);
        if c >= '\u{7f}' && *printable(text) != *text {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Whether stdout takes colours.
pub(crate) fn stdout_has_colour() -> bool {
    colour(&io::stdout())
}

/// Whether a stream takes colours: a terminal that is not dumb, and nobody said no.
pub(crate) fn colour(stream: &impl IsTerminal) -> bool {
    let said_no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    stream.is_terminal() && !said_no && !dumb
}

/// The exit code of a command that needs no console.
pub(crate) fn finish(result: Result<(), Failure>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(failure) => exit::report_plainly(&failure, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_steers_no_terminal_and_stays_the_same() {
        let nasty = "a\n\u{1b}[2J\u{9b}2J\u{202e}grüße\u{7f}";
        let line = json_line(&nasty);
        assert_eq!(printable(&line), line);
        assert!(line.contains("grüße"), "{line}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), nasty);
    }
}
