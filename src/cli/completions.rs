//! `completions`: a completion script for a shell.

use clap_complete::Shell;

use super::exit::Failure;
use super::{args, output};

/// Prints the script.
pub(crate) fn print(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "lockhouse", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
