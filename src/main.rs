//! The program `lockhouse`: the library's verbs for shells and scripts. It uses the public API only.

mod cli;

fn main() {
    // The one place that ends the process: everything that has to be given back is by now.
    std::process::exit(cli::main());
}
