//! Two containers on one volume: names of hosts and processes are their own, both are process 1, and the locks are
//! the kernel's. A container is a set of namespaces, so no engine is needed to make one.

use std::process::Command;

use super::store::{Running, Store, UNTIL_EOF};

/// The program in namespaces of its own, as process 1 of a host with this name.
fn contained(store: &Store, host: &str, args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "sh", "-euc"]);
    command.args([r#"hostname "$HOST_NAME"; exec "$LOCKHOUSE" "$@""#, "sh"]).args(args);
    command.env("HOST_NAME", host).env("LOCKHOUSE", env!("CARGO_BIN_EXE_lockhouse")).env("LOCKHOUSE_STORE", &store.at);
    command
}

fn wrapped(store: &Store, host: &str, verb: &[&str]) -> Running {
    let args: Vec<&str> = verb.iter().chain(&["--"]).chain(&UNTIL_EOF).copied().collect();
    let mut running = Running::start(contained(store, host, &args));
    running.until_out("started");
    running
}

#[test]
fn two_containers_have_one_owner_and_the_loser_says_which_has_it() {
    let store = Store::new();
    let mut owner = wrapped(&store, "container-one", &["owner", "hold", "--build", "b7"]);
    let refused = Running::start(contained(&store, "container-two", &["owner", "hold", "--", "true"])).finish();
    refused.assert(75).says("container-one").says("pid 1").says("b7");
    owner.kill();
    let next = contained(&store, "container-two", &["owner", "hold", "--wait", "9s", "--", "true"]);
    Running::start(next).finish().assert(0);
}

#[test]
fn two_containers_keep_each_other_out() {
    let store = Store::new();
    let fsck = wrapped(&store, "container-one", &["fsck", "--reason", "nightly"]);
    let refused = Running::start(contained(&store, "container-two", &["run", "--", "true"])).finish();
    refused.assert(75).says("container-one").says("nightly");
    let status = store.status();
    assert_eq!((&status["fsck"]["holder"]["pid"], status["fsck"].get("inherited")), (&1.into(), None));
    fsck.finish().assert(0);
    let writer = wrapped(&store, "container-one", &["run"]);
    let refused = contained(&store, "container-two", &["fsck", "--drain-budget", "100ms", "--", "true"]);
    Running::start(refused).finish().assert(76).says("container-one");
    writer.finish().assert(0);
    Running::start(contained(&store, "container-two", &["fsck", "--", "true"])).finish().assert(0);
}
