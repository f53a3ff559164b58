//! `records scan`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lockhouse::owner::{Ownership, read_state};
use nix::sys::signal::Signal;

use super::support::poll::eventually_blocking;
use super::support::running::PATIENCE;
use super::{Store, lines, numbers};

#[test]
fn parts_of_a_stream_are_printed() {
    let store = Store::new();
    store.feed(&["records", "append", "s", "--kind", "k"], &numbers(1..7)).assert(0);
    let scan = |words: &[&str]| store.run(&[&["records", "scan", "s"], words].concat()).assert(0).out;
    assert_eq!(scan(&["--from", "3", "--limit", "2"]), numbers(3..5));
    assert_eq!(scan(&["--from", "99"]), "");
    assert_eq!(scan(&["--limit", "0"]), "");
    assert_eq!(scan(&["--from", "6", "--with-seq"]), "{\"seq\":6,\"row\":{\"n\":6}}\n");
    store.run(&["records", "scan", "t"]).assert(78).says("no stream t");
}

#[test]
fn looking_takes_no_part() {
    let store = Store::new();
    for words in
        [&["records", "scan", "s"][..], &["records", "streams"], &["records", "kinds"], &["records", "meta", "s"]]
    {
        store.run(words).assert(78).says("lockhouse init");
    }
    assert!(std::fs::read_dir(store.directory()).unwrap().next().is_none(), "looking makes nothing");
    store.run(&["init"]).assert(0);
    assert!(store.run(&["records", "streams"]).assert(0).out.contains("no streams yet"));
    assert!(store.run(&["records", "kinds"]).assert(0).out.contains("no kinds yet"));
    assert!(!store.path().exists() && !store.directory().join("p.lock").exists());
    store.feed(&["records", "append", "s", "--kind", "k"], &numbers(0..1)).assert(0);
    let mut following = store.start(&["records", "scan", "s", "--follow"]);
    following.until_out("{\"n\":0}\n");
    assert_eq!(read_state(store.path()).unwrap(), Ownership::Nobody, "who follows is no owner");
    // Nor is it in the way of an fsck, and it reads beside it.
    let inner = format!("{} records scan s", env!("CARGO_BIN_EXE_lockhouse"));
    let ran = store.run(&["fsck", "--drain-budget", "2s", "--", "sh", "-c", &inner]).assert(0);
    assert_eq!(ran.out, "{\"n\":0}\n");
    following.signal(Signal::SIGINT);
    following.finish().assert(0);
}

#[test]
fn who_follows_is_woken_by_each_append() {
    let store = Store::new();
    store.run(&["init"]).assert(0);
    let serving = store.serve(&[]);
    let mut following = store.start(&["records", "scan", "s", "--follow"]);
    following.until_err("no stream s yet");
    let mut appending = store.start(&["records", "append", "s", "--kind", "k"]);
    for n in 0..4 {
        appending.feed(&numbers(n..n + 1));
        following.until_out(&format!("{{\"n\":{n}}}\n"));
    }
    appending.finish().assert(0);
    // The owner changes, and an fsck puts another file in the place of the one that was open.
    serving.signal(Signal::SIGTERM);
    serving.finish().assert(0);
    let rebuild = "cp p q && mv q p";
    let mut fsck = store.command(&["fsck", "--", "sh", "-c", rebuild]);
    fsck.current_dir(store.directory());
    super::Running::start(fsck).finish().assert(0);
    store.feed(&["records", "append", "s", "--kind", "k"], &numbers(4..6)).assert(0);
    following.until_out(&numbers(0..6));
    following.signal(Signal::SIGTERM);
    assert_eq!(following.finish().assert(0).out, numbers(0..6));
}

#[test]
fn who_follows_notices_another_generation() {
    let store = Store::new();
    store.feed(&["records", "append", "s", "--kind", "k"], &numbers(0..3)).assert(0);
    let mut following = store.start(&["records", "scan", "s", "--follow", "--json"]);
    following.until_out("{\"n\":2}\n");
    store.run(&["records", "delete", "s", "--yes"]).assert(0);
    store.feed(&["records", "append", "s", "--kind", "k"], &numbers(7..9)).assert(0);
    following.until_out(&(numbers(0..3) + &numbers(7..9)));
    following.signal(Signal::SIGTERM);
    let ran = following.finish().assert(0);
    let told = ran.events().into_iter().find(|event| event["event"] == "generation").expect("it is told");
    assert_eq!((&told["generation"], &told["before"]), (&2.into(), &1.into()));
}

#[test]
fn following_ends_with_its_reader_and_its_limit() {
    let store = Store::new();
    store.feed(&["records", "append", "s", "--kind", "k"], &numbers(0..3)).assert(0);
    let mut command = store.command(&["records", "scan", "s", "--follow"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "{\"n\":0}\n");
    drop(out);
    let status =
        eventually_blocking(PATIENCE, "its end without another row", || child.try_wait().unwrap().ok_or("it runs"));
    assert_eq!(status.code(), Some(0));
    let ran = store.run(&["records", "scan", "s", "--follow", "--limit", "2"]).assert(0);
    assert_eq!(ran.out, numbers(0..2));
}

#[test]
fn a_reader_that_takes_its_time_keeps_no_signal_waiting() {
    let store = Store::new();
    store.feed(&["records", "append", "s", "--kind", "k"], &numbers(0..40_000)).assert(0);
    let mut child = store.command(&["records", "scan", "s"]).stdout(Stdio::piped()).spawn().unwrap();
    // It writes until the pipe is full, and nobody reads.
    let mut out = BufReader::with_capacity(16, child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    let begin = Instant::now();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let status = eventually_blocking(PATIENCE, "its end", || child.try_wait().unwrap().ok_or("it runs"));
    assert_eq!(status.code(), Some(128 + 15));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn rows_do_not_steer_a_terminal() {
    let store = Store::new();
    let row = "{\"t\":\"a\u{9b}2Jb\u{202e}c\"}\n";
    store.feed(&["records", "append", "s", "--kind", "k"], row).assert(0);
    assert_eq!(store.run(&["records", "scan", "s"]).assert(0).out, row, "as it was appended");
    let mut terminal = super::pty::Pty::spawn(store.command(&["records", "scan", "s"]));
    terminal.expect("{\"t\":\"a\\u009b2Jb\\u202ec\"}");
    assert!(terminal.wait().success());
    assert_eq!(lines(row).len(), 1);
}
