//! What goes to stderr: messages for people, or one JSON object per line.
//!
//! A thread of its own writes it. A terminal that is held by Ctrl-S, or a pipe that nobody reads, would block
//! whoever writes, and here that is the thread that ends a command at its lease's deadline. So nobody waits for a
//! message to be written, and when too many wait, the next are dropped.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use lockhouse::describe::printable;
use serde_json::{Value, json};

use super::exit::Failure;
use super::output;
use super::table::fit;

/// How many messages may wait.
const KEPT: usize = 1024;
/// The widest live line: one that wraps cannot be drawn over.
const LIVE: usize = 78;
/// How long the end of the program waits for its last message.
const LAST_WORDS: Duration = Duration::from_secs(1);

enum Message {
    Line(String),
    /// The one line that is drawn over and over.
    Live(String),
    Flush(SyncSender<()>),
}

/// The program's stderr. Clones write to the same.
#[derive(Debug, Clone)]
pub(crate) struct Console {
    messages: SyncSender<Message>,
    json: bool,
    terminal: bool,
    colour: bool,
}

impl Console {
    /// Starts the thread.
    pub(crate) fn start(json: bool) -> Console {
        let (messages, inbox) = sync_channel(KEPT);
        let started = std::thread::Builder::new().name("stderr".to_owned()).spawn(move || write_all(&inbox));
        // Without a thread nobody reads: messages are dropped, and the exit code still tells.
        drop(started);
        let stderr = io::stderr();
        Console { messages, json, terminal: stderr.is_terminal(), colour: output::colour(&stderr) }
    }

    /// Whether traces may have colours.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour && !self.json
    }

    /// Something that happened: `text` for people, `fields` as JSON, where the name becomes `event`.
    pub(crate) fn event(&self, name: &str, fields: Value, text: &str) {
        if self.json {
            let mut object = json!({"schema": 1, "event": name});
            if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
                object.extend(fields);
            }
            self.line(output::json_line(&object));
        } else {
            self.lines(text);
        }
    }

    /// A message that has no data beyond its text.
    pub(crate) fn say(&self, name: &str, text: &str) {
        self.event(name, json!({ "message": text }), text);
    }

    /// A line of a trace.
    pub(crate) fn trace(&self, text: &str) {
        if self.json {
            self.say("log", text);
        } else {
            self.line(text.to_owned());
        }
    }

    /// Whether live lines are drawn.
    #[cfg(feature = "local")]
    pub(crate) fn draws(&self) -> bool {
        self.terminal && !self.json
    }

    /// Draws a line over the last one, on a terminal. The next message takes its place.
    pub(crate) fn live(&self, text: &str) {
        if self.terminal && !self.json {
            let text = fit(&printable(text), LIVE);
            let _ = self.messages.try_send(Message::Live(text));
        }
    }

    /// The failure that ends the program.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json {
            self.line(output::json_line(&json!({"schema": 1, "error": failure.json()})));
        } else if self.colour {
            self.line(format!("\u{1b}[31mlockhouse:\u{1b}[0m {}", failure.text()));
        } else {
            self.lines(&failure.text());
        }
    }

    /// Waits until everything is written, but not long.
    pub(crate) fn finish(&self) {
        let (done, finished) = sync_channel(1);
        if self.messages.try_send(Message::Flush(done)).is_ok() {
            let _ = finished.recv_timeout(LAST_WORDS);
        }
    }

    fn lines(&self, text: &str) {
        for (n, line) in text.lines().enumerate() {
            let start = if n == 0 { "lockhouse: " } else { "  " };
            self.line(format!("{start}{line}"));
        }
    }

    fn line(&self, text: String) {
        let _ = self.messages.try_send(Message::Line(text));
    }
}

/// The thread: writes until the last console is gone.
fn write_all(inbox: &Receiver<Message>) {
    const ERASE: &str = "\r\u{1b}[K";
    let mut live = false;
    for message in inbox {
        let mut stderr = io::stderr().lock();
        // Nobody is left to tell if stderr cannot be written.
        match message {
            Message::Line(text) => {
                let erase = if live { ERASE } else { "" };
                live = false;
                let _ = stderr.write_all(format!("{erase}{text}\n").as_bytes());
            }
            Message::Live(text) => {
                live = true;
                let _ = stderr.write_all(format!("{ERASE}{text}").as_bytes());
            }
            Message::Flush(done) => {
                if live {
                    let _ = stderr.write_all(ERASE.as_bytes());
                }
                live = false;
                let _ = done.send(());
            }
        }
    }
}
