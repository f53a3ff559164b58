//! The program `lockhouse`: the library's verbs for shells and scripts. It uses the public API only.

#![deny(clippy::disallowed_methods, clippy::disallowed_macros)]

mod cli;

#[expect(clippy::disallowed_methods, reason = "the one place that ends the process: all is given back by now")]
fn main() {
    std::process::exit(cli::main());
}
