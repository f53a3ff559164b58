//! Failures of the program and what they mean to whoever started it.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;

use lockhouse::describe::printable;
use lockhouse::{Error, ErrorKind, Locked, StoreName};
use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};

/// The command line is wrong.
pub(crate) const USAGE: i32 = 64;
/// The store cannot be reached, or its owner is not ready.
pub(crate) const UNAVAILABLE: i32 = 69;
/// Anything unexpected.
pub(crate) const UNEXPECTED: i32 = 70;
/// An fsck holds the store, or waits for it.
pub(crate) const LOCKED: i32 = 75;
/// `status`: something needs a person.
pub(crate) const NEEDS_A_PERSON: i32 = 81;
/// The command cannot be executed.
pub(crate) const NOT_EXECUTABLE: i32 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: i32 = 127;

/// Why the program did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library's error.
    Store(Error),
    /// The command line is wrong; the text says how.
    Usage(String),
    /// The command to run was not found, or cannot be executed.
    Command {
        /// What was to be run.
        command: String,
        /// There is none of this name.
        missing: bool,
        /// The system's reason.
        error: io::Error,
    },
    /// A signal ended it before, or instead of, the command.
    Interrupted {
        /// Which.
        signal: Signal,
        /// What is left behind, if anything.
        left: Option<String>,
    },
    /// The system refused something.
    System {
        /// What.
        what: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// The store cannot be used in this way.
    Invalid {
        /// Which store.
        store: StoreName,
        /// How, and what to do.
        message: String,
    },
    /// A service that was asked whether it is well did not say so.
    #[cfg(feature = "service")]
    Unwell(String),
    /// The demo saw something that must not be.
    Demo(String),
    /// It failed after a part was done.
    #[cfg(feature = "local")]
    After {
        /// Why.
        failure: Box<Failure>,
        /// What was done before, and what to do.
        note: String,
        /// The same for programs.
        done: Value,
    },
}

impl Failure {
    /// The system refused something.
    pub(crate) fn system(what: &'static str, error: io::Error) -> Failure {
        Failure::System { what, error }
    }

    /// A signal came while nothing was held.
    pub(crate) fn interrupted(signal: io::Result<Signal>) -> Failure {
        match signal {
            Ok(signal) => Failure::Interrupted { signal, left: None },
            Err(error) => Failure::system("the signals cannot be read", error),
        }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Failure::Store(error) => of_kind(error.kind()),
            Failure::Usage(_) => USAGE,
            Failure::Command { missing: true, .. } => NOT_FOUND,
            Failure::Command { missing: false, .. } => NOT_EXECUTABLE,
            Failure::Interrupted { signal, .. } => 128 + *signal as i32,
            Failure::Invalid { .. } => of_kind(ErrorKind::Invalid),
            #[cfg(feature = "service")]
            Failure::Unwell(_) => UNAVAILABLE,
            Failure::System { .. } | Failure::Demo(_) => UNEXPECTED,
            #[cfg(feature = "local")]
            Failure::After { failure, .. } => failure.code(),
        }
    }

    /// The text for people: one line, unless it is about the command line.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Store(error) => printable(&chain(error)),
            Failure::Usage(text) => text.trim_start_matches("error: ").trim_end().to_owned(),
            Failure::Command { command, missing, error } => {
                let what = if *missing { "was not found" } else { "cannot be executed" };
                format!("the command {} {what}: {error}", printable(command))
            }
            Failure::Interrupted { signal, left: None } => {
                format!("ended by {signal}; nothing is held")
            }
            Failure::Interrupted { signal, left: Some(left) } => format!("ended by {signal}; {left}"),
            Failure::System { what, error } => format!("{what}: {error}"),
            Failure::Invalid { store, message } => printable(&format!("store {store}: {message}")),
            #[cfg(feature = "service")]
            Failure::Unwell(why) => printable(why),
            Failure::Demo(what) => what.clone(),
            #[cfg(feature = "local")]
            Failure::After { failure, note, .. } => format!("{}; {note}", failure.text()),
        }
    }

    /// The object under `error` of the JSON form.
    pub(crate) fn json(&self) -> Value {
        #[cfg(feature = "local")]
        if let Failure::After { failure, done, .. } = self {
            let mut object = failure.json();
            object["message"] = self.text().into();
            object["done"] = done.clone();
            return object;
        }
        let mut fields = Map::new();
        let kind = match self {
            Failure::Store(error) => {
                details(error, &mut fields);
                fields.insert("retryable".to_owned(), error.is_retryable().into());
                name_of(error.kind())
            }
            Failure::Usage(_) => "Usage",
            Failure::Command { missing: true, .. } => "CommandNotFound",
            Failure::Command { missing: false, .. } => "CommandNotExecutable",
            Failure::Interrupted { signal, .. } => {
                fields.insert("signal".to_owned(), (*signal as i32).into());
                "Interrupted"
            }
            Failure::Invalid { store, .. } => {
                fields.insert("store".to_owned(), json!(store));
                fields.insert("retryable".to_owned(), false.into());
                "Invalid"
            }
            #[cfg(feature = "service")]
            Failure::Unwell(_) => "Unavailable",
            Failure::System { .. } | Failure::Demo(_) => "Internal",
            #[cfg(feature = "local")]
            Failure::After { .. } => "Internal",
        };
        let mut object = Map::new();
        object.insert("kind".to_owned(), kind.into());
        object.insert("message".to_owned(), self.text().into());
        object.insert("exit_code".to_owned(), self.code().into());
        object.append(&mut fields);
        object.into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

/// The exit code of a library error.
fn of_kind(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::StoreLocked => LOCKED,
        ErrorKind::DrainTimeout => 76,
        ErrorKind::LeaseLost => 80,
        ErrorKind::Unavailable => UNAVAILABLE,
        ErrorKind::Denied => 77,
        ErrorKind::Invalid => 78,
        ErrorKind::Pending => 79,
        // `Internal`, and what a later library may add.
        _ => UNEXPECTED,
    }
}

fn name_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StoreLocked => "StoreLocked",
        ErrorKind::DrainTimeout => "DrainTimeout",
        ErrorKind::LeaseLost => "LeaseLost",
        ErrorKind::Unavailable => "Unavailable",
        ErrorKind::Denied => "Denied",
        ErrorKind::Invalid => "Invalid",
        ErrorKind::Pending => "Pending",
        _ => "Internal",
    }
}

/// The typed details of a library error.
fn details(error: &Error, fields: &mut Map<String, Value>) {
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    match error {
        Error::StoreLocked(locked) => {
            put("store", json!(locked.store));
            match &locked.cause {
                Locked::FsckHeld { lease, stale } => {
                    put("cause", "FsckHeld".into());
                    put("lease", json!(lease));
                    put("stale", (*stale).into());
                }
                Locked::StaleWriters { writers } => {
                    put("cause", "StaleWriters".into());
                    put("writers", json!(writers));
                }
                Locked::FsckFresh { lease } => {
                    put("cause", "FsckFresh".into());
                    put("lease", json!(lease));
                }
                Locked::NotDead { leases } => {
                    put("cause", "NotDead".into());
                    put("leases", json!(leases));
                }
                #[cfg(feature = "local")]
                Locked::Owned { state } => {
                    put("cause", "Owned".into());
                    put("state", json!(state));
                }
                // The message says it.
                _ => {}
            }
        }
        Error::DrainTimeout(timeout) => {
            put("store", json!(timeout.store));
            put("budget_ms", millis(timeout.budget));
            put("writers", json!(timeout.writers));
        }
        Error::LeaseLost(lost) => {
            put("store", json!(lost.store));
            put("lease_id", json!(lost.identifier));
            put("lease_kind", json!(lost.kind));
            put("why", json!(lost.why));
        }
        Error::Pending(pending) => {
            put("store", json!(pending.store));
            put("batch_id", json!(pending.batch_id));
        }
        Error::Unavailable(failure) | Error::Denied(failure) | Error::Invalid(failure) | Error::Internal(failure) => {
            put("store", json!(failure.store))
        }
        #[cfg(feature = "local")]
        Error::CatalogVersion(version) => {
            put("store", json!(version.store));
            put("owner", version.owner.into());
            put("build", version.build.into());
        }
        #[cfg(feature = "local")]
        Error::Refused(refused) => {
            put("store", json!(refused.store));
            put("refusal", json!(refused.refusal));
        }
        _ => {}
    }
}

/// A duration as the JSON contract writes it.
pub(crate) fn millis(duration: std::time::Duration) -> Value {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).into()
}

/// The message with its causes, each once.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {said}");
        }
        cause = error.source();
    }
    text
}

/// Reports a failure before there is a console, and returns its exit code.
pub(crate) fn report_plainly(failure: &Failure, json: bool) -> i32 {
    use std::io::Write as _;
    let line = if json {
        super::output::json_line(&json!({"schema": 1, "error": failure.json()}))
    } else {
        format!("lockhouse: {}", failure.text())
    };
    // Nobody is left to tell if this fails.
    let _ = writeln!(io::stderr(), "{line}");
    failure.code()
}
