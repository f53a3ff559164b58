//! `records append`.

use std::io::Write;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::pty::Pty;
use super::support::poll::eventually_blocking;
use super::support::running::PATIENCE;
use super::{Store, lines, numbers};

#[test]
fn rows_come_out_as_they_went_in_and_the_schema_is_kept() {
    let store = Store::new();
    let rows = "{\"id\":1,\"item\":\"lamp\",\"price\":9.5}\n\n{\"id\":2,\"item\":\"désk\",\"big\":9007199254740993}\n";
    let ran = store.feed(&["records", "append", "s", "--kind", "order", "--key", "id"], rows).assert(0);
    assert_eq!(ran.out, "stream s: 2 rows stored (seqs 1 to 2), 0 skipped, 0 replaced\n");
    assert!(ran.err.contains("kind order is new") && ran.err.contains("\"key\":[\"id\"]"), "{ran:?}");
    let scanned = store.run(&["records", "scan", "s"]).assert(0);
    assert_eq!(scanned.out, rows.replace("\n\n", "\n"));
    // The schema is there now: nothing is said, a key that is there is skipped, another key is refused.
    let ran = store.feed(&["records", "append", "s", "--kind", "order"], "{\"id\":1}\n{\"id\":3}\n").assert(0);
    assert_eq!(
        (ran.out.as_str(), ran.err.as_str()),
        ("stream s: 1 rows stored (seqs 3 to 3), 1 skipped, 0 replaced\n", "")
    );
    store
        .feed(&["records", "append", "s", "--kind", "order", "--key", "item"], "{\"id\":4}\n")
        .assert(78)
        .says("--key");
}

#[test]
fn a_schema_in_a_file_says_what_rows_are() {
    let store = Store::new();
    let definition = r#"{"kind":"k","columns":[{"name":"n","type":"integer"}],"key":["n"],"on_conflict":"replace"}"#;
    let schema = store.write("schema.json", definition);
    let append = ["records", "append", "s", "--schema", &schema];
    store.feed(&append, &numbers(0..3)).assert(0);
    let ran = store.feed(&append, &numbers(2..4)).assert(0);
    assert!(ran.out.contains("2 rows stored") && ran.out.contains("1 replaced"), "{ran:?}");
    // Wider by an optional column.
    let wider = definition.replace("}],", "},{\"name\":\"t\",\"type\":\"text\",\"optional\":true}],");
    let wider = store.write("wider.json", &wider);
    store.feed(&["records", "append", "s", "--schema", &wider], "{\"n\":9,\"t\":\"x\"}\n").assert(0);
    let kinds = lines(&store.run(&["records", "kinds", "--json"]).assert(0).out);
    assert_eq!(kinds[0]["definition"]["columns"][1]["name"], "t");
    // What `kinds` prints is what --schema takes.
    let again = store.write("again.json", &kinds[0]["definition"].to_string());
    store.feed(&["records", "append", "s", "--schema", &again], "{\"n\":10}\n").assert(0);
    store
        .feed(&["records", "append", "s", "--schema", &again, "--kind", "other"], "")
        .assert(64)
        .says("--kind says other");
    let broken = store.write("broken.json", "{\"kind\":\"k\"}");
    store.feed(&["records", "append", "s", "--schema", &broken], "").assert(64).says("columns");
    store.feed(&["records", "append", "s"], "").assert(64).says("--kind");
}

#[test]
fn a_bad_row_is_named_and_nothing_of_its_batch_is_stored() {
    let store = Store::new();
    let schema = r#"{"kind":"k","columns":[{"name":"n","type":"integer"},{"name":"t","type":"text","optional":true}],"key":["n"]}"#;
    let schema = store.write("schema.json", schema);
    store.feed(&["records", "append", "sealed", "--schema", &schema, "--seal"], &numbers(0..1)).assert(0);
    let good = "{\"n\":1}\n{\"n\":2}\n\n";
    for (bad, kind, line, column) in [
        ("[1]", "not_a_row", 4, None),
        ("{\"n\":1", "not_a_row", 4, None),
        ("{\"n\":99999999999999999999}", "does_not_fit", 4, Some("n")),
        ("{\"n\":\"3\"}", "wrong_type", 4, Some("n")),
        ("{\"t\":\"x\"}", "missing_column", 4, Some("n")),
        ("{\"n\":3,\"u\":1}", "unknown_column", 4, Some("u")),
        ("{\"n\":1,\"t\":\"again\"}", "duplicate_key", 4, Some("n")),
    ] {
        let ran =
            store.feed(&["records", "append", "s", "--kind", "k", "--json"], &format!("{good}{bad}\n")).assert(78);
        let error = ran.error()["error"].clone();
        let refusal = &error["refusal"];
        let place = (&refusal["kind"], &refusal["row"], refusal["column"].as_str(), &refusal["stream"], &refusal["of"]);
        assert_eq!(place, (&json!(kind), &json!(line), column, &json!("s"), &json!("k")), "{error}");
        assert!(error["message"].as_str().unwrap().contains("row 4"), "{error}");
        assert_eq!(ran.out, "");
        store.run(&["records", "meta", "s"]).assert(78).says("no stream s");
    }
    let text = store.feed(&["records", "append", "s", "--kind", "k"], &format!("{good}{{\"n\":\"3\"}}\n")).assert(78);
    for part in ["store ", "stream s, kind k, row 4, column n", "append from line 1 on"] {
        assert!(text.err.contains(part), "{part}: {text:?}");
    }
    store.feed(&["records", "append", "sealed", "--kind", "k"], "{\"n\":5}\n").assert(78).says("sealed");
    store.feed(&["records", "append", "s", "--kind", "1k"], "").assert(64).says("no name of a kind");
    store.feed(&["records", "append", "a/b", "--kind", "k"], "").assert(64).says("no name of a stream");
    store.feed(&["records", "append", "s", "--kind", "k", "--ttl", "0"], "{\"n\":5}\n").assert(78).says("time to live");
    store
        .feed(&["records", "append", "s", "--kind", "k", "--generation", "7"], "{\"n\":5}\n")
        .assert(78)
        .says("no such stream");
    store.run(&["records", "append", "s", "--kind", "k", "/no/such/file"]).assert(64).says("/no/such/file");
    store.run(&["records", "append", "s", "--kind", "k", "--wait", "1s", "--no-wait"]).assert(64);
    let mongo = super::program(["--store", "mongodb://h/d", "records", "streams"]);
    super::Running::start(mongo).finish().assert(64).says("only a local store");
    assert_eq!(store.rows("sealed").len(), 1);
    store.run(&["records", "meta", "s"]).assert(78);
}

#[test]
fn a_long_input_shows_progress_and_comes_out_whole() {
    const ROWS: u64 = 100_000;
    let store = Store::new();
    let begin = Instant::now();
    let path = store.directory().join("rows");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    for n in 0..ROWS {
        writeln!(file, "{{\"n\":{n},\"t\":\"the row of number {n}\"}}").unwrap();
    }
    file.into_inner().unwrap();
    // A terminal has a line that is drawn anew.
    let mut command = store.command(&["records", "append", "s", "--kind", "k", path.to_str().unwrap()]);
    command.env("TERM", "xterm");
    let mut on_terminal = Pty::spawn(command);
    on_terminal.expect("rows, ");
    on_terminal.expect(" %");
    on_terminal.expect("100,000 rows stored");
    assert!(on_terminal.wait().success());
    let ran = store.run(&["records", "scan", "s"]).assert(0);
    assert_eq!(ran.out.lines().count() as u64, ROWS);
    assert!(ran.out.ends_with("{\"n\":99999,\"t\":\"the row of number 99999\"}\n"));
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn elsewhere_than_on_a_terminal_progress_is_told_at_growing_intervals() {
    let store = Store::new();
    let mut appending = store.start(&["records", "append", "s", "--kind", "k", "--json"]);
    appending.feed(&numbers(0..3));
    appending.until_err("\"event\":\"progress\"");
    appending.feed(&numbers(3..5));
    let ran = appending.finish().assert(0);
    let progress: Vec<_> = ran.events().into_iter().filter(|event| event["event"] == "progress").collect();
    for field in ["rows", "bytes", "elapsed_ms"] {
        assert!(progress[0][field].is_u64(), "{progress:?}");
    }
    assert_eq!(progress[0]["rows"], 3, "what waits for more input is handed over as it is");
    assert_eq!(ran.json()["stored"], 5);
}

#[test]
fn a_pipe_that_goes_on_is_stored_as_it_comes() {
    let store = Store::new();
    let mut appending = store.start(&["records", "append", "s", "--kind", "k"]);
    appending.feed(&numbers(0..2));
    eventually_blocking(PATIENCE, "the first rows", || {
        let ran = store.run(&["records", "scan", "s"]);
        if ran.out == numbers(0..2) { Ok(()) } else { Err(ran) }
    });
    appending.feed(&numbers(2..3));
    appending.signal(Signal::SIGTERM);
    let ran = appending.finish().assert(128 + 15);
    assert!(ran.err.contains("ended by SIGTERM"), "{ran:?}");
    assert!(store.rows("s").len() >= 2);
}

#[test]
fn seal_goes_with_the_last_rows_and_works_without_any() {
    let store = Store::new();
    let append = ["records", "append", "s", "--kind", "k", "--seal"];
    store.feed(&append, "").assert(78).says("no such stream");
    let ran = store.feed(&append, &numbers(0..2)).assert(0);
    assert!(ran.out.ends_with("sealed\n"), "{ran:?}");
    store.run(&["records", "reopen", "s"]).assert(0);
    store.feed(&append, "").assert(0);
    assert_eq!(lines(&store.run(&["records", "meta", "s", "--json"]).out)[0]["sealed"], true);
    // Nothing to append is nothing to do.
    let ran = store.feed(&["records", "append", "s", "--kind", "k"], "\n").assert(0);
    assert!(ran.out.contains("0 rows stored"), "{ran:?}");
}

#[test]
fn who_does_not_wait_learns_later() {
    let store = Store::new();
    let serving = store.serve(&[]);
    serving.signal(Signal::SIGSTOP);
    let ran = store.feed(&["records", "append", "s", "--kind", "k", "--no-wait"], &numbers(0..2)).assert(0);
    let id = ran.out.trim().to_owned();
    assert_eq!(ran.out.lines().count(), 1);
    let ran = store.run(&["records", "await", &id, "--wait", "300ms"]).assert(79);
    assert!(ran.err.contains(&format!("records await {id}")) && ran.err.contains("pid "), "{ran:?}");
    let begin = Instant::now();
    let append = ["records", "append", "s", "--kind", "k", "--wait", "500ms", "--json"];
    let ran = store.feed(&append, &numbers(2..4)).assert(79);
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    let error = ran.error()["error"].clone();
    assert_eq!(error["kind"], "Pending");
    assert_eq!(error["batch_id"], ran.json()["pending"][0], "{ran:?}");
    serving.signal(Signal::SIGCONT);
    let ran = store.run(&["records", "await", error["batch_id"].as_str().unwrap()]).assert(0);
    assert!(ran.out.contains("2 rows stored"), "{ran:?}");
    store.run(&["records", "await", &id]).assert(0);
    store.run(&["records", "await", "never-was"]).assert(78).says("never-was");
    assert_eq!(store.rows("s").len(), 4);
}
