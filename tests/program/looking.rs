//! `status` and `history`, for people.

use std::process::Stdio;

use mongodb::bson::doc;
use nix::sys::signal::Signal;
use unicode_width::UnicodeWidthStr;

use super::program::{FOR_LONG, Running, Store, UNTIL_EOF, program};
use super::support::mongod::{Mongod, Options};

#[test]
fn looking_changes_nothing() {
    let store = Store::new();
    let _writer = store.wrapped(&["run"], FOR_LONG);
    store.dead_writer("dead");
    let ids = || -> Vec<String> {
        let content = store.content();
        content.iter().map(|document| document.get_str("_id").unwrap().to_owned()).collect()
    };
    let before = ids();
    for _ in 0..3 {
        store.run(["status"]);
        store.run(["status", "--json"]);
        store.run(["history"]).assert(0);
        store.run(["prune", "--dry-run"]).assert(0);
    }
    assert_eq!(ids(), before);
}

#[test]
fn whatever_a_holder_calls_itself_a_line_fits_and_steers_no_terminal() {
    let store = Store::new();
    let nasty = "a\nstore x: open\r\u{1b}[2J\u{9b}31m\u{202e}evil\u{2066}日本語日本語日本語日本語 e\u{301}\u{301}";
    let long = "x".repeat(4000);
    let _first = store.wrapped(&["run", "--label", nasty, "--reason", &long], FOR_LONG);
    let _second = store.wrapped(&["run", "--label", &long, "--reason", nasty], FOR_LONG);
    store.dead_writer(nasty);
    store.until("a stale writer", |status| status["writers"][0]["state"] == "stale");
    let ran = store.run(["fsck", "--reason", nasty, "--label", nasty, "--drain-budget", "100ms", "--", "true"]);
    ran.assert(76);
    for words in [vec!["status"], vec!["status", "-v"], vec!["history"]] {
        let ran = store.run(&words);
        for line in ran.out.lines() {
            assert!(line.width() <= 100, "{}: {line}", line.width());
            assert!(!line.starts_with("store x"), "{line}");
        }
        for bad in ['\u{1b}', '\u{9b}', '\u{202e}', '\u{2066}', '\r'] {
            assert!(!ran.out.contains(bad), "{bad:?} in {}", ran.out);
        }
    }
    // JSON steers nothing either, and gives the text back as it was.
    let ran = store.run(["status", "--json"]);
    assert!(!ran.out.contains('\u{9b}') && !ran.out.contains('\u{202e}'));
    let writers = ran.json()["writers"].clone();
    let writers = writers.as_array().unwrap();
    assert!(writers.iter().any(|writer| writer["holder"]["label"] == nasty));
}

#[test]
fn the_table_says_who_what_and_since_when() {
    let store = Store::new();
    let writer = store.wrapped(&["run", "--label", "import", "--reason", "night run"], UNTIL_EOF);
    let ran = store.run(["status"]).assert(0);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("store mongodb://"), "{ran:?}");
    assert!(lines[0].ends_with(": open, 1 writer, generation 0"), "{ran:?}");
    let pid = format!("pid {}", writer.pid());
    for word in ["writer", &pid, "(lockhouse)", "import: night run", "Z", "fresh"] {
        assert!(lines[3].contains(word), "{word}: {ran:?}");
    }
    writer.finish().assert(0);
    let fsck = store.wrapped(&["fsck", "--reason", "check"], UNTIL_EOF);
    let ran = store.run(["status"]).assert(75);
    assert!(ran.out.contains(": exclusive, 0 writers, generation 1"), "{ran:?}");
    fsck.finish().assert(0);
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let store = Store::new();
    for words in [["status", "--watch"], ["status", "--json"]] {
        let mut child = store.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

#[test]
fn watching_looks_again_until_ctrl_c() {
    let store = Store::new();
    let mut watch = store.start(["status", "--watch"]);
    watch.until_out("0 writers");
    let writer = store.wrapped(&["run"], UNTIL_EOF);
    watch.until_out("1 writer");
    watch.signal(Signal::SIGINT);
    let ran = watch.finish().assert(0);
    // Not a terminal, so nothing is redrawn.
    assert!(!ran.out.contains('\u{1b}'), "{ran:?}");
    let mut watch = store.start(["status", "--watch", "--json"]);
    watch.until_out("\n");
    watch.signal(Signal::SIGTERM);
    let ran = watch.finish().assert(143);
    for line in ran.out.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    writer.finish().assert(0);
}

#[test]
fn a_user_who_may_only_read_may_look() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options = Options { auth: true, ..Options::default() };
    let server = runtime.block_on(Mongod::start(options));
    let command = |user: &str, words: &[&str]| {
        let mut command = program(words);
        let url = format!("mongodb://{user}@{}/shop?authSource=admin", server.address());
        command.env("LOCKHOUSE_STORE", url);
        command.env("LOCKHOUSE_REFRESH_INTERVAL", "500ms");
        Running::start(command)
    };
    runtime.block_on(async {
        let admin = server.client().await.database("admin");
        for (user, role) in [("reader", "read"), ("writer", "readWrite")] {
            let role = doc! { "role": role, "db": "shop" };
            let user = doc! { "createUser": user, "pwd": "s3cr3t-word", "roles": [role] };
            admin.run_command(user).await.unwrap();
        }
    });
    let (reader, writer) = ("reader:s3cr3t-word", "writer:s3cr3t-word");
    command(writer, &["init"]).finish().assert(0);
    let mut held = command(writer, &["run", "--", "sh", "-c", "echo started; exec sleep 300"]);
    held.until_out("started");
    for words in
        [&["status"][..], &["status", "--json"], &["history"], &["prune", "--dry-run"], &["clear", "--dry-run"]]
    {
        command(reader, words).finish().assert(0);
    }
    let mut all = String::new();
    for words in [
        &["-vvv", "run", "--", "true"][..],
        &["-vvv", "--json", "run", "--", "true"],
        &["-vvv", "prune"],
        &["init", "--json"],
    ] {
        let ran = command(reader, words).finish();
        if !words.contains(&"init") {
            assert!(ran.code == 77, "{words:?}: {ran:?}");
        }
        all.push_str(&ran.out);
        all.push_str(&ran.err);
    }
    let ran = command("reader:wrong-s3cr3t-word", &["-vvv", "status"]).finish();
    assert_eq!(ran.code, 77, "{ran:?}");
    all.push_str(&ran.err);
    assert!(!all.contains("s3cr3t"), "{all}");
}
