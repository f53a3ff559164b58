//! What is in `deploy/` against the running program: that the metrics which alerts and dashboard name are there, with
//! the labels that they ask for, and that the roles for MongoDB are enough and no more.
//!
//! `scripts/check-deploy` checks the files by their own tools, `scripts/test-compose` runs the example.

mod metrics;
mod names;
mod roles;

#[path = "../service/client.rs"]
#[expect(dead_code, reason = "the tests of the service use the rest")]
mod client;
#[path = "../program/program.rs"]
#[expect(dead_code, reason = "the tests of the program use the rest")]
mod program;
#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use support::poll::eventually_blocking;

/// How long anything may take that ought to happen soon.
const PATIENCE: Duration = Duration::from_secs(40);

/// A file of `deploy/`.
fn deployed(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a program said that it listens on.
fn address(running: &mut program::Running) -> SocketAddr {
    running.until_err("listening on http://");
    let err = running.err();
    let (_, rest) = err.split_once("listening on http://").unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

/// Waits until the answer of a path shows what is looked for.
fn until(to: SocketAddr, path: &str, what: &str, shows: impl Fn(&client::Answer) -> bool) -> client::Answer {
    eventually_blocking(PATIENCE, what, || {
        let answer = client::try_with(to, path, &[]).map_err(|error| error.to_string())?;
        if shows(&answer) { Ok(answer) } else { Err(format!("{answer:#?}")) }
    })
}
