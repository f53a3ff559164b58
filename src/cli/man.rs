//! `man`: the manual pages.

use std::io;
use std::path::Path;

use super::exit::Failure;
use super::{args, output};

/// Prints the main page, or writes all pages into a directory.
pub(crate) fn write(directory: Option<&Path>) -> Result<(), Failure> {
    let refused = |error: io::Error| Failure::system("the manual cannot be written", error);
    let Some(directory) = directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(args::command()).render(&mut page).map_err(refused)?;
        return output::print(&String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(directory).map_err(refused)?;
    clap_mangen::generate_to(args::command(), directory).map_err(refused)
}
