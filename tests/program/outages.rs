//! A server that stops answering.

use std::time::{Duration, Instant};

use super::program::{FOR_LONG, STALE, Store};
use super::support::poll::eventually_blocking;
use super::support::running::lives;

#[test]
fn the_command_is_dead_before_its_lease_is_stale() {
    let (store, proxy) = Store::through_proxy();
    let mut writer = store.wrapped(&["--json", "run", "--settle", "0"], FOR_LONG);
    let command = writer.command_pid();
    let silent = Instant::now();
    proxy.blackhole();
    writer.until_err(r#""event":"doubtful""#);
    eventually_blocking(
        STALE,
        "the command to be dead",
        || {
            if lives(command) { Err(silent.elapsed()) } else { Ok(()) }
        },
    );
    let ran = writer.finish().assert(80);
    let error = &ran.error()["error"];
    assert_eq!(error["kind"], "LeaseLost", "{ran:?}");
    assert_eq!(error["why"], "deadline");
    assert_eq!(error["retryable"], true);
    assert!(ran.err.contains("ending the command"), "{ran:?}");
}

#[test]
fn a_short_outage_is_only_told() {
    let (store, proxy) = Store::through_proxy();
    let script = "trap 'exit 9' TERM; echo started; while :; do sleep 0.05; done";
    let mut writer = store.start(["run", "--", "sh", "-c", script]);
    writer.until_out("started");
    proxy.blackhole();
    writer.until_err("could not be refreshed");
    proxy.pass();
    writer.until_err("refreshed again");
    writer.signal(nix::sys::signal::Signal::SIGTERM);
    writer.finish().assert(9);
}

#[test]
fn connecting_is_not_silent() {
    let (store, proxy) = Store::through_proxy();
    proxy.blackhole();
    let mut status = store.start(["status"]);
    status.until_err("still connecting");
    proxy.pass();
    let ran = status.finish();
    assert!([0, 69].contains(&ran.code), "{ran:?}");
    assert!(ran.took < Duration::from_secs(20), "{ran:?}");
}
