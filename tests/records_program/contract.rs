//! The JSON forms, field by field: what is tested here is promised to other programs. And what a shell is told.

use serde_json::{Value, json};

use super::{Store, lines, numbers};

fn fields(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect()
}

#[test]
fn results() {
    let store = Store::new();
    let append = ["records", "append", "s", "--kind", "k", "--key", "n", "--json"];
    let ran = store.feed(&append, &numbers(0..2)).assert(0);
    let inferred = &ran.events()[0];
    assert_eq!(fields(inferred), ["schema", "event", "kind", "definition"]);
    let appended = ran.json();
    let of_append = [
        "schema",
        "store",
        "stream",
        "kind",
        "rows",
        "stored",
        "skipped",
        "replaced",
        "first_seq",
        "last_seq",
        "generation",
        "sealed",
        "batches",
        "pending",
    ];
    assert_eq!(fields(&appended), of_append);
    assert_eq!((&appended["schema"], &appended["stored"], &appended["pending"]), (&json!(1), &json!(2), &json!([])));
    let meta = store.run(&["records", "meta", "s", "--json"]).assert(0).json();
    let of_meta = ["schema", "store", "stream", "kind", "generation", "first", "next", "rows", "sealed", "expires"];
    assert_eq!(fields(&meta), of_meta);
    assert_eq!(lines(&store.run(&["records", "streams", "--json"]).assert(0).out), [meta]);
    let kinds = lines(&store.run(&["records", "kinds", "--json"]).assert(0).out);
    assert_eq!(fields(&kinds[0]), ["schema", "store", "kind", "definition"]);
    assert_eq!(fields(&kinds[0]["definition"]), ["kind", "columns", "key", "on_conflict", "retention"]);
    let sealed = store.run(&["records", "seal", "s", "--json"]).assert(0).json();
    let of_change = ["schema", "store", "stream", "operation", "batch", "generation", "removed", "pending"];
    assert_eq!(fields(&sealed), of_change);
    let batch = sealed["batch"].as_str().unwrap();
    let awaited = store.run(&["records", "await", batch, "--json"]).assert(0).json();
    assert_eq!(fields(&awaited), ["schema", "store", "batch", "outcome"]);
    let dry = store.run(&["records", "delete", "s", "--json"]).assert(0).json();
    let of_dry = ["schema", "store", "stream", "operation", "dry_run", "kind", "generation", "rows", "first", "next"];
    assert_eq!(fields(&dry), of_dry);
    let status = store.run(&["status", "--json"]).assert(0).json();
    assert_eq!(fields(&status["spool"]), ["dir", "backlog", "failed", "oldest"]);
    let owner = store.run(&["owner", "status", "--json"]).assert(0).json();
    assert_eq!(fields(&owner), ["schema", "store", "owner", "answers", "spool"]);
    let ingested = store.run(&["owner", "ingest", "--json"]).assert(0).json();
    assert_eq!(fields(&ingested), ["schema", "store", "by", "outcomes", "pending", "backlog"]);
}

#[test]
fn refusals() {
    let store = Store::new();
    store.feed(&["records", "append", "s", "--kind", "k"], &numbers(0..1)).assert(0);
    let error = store.feed(&["records", "append", "s", "--kind", "k", "--json"], "{\"n\":\"x\"}\n").assert(78).error();
    let error = &error["error"];
    let of_error = ["kind", "message", "exit_code", "store", "refusal", "retryable"];
    assert_eq!(fields(error)[..6], of_error);
    assert_eq!(error["kind"], "Invalid");
    assert_eq!(fields(&error["refusal"]), ["kind", "message", "stream", "of", "row", "column"]);
}

#[test]
fn completions_and_manual_pages_have_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = super::Running::start(super::program(["completions", shell])).finish().assert(0);
        for word in ["records", "append", "with-seq", "on-poison", "ingest", "failed"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
    let store = Store::new();
    let pages = store.directory().join("man1");
    super::Running::start(super::program(["man", pages.to_str().unwrap()])).finish().assert(0);
    for page in ["records-append", "records-scan", "records-await", "owner-serve", "owner-ingest", "owner-failed-drop"]
    {
        assert!(pages.join(format!("lockhouse-{page}.1")).exists(), "{page}");
    }
}

/// What the README shows can be typed as it stands.
#[test]
fn the_session_in_the_readme_works() {
    let readme = include_str!("../../README.md");
    let section = readme.split("### Records from a shell").nth(1).expect("the section");
    let session = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the session");
    let store = Store::new();
    let session = session.replace("/tmp/shop.", &format!("{}/shop.", store.directory().display()));
    assert!(session.contains("shop.db") && session.contains("--follow"), "{session}");
    let bin = store.directory().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_lockhouse"), bin.join("lockhouse")).unwrap();
    let mut command = std::process::Command::new("bash");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LOCKHOUSE_")) {
        command.env_remove(name);
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    command.args(["-e", "-c", &format!("{session}wait")]).env("PATH", path);
    let ran = super::Running::start(command).finish().assert(0);
    assert!(ran.out.contains("{\"id\":1,\"item\":\"lamp\",\"euro\":9.5}\n{\"id\":2,\"item\":\"desk\"}\n"), "{ran:?}");
    assert!(ran.out.contains("open, "), "{ran:?}");
    let mut scan = super::program(["records", "scan", "orders"]);
    scan.env("LOCKHOUSE_STORE", store.directory().join("shop.db"));
    let scanned = super::Running::start(scan).finish().assert(0);
    assert_eq!(lines(&scanned.out).len(), 3);
    assert!(store.directory().join("shop.backup").exists());
}
