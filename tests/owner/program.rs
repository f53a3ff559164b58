//! `lockhouse owner`, and what the other commands show of an owner.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lockhouse::owner::{Ownership, read_state};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::probe::Probe;
use crate::support::poll::eventually_blocking;
use crate::support::process::spawn_kept;
use crate::{PATIENCE, Store};

fn program(store: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockhouse"));
    command.args(words).env("LOCKHOUSE_STORE", store).stdin(Stdio::null());
    for name in ["LOCKHOUSE_LEASE", "LOCKHOUSE_OWNER", "LOCKHOUSE_ENCLOSING"] {
        command.env_remove(name);
    }
    command
}

fn run(store: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = program(store, words).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A running `owner hold`, killed when dropped.
struct Hold(Child);

impl Hold {
    /// Its command is a script; `$D` is the store's directory.
    fn start(store: &Store, options: &[&str], script: &str) -> Hold {
        let mut words = vec!["owner", "hold"];
        words.extend(options);
        words.extend(["--", "sh", "-c", script]);
        let mut command = program(&store.path(), &words);
        command.env("D", store.directory()).stderr(fs::File::create(store.directory().join("stderr")).unwrap());
        Hold(spawn_kept(command).unwrap())
    }

    fn code(&mut self) -> Option<i32> {
        eventually_blocking(PATIENCE, "the end of owner hold", || self.0.try_wait().unwrap().ok_or("it runs")).code()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a file, and reads it whole.
fn contents(store: &Store, name: &str) -> String {
    eventually_blocking(PATIENCE, "a file of the command", || match fs::read_to_string(store.directory().join(name)) {
        Ok(text) if text.ends_with('\n') => Ok(text.trim().to_owned()),
        other => Err(other.map_err(|error| error.to_string())),
    })
}

fn lives(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

const UP: &str = "echo $$ > $D/up; while :; do sleep 0.05; done";

#[test]
fn a_store_without_an_owner_says_so() {
    let store = Store::new();
    let (code, out, err) = run(&store.path(), &["owner", "status"]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (Some(0), &*format!("store {}: no owner\n", store.path().display()), "")
    );
    let (code, out, _) = run(&store.path(), &["owner", "status", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(
        json,
        serde_json::json!({"schema": 1, "store": store.path(), "owner": null, "answers": null, "spool": null})
    );
    assert!(fs::read_dir(store.directory()).unwrap().next().is_none(), "looking makes nothing");
    let (code, _, err) = run(Path::new("mongodb://h/d"), &["owner", "status"]);
    assert!(code == Some(64) && err.contains("only a local store"), "{code:?} {err}");
}

#[test]
fn a_command_has_the_store_to_itself_and_everybody_can_see_who_it_is() {
    let store = Store::new();
    let mut hold = Hold::start(
        &store,
        &["--build", "b42", "--label", "tidy"],
        "echo $$ > $D/up; until [ -e $D/go ]; do sleep 0.02; done; exit 7",
    );
    contents(&store, "up");
    let pid = hold.0.id();

    let (code, out, _) = run(&store.path(), &["owner", "status"]);
    assert_eq!(code, Some(0), "{out}");
    for part in [format!("pid {pid} on "), "build b42".to_owned(), "ready".to_owned()] {
        assert!(out.contains(&part), "{out}");
    }
    let (code, out, _) = run(&store.path(), &["owner", "status", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!((&json["owner"]["pid"], &json["answers"]), (&pid.into(), &true.into()), "{json}");
    for field in
        ["instance", "host", "build", "phase", "startedAt", "heartbeatAt", "store", "socket", "backlog", "failed"]
    {
        assert!(!json["owner"][field].is_null(), "{field}: {json}");
    }

    let (code, out, _) = run(&store.path(), &["status", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!((&json["owner"]["pid"], &json["owner"]["phase"]), (&pid.into(), &"ready".into()), "{json}");
    assert_eq!(json["writers"][0]["holder"]["label"], "tidy");
    let (_, out, _) = run(&store.path(), &["status"]);
    assert!(out.contains(&format!("owner: pid {pid}")), "{out}");

    let (code, _, err) = run(&store.path(), &["owner", "hold", "--", "true"]);
    assert!(code == Some(75) && err.contains("build b42") && err.contains(&format!("pid {pid}")), "{code:?} {err}");
    let (code, _, err) = run(&store.path(), &["owner", "hold", "--json", "--", "true"]);
    let error = &serde_json::from_str::<Value>(err.lines().last().unwrap()).unwrap()["error"];
    assert_eq!((code, &error["kind"], &error["cause"]), (Some(75), &"StoreLocked".into(), &"Owned".into()), "{error}");
    assert_eq!((&error["state"]["build"], &error["retryable"]), (&"b42".into(), &true.into()), "{error}");
    // Writers that are no owners come and go; an fsck waits for the owner too.
    let (code, _, err) = run(&store.path(), &["run", "--", "true"]);
    assert_eq!(code, Some(0), "{err}");
    let (code, _, err) = run(&store.path(), &["fsck", "--drain-budget", "200ms", "--", "true"]);
    assert_eq!(code, Some(76), "{err}");

    fs::write(store.directory().join("go"), "").unwrap();
    assert_eq!(hold.code(), Some(7));
    let (code, out, _) = run(&store.path(), &["owner", "status"]);
    assert!(code == Some(0) && out.contains("no owner"), "{out}");
    assert!(!store.beside(".sock").exists() && !store.beside(".leases/sock").exists());
    let (code, _, err) = run(&store.path(), &["owner", "hold", "--", "sh", "-c", "exit 3"]);
    assert_eq!(code, Some(3), "{err}");
}

#[test]
fn one_that_waits_gets_the_store_when_the_other_leaves() {
    let store = Store::new();
    let mut first = Hold::start(&store, &[], "echo $$ > $D/up; until [ -e $D/go ]; do sleep 0.02; done");
    contents(&store, "up");
    let mut second =
        Hold::start(&store, &["--wait", "20s"], "if [ -e $D/go ]; then echo after; else echo beside; fi > $D/second");
    let (code, _, err) = run(&store.path(), &["owner", "hold", "--wait", "100ms", "--", "true"]);
    assert!(code == Some(75) && err.contains("owned by another process"), "{code:?} {err}");
    fs::write(store.directory().join("go"), "").unwrap();
    assert_eq!((first.code(), second.code()), (Some(0), Some(0)));
    assert_eq!(contents(&store, "second"), "after");
}

#[test]
fn what_a_killed_wrapper_started_keeps_the_store() {
    let store = Store::new();
    let mut hold =
        Hold::start(&store, &["--build", "b1"], "setsid sleep 300 & echo $! > $D/other; echo $$ > $D/up; wait");
    let leader = Pid::from_raw(contents(&store, "up").parse().unwrap());
    let other = Pid::from_raw(contents(&store, "other").parse().unwrap());
    let wrapper = hold.0.id();
    hold.0.kill().unwrap();
    hold.0.wait().unwrap();
    eventually_blocking(PATIENCE, "the command's death", || if lives(leader) { Err(()) } else { Ok(()) });
    assert!(lives(other));

    let (code, out, _) = run(&store.path(), &["owner", "status"]);
    assert_eq!(code, Some(69), "{out}");
    assert!(out.contains(&format!("pid {wrapper}")) && out.contains("one that it started keeps the store"), "{out}");
    let (code, _, err) = run(&store.path(), &["owner", "hold", "--", "true"]);
    assert!(code == Some(75) && err.contains("build b1"), "{code:?} {err}");
    let (code, _, err) = run(&store.path(), &["fsck", "--drain-budget", "200ms", "--", "true"]);
    assert_eq!(code, Some(76), "the writer lease is kept too: {err}");

    kill(other, Signal::SIGKILL).unwrap();
    eventually_blocking(PATIENCE, "the store to be free", || match read_state(store.path()).unwrap() {
        Ownership::Nobody => Ok(()),
        seen => Err(seen),
    });
    let (code, _, err) = run(&store.path(), &["owner", "hold", "--", "true"]);
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_command_whose_store_is_meddled_with_is_ended_at_once() {
    for what in ["P.lock removed", "P.lock replaced", "P.leases removed"] {
        let store = Store::new();
        let mut hold = Hold::start(&store, &["--on-lost", "kill"], UP);
        let command = Pid::from_raw(contents(&store, "up").parse().unwrap());
        let begin = Instant::now();
        match what {
            "P.lock removed" => fs::remove_file(store.beside(".lock")).unwrap(),
            "P.lock replaced" => {
                fs::write(store.beside(".new"), "").unwrap();
                fs::rename(store.beside(".new"), store.beside(".lock")).unwrap();
            }
            _ => fs::remove_dir_all(store.beside(".leases")).unwrap(),
        }
        assert_eq!(hold.code(), Some(80), "{what}");
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}: {:?}", begin.elapsed());
        assert!(!lives(command), "{what}");
        let said = fs::read_to_string(store.directory().join("stderr")).unwrap();
        assert!(said.contains("removed or replaced") && said.contains("stop writing"), "{what}: {said}");
    }
}

#[test]
fn an_owner_that_is_not_ready_is_shown_and_is_no_success() {
    let store = Store::new();
    let owner = Probe::owner("serving", &store.path());
    let (code, out, _) = run(&store.path(), &["owner", "status"]);
    assert!(code == Some(0) && out.contains("build probe"), "{out}");
    owner.stop();
    let begin = Instant::now();
    let (code, out, _) = run(&store.path(), &["owner", "status"]);
    assert!(begin.elapsed() < Duration::from_secs(12), "{:?}", begin.elapsed());
    assert!(code == Some(69) && out.contains("does not answer"), "{out}");
    // One that said nothing at all.
    fs::remove_file(store.beside(".owner.json")).unwrap();
    let (code, out, _) = run(&store.path(), &["owner", "status"]);
    assert!(code == Some(69) && out.contains("has said no more yet"), "{out}");
    let (_, out, _) = run(&store.path(), &["status", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&json["owner"]["pid"], &json["owner"]["phase"]), (&owner.pid().as_raw().into(), &Value::Null));
    drop(owner);
    let (_, out, _) = run(&store.path(), &["status", "--json"]);
    assert!(serde_json::from_str::<Value>(&out).unwrap()["owner"].is_null());
}

#[test]
fn a_signal_to_the_wrapper_gives_the_store_back() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let store = Store::new();
        let mut hold = Hold::start(&store, &[], UP);
        contents(&store, "up");
        let begin = Instant::now();
        kill(Pid::from_raw(hold.0.id().cast_signed()), signal).unwrap();
        assert_eq!(hold.code(), Some(128 + signal as i32));
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        assert_eq!(read_state(store.path()).unwrap(), Ownership::Nobody);
        let (code, _, err) = run(&store.path(), &["owner", "hold", "--", "true"]);
        assert_eq!(code, Some(0), "{err}");
    }
}
