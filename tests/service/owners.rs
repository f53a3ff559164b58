//! A local store's owner: shown by whoever watches, and answering for itself.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::client::{Answer, Listener, get, try_with};
use crate::program::{Finished, Running, UNTIL_EOF, program};
use crate::served::{address, listening, until};
use crate::support::poll::eventually_blocking;

/// A local store of a test's own, that is still to be made.
struct Local(tempfile::TempDir);

impl Local {
    fn new() -> Local {
        Local(tempfile::tempdir().unwrap())
    }

    fn directory(&self) -> &Path {
        self.0.path()
    }

    fn path(&self) -> PathBuf {
        self.directory().join("data")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = program(words);
        command.env("LOCKHOUSE_STORE", self.path());
        command
    }

    fn start(&self, words: &[&str]) -> Running {
        Running::start(self.command(words))
    }

    fn run(&self, words: &[&str]) -> Finished {
        self.start(words).finish()
    }

    /// An owner with a service beside it, that is ready.
    fn serve(&self) -> Running {
        let mut owner = self.start(&["owner", "serve", "--listen", "127.0.0.1:0", "--build", "b7"]);
        owner.until_err("owns the store");
        owner
    }

    /// Hands a row over.
    fn append(&self, words: &[&str]) -> Finished {
        let mut append = self.start(&[&["records", "append", "s", "--kind", "k"][..], words].concat());
        append.feed("{\"n\":1}\n");
        append.finish()
    }
}

/// The writer lease of the process that answers.
fn holds(answer: &Answer) -> bool {
    answer.metric("lockhouse_leases_held{kind=\"writer\"}") == 1.0
}

#[test]
fn the_owner_of_a_local_store_is_shown() {
    let store = Local::new();
    store.run(&["init"]).assert(0);
    let (serve, address) = listening(store.command(&["serve"]));
    let none = until(address, "/", "no owner", |page| page.body.contains("Nobody owns the store."));
    assert!(none.body.contains("data-phase=\"open\""));
    assert_eq!(get(address, "/metrics").metric("lockhouse_owner"), 0.0);
    let mut owner = store.start(&[&["owner", "hold", "--build", "build <7>", "--"][..], &UNTIL_EOF].concat());
    owner.until_out("started");
    let page = until(address, "/", "the owner", |page| page.body.contains("build &lt;7&gt;"));
    assert!(page.body.contains("the kernel knows that it lives"), "{page:?}");
    assert_eq!(get(address, "/metrics").metric("lockhouse_owner"), 1.0);
    assert_eq!(get(address, "/v1/status").json()["owner"]["build"], "build <7>");
    owner.finish().assert(0);
    eventually_blocking(Duration::from_secs(20), "no owner again", || {
        let page = get(address, "/").body;
        if page.contains("Nobody owns the store.") { Ok(()) } else { Err(page) }
    });
    serve.signal(Signal::SIGTERM);
    serve.finish().assert(0);
}

#[test]
fn an_owner_answers_for_itself_and_a_term_ends_both() {
    let store = Local::new();
    let owner = store.serve();
    let address = address(&owner);
    until(address, "/readyz", "to be ready", |answer| answer.code == 200);
    let metrics = until(address, "/metrics", "its own lease", holds);
    assert_eq!(metrics.metric("lockhouse_owner"), 1.0);
    let page = until(address, "/", "its own lease", |page| page.body.contains("This process holds"));
    assert!(page.body.contains("The next fsck will wait for it."), "{page:?}");
    assert!(page.body.contains("<dt>since</dt><dd><time datetime="), "{page:?}");
    assert!(page.body.contains("b7") && page.body.contains("owner serve"), "{page:?}");
    assert_eq!(get(address, "/v1/status").json()["owner"]["build"], "b7");
    store.append(&[]).assert(0);
    until(address, "/metrics", "the write", |answer| answer.metric("lockhouse_gate_entries_total") >= 1.0);
    // An fsck has the store: the owner gives way, and that is no trouble.
    let mut fsck = store.start(&[&["fsck", "--"][..], &UNTIL_EOF].concat());
    fsck.until_out("started");
    let away = |answer: &Answer| !holds(answer) && answer.metric("lockhouse_gate_closings_total") == 1.0;
    let metrics = until(address, "/metrics", "the owner's giving way", away);
    assert_eq!(metrics.metric("lockhouse_owner"), 1.0);
    assert_eq!(get(address, "/readyz").code, 200);
    fsck.finish().assert(0);
    until(address, "/metrics", "the lease again", holds);
    let mut listener = Listener::start(address, "/v1/events", None);
    owner.signal(Signal::SIGTERM);
    // The stream ends, and not in the middle of an event.
    while listener.next().is_some() {}
    owner.finish().assert(0);
    assert!(try_with(address, "/healthz", &[]).is_err());
    assert!(store.run(&["owner", "status"]).assert(0).out.contains("no owner"));
}

#[test]
fn one_that_stands_by_answers_too_and_says_when_it_takes_over() {
    let store = Local::new();
    let first = store.serve();
    let mut second = store.start(&["owner", "serve", "--listen", "127.0.0.1:0", "--build", "b8"]);
    second.until_err("stands by");
    let address = address(&second);
    until(address, "/readyz", "to be ready", |answer| answer.code == 200);
    let metrics = until(address, "/metrics", "the owner", |answer| answer.metric("lockhouse_owner") == 1.0);
    assert_eq!(metrics.metric("lockhouse_leases_held{kind=\"writer\"}"), 0.0);
    let mut listener = Listener::start(address, "/v1/events", None);
    first.signal(Signal::SIGTERM);
    first.finish().assert(0);
    while listener.until("role").data["owner"]["build"] != "b8" {}
    until(address, "/metrics", "its own lease", holds);
    second.signal(Signal::SIGTERM);
    second.finish().assert(0);
}

#[test]
fn a_port_that_is_taken_is_said_before_anything_is_owned() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let store = Local::new();
    store.run(&["owner", "serve", "--listen", &at]).assert(70).says("already in use").says("--listen").says(&at);
    assert!(std::fs::read_dir(store.directory()).unwrap().next().is_none(), "nothing was made");
    let ran = store.run(&["owner", "hold", "--listen", &at, "--", "echo", "ran"]).assert(70).says("already in use");
    assert!(!ran.out.contains("ran"), "{ran:?}");
    store.run(&["owner", "serve", "--token-file", "/nonexistent"]).assert(64).says("--listen");
    store.run(&["owner", "serve", "--listen", "0.0.0.0:0"]).assert(64).says("needs a token");
}

#[test]
fn a_command_that_owns_the_store_has_a_service_beside_it() {
    let store = Local::new();
    let mut hold = store.start(&[&["owner", "hold", "--listen", "127.0.0.1:0", "--"][..], &UNTIL_EOF].concat());
    hold.until_out("started");
    let address = address(&hold);
    let metrics = until(address, "/metrics", "its lease", holds);
    assert_eq!(metrics.metric("lockhouse_owner"), 1.0);
    hold.finish().assert(0);
    assert!(try_with(address, "/healthz", &[]).is_err());
}

#[test]
fn batches_that_wait_or_failed_are_told_with_or_without_an_owner() {
    let store = Local::new();
    let mut owner = store.serve();
    let (serve, address) = listening(store.command(&["serve"]));
    let nothing =
        until(address, "/metrics", "the spool", |answer| answer.metric("lockhouse_spool_backlog_batches") == 0.0);
    assert_eq!(nothing.metric("lockhouse_spool_ingest_lag_seconds"), 0.0);
    assert_eq!(nothing.metric("lockhouse_spool_failed_batches"), 0.0);
    owner.signal(Signal::SIGSTOP);
    let begin = Instant::now();
    store.append(&["--no-wait"]).assert(0);
    store.append(&["--no-wait"]).assert(0);
    let waits = |answer: &Answer| answer.metric("lockhouse_spool_backlog_batches") == 2.0;
    until(address, "/metrics", "what waits", waits);
    owner.kill();
    // It grows with the time, whoever owns the store.
    let lag = |answer: &Answer| answer.metric("lockhouse_spool_ingest_lag_seconds");
    let metrics = until(address, "/metrics", "the lag", |answer| lag(answer) > 2.0);
    assert!(lag(&metrics) <= begin.elapsed().as_secs_f64() && waits(&metrics), "{metrics:?}");
    let page = until(address, "/", "no owner", |page| page.body.contains("Nobody owns the store."));
    assert!(page.body.contains("the oldest waits"), "{page:?}");
    let told = get(address, "/v1/status").json();
    assert_eq!(told["spool"]["backlog"], 2);
    assert_eq!(told["spool"], store.run(&["status", "--json"]).json()["spool"], "as the program tells it");
    // Somebody applies it.
    store.run(&["owner", "ingest", "--wait=20s"]).assert(0);
    until(address, "/metrics", "no lag", |answer| lag(answer) == 0.0);
    let page = get(address, "/").body;
    assert!(!page.contains("the oldest waits") && !page.contains("Needs a person"), "{page}");
    // What nobody can read is there for a person.
    std::fs::create_dir(store.directory().join("data.spool/failed/what")).unwrap();
    let failed = |answer: &Answer| answer.metric("lockhouse_spool_failed_batches") == 1.0;
    assert_eq!(lag(&until(address, "/metrics", "the failure", failed)), 0.0);
    let page = get(address, "/").body;
    assert!(
        page.contains("1 batch</strong> could not be applied") && page.contains("lockhouse owner failed list"),
        "{page}"
    );
    serve.signal(Signal::SIGTERM);
    serve.finish().assert(0);
}

#[test]
fn whoever_watches_makes_no_spool() {
    let store = Local::new();
    store.run(&["init"]).assert(0);
    let (serve, address) = listening(store.command(&["serve"]));
    let metrics = until(address, "/metrics", "a look", |answer| answer.metric("lockhouse_owner") == 0.0);
    assert!(metrics.metric("lockhouse_spool_ingest_lag_seconds").is_nan(), "there is no spool");
    assert!(get(address, "/v1/status").json()["spool"].is_null());
    assert!(!store.directory().join("data.spool").exists());
    serve.signal(Signal::SIGTERM);
    serve.finish().assert(0);
}

#[test]
fn an_owner_that_says_nothing_is_told_of() {
    let store = Local::new();
    let owner = store.serve();
    let (serve, address) = listening(store.command(&["serve"]));
    let page = until(address, "/", "the owner", |page| page.body.contains("b7"));
    assert!(!page.body.contains("last heard of"), "{page:?}");
    owner.signal(Signal::SIGSTOP);
    until(address, "/", "its silence", |page| page.body.contains("last heard of"));
    owner.signal(Signal::SIGCONT);
    until(address, "/", "its voice", |page| !page.body.contains("last heard of"));
    serve.signal(Signal::SIGTERM);
    serve.finish().assert(0);
}
