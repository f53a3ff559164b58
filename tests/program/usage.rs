//! The command line, and what must not be shown.

use super::program::{Finished, Running, Store, program};

fn run(words: &[&str]) -> Finished {
    Running::start(program(words)).finish()
}

#[test]
fn mistakes_on_the_command_line_end_with_64() {
    for words in [
        &[][..],
        &["no-such-command"],
        &["run"],
        &["run", "--"],
        &["run", "true"],
        &["run", "--wait", "soon", "--", "true"],
        &["run", "--wait", "-1", "--", "true"],
        &["run", "--on-lost", "panic", "--", "true"],
        &["fsck", "--peer-is-dead", "--", "true"],
        &["status", "--no-such-option"],
        &["completions", "cmd.exe"],
        // No store.
        &["status"],
    ] {
        let ran = run(words).assert(64);
        assert_eq!(ran.out, "");
        assert!(ran.err.starts_with("lockhouse: "), "{ran:?}");
    }
    let ran = run(&["--json", "run", "--wait", "soon", "--", "true"]).assert(64);
    assert_eq!(ran.error()["error"]["kind"], "Usage");
    assert_eq!(ran.error()["error"]["exit_code"], 64);
    // It belongs to the command.
    let ran = run(&["run", "--wait", "soon", "--", "true", "--json"]).assert(64);
    assert!(ran.err.starts_with("lockhouse: "), "{ran:?}");
}

#[test]
fn bad_numbers_and_stores_are_named() {
    let store = Store::bare();
    for (words, says) in [
        (["--stale-multiplier", "2", "status"], "is 2"),
        (["--refresh-interval", "0", "status"], "refresh interval is zero"),
        (["--refresh-interval", "2h", "status"], "1 h"),
        (["--store", "redis://h/0", "status"], "unknown scheme"),
        (["--store", "mongodb://h", "status"], "names no database"),
        (["--store", "/no/such/directory/data.db", "status"], "its directory /no/such/directory"),
        (["--collection", "a$b", "status"], "a$b"),
    ] {
        store.run(words).assert(78).says(says);
    }
}

#[test]
fn help_and_version_are_no_failures() {
    for words in [&["--help"][..], &["-h"], &["--version"], &["help"], &["run", "--help"], &["help", "fsck"]] {
        let ran = run(words).assert(0);
        assert!(ran.out.contains("lockhouse"), "{ran:?}");
        assert_eq!(ran.err, "");
    }
    let ran = run(&["--help"]);
    for word in ["init", "run", "fsck", "status", "clear", "prune", "history", "demo"] {
        assert!(ran.out.contains(word), "{word}: {ran:?}");
    }
    assert!(!ran.out.contains("demo-work"), "{ran:?}");
}

#[test]
fn completions_and_manual() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = run(&["completions", shell]).assert(0);
        assert!(ran.out.contains("drain-budget"), "{shell}");
    }
    let ran = run(&["man"]).assert(0);
    assert!(ran.out.starts_with(".ie") || ran.out.contains(".TH lockhouse"));
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    run(&["man", pages.to_str().unwrap()]).assert(0);
    let page = std::fs::read_to_string(pages.join("lockhouse-fsck.1")).unwrap();
    assert!(page.contains("drain"));
    for hidden in ["demo-work", "demo-replica-set"] {
        assert!(!pages.join(format!("lockhouse-{hidden}.1")).exists(), "{hidden}");
    }
}

#[test]
fn a_password_is_never_shown() {
    let secret = "s3cr3t-word";
    let url = format!("mongodb://job:{secret}@127.0.0.1:9/shop?serverSelectionTimeoutMS=200");
    let mut all = String::new();
    let mut see = |ran: Finished, code: i32| {
        assert_eq!(ran.code, code, "{ran:?}");
        all.push_str(&ran.out);
        all.push_str(&ran.err);
    };
    for words in [
        &["status"][..],
        &["status", "--json"],
        &["-vvv", "status"],
        &["-vvv", "--json", "run", "--", "true"],
        &["demo"],
    ] {
        let mut command = program(words);
        command.env("LOCKHOUSE_STORE", &url);
        command.env("LOCKHOUSE_LOG", "trace");
        see(Running::start(command).finish(), 69);
    }
    for words in [&["--help"][..], &["run", "--help"], &["help", "status"]] {
        let mut command = program(words);
        command.env("LOCKHOUSE_STORE", &url);
        see(Running::start(command).finish(), 0);
    }
    let option = format!("--stroe={url}");
    for words in [
        &[url.as_str()][..],
        &["status", &url],
        &["--json", "status", &url],
        &["run", &url, "--", "true"],
        &["status", &option],
        &["status", "--stale-multiplier", &url],
        &["status", "--refresh-interval", &url],
        &["completions", &url],
    ] {
        see(run(words), 64);
    }
    let slash = format!("mongodb://job:{secret}/x@127.0.0.1:9/shop");
    see(run(&["--store", &slash, "status"]), 78);
    assert!(!all.contains("s3cr3t"), "{all}");
    assert!(all.contains("127.0.0.1:9/shop"), "{all}");
}
