//! What a run tells its user meanwhile.

use std::fmt;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::Process;

/// One thing worth telling, as a line of text through `Display`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// The lease is lost or about to be; the command was told to end and will be killed after this time.
    Ending { why: String, killed_in: Duration },
    /// The lease is lost or about to be; the command is being killed.
    Killing { why: String },
    /// The lease is lost, and the command goes on, as was asked for.
    LostButGoingOn { why: String },
    /// These did not die yet although they were killed.
    Surviving { processes: Vec<Process> },
    /// The command has ended; the lease is kept for what it left running in its group.
    WaitingFor { processes: Vec<Process> },
    /// The command is stopped because it wants the terminal, which somebody else has, and nobody above can be told.
    WantsTerminal,
    /// A signal could not be passed on.
    NotForwarded { signal: Signal, error: String },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Ending { why, killed_in } => {
                write!(f, "{why}: ending the command, to be killed in {} ms", killed_in.as_millis())
            }
            Note::Killing { why } => write!(f, "{why}: killing the command"),
            Note::LostButGoingOn { why } => write!(f, "{why}: the command goes on without a lease"),
            Note::Surviving { processes } => {
                write!(f, "killed, but not dead yet: {}", List(processes))
            }
            Note::WaitingFor { processes } => {
                write!(f, "the command has ended; keeping the lease for what it left running: {}", List(processes))
            }
            Note::WantsTerminal => f.write_str("the command is stopped: it wants the terminal, which another job has"),
            Note::NotForwarded { signal, error } => {
                write!(f, "{signal} did not reach the command: {error}")
            }
        }
    }
}

/// Processes in a row, the first few by name.
struct List<'a>(&'a [Process]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 8;
        for (index, process) in self.0.iter().take(NAMED).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{process}")?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
