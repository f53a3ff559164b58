//! Killed at each step: no partial batch is ever in `incoming/`, nothing is lost that was said to be published, nothing is
//! applied twice, and what is left lies in `tmp/` until somebody collects it.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use lockhouse::owner::Ingestor;

use crate::raw::Raw;
use crate::{Store, assert_clean, notes, probe, rounds};

/// Each point of publishing one batch of two files, with how often it is come to.
const PUBLISHING: &[(&str, u32)] = &[
    ("presence-created", 0),
    ("presence-locked", 0),
    ("presence-published", 0),
    ("batch-directory-made", 1),
    ("batch-file-created", 2),
    ("batch-file-written", 2),
    ("batch-file-synced", 2),
    ("batch-manifest-created", 1),
    ("batch-manifest-written", 1),
    ("batch-manifest-synced", 1),
    ("batch-directory-synced", 1),
    ("batch-published", 1),
    ("incoming-synced", 1),
];
const APPLYING: &[&str] = &["batch-loaded", "records-committed", "batch-applied", "batch-trashed"];
const FAILING: &[&str] = &["records-committed", "failure-recorded", "batch-failed", "failure-explained"];
const RETRYING: &[&str] = &["batch-directory-synced", "batch-published", "incoming-synced", "failed-republished"];
const BATCHES: u32 = 3;

/// A list that lacks a point would pass and prove less.
#[test]
fn every_point_is_tried() {
    let tried: BTreeSet<&str> =
        PUBLISHING.iter().map(|(point, _)| *point).chain([APPLYING, FAILING, RETRYING].concat()).collect();
    for folder in ["src/spool", "src/owner/ingest"] {
        for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
            let path = file.unwrap().path();
            if !path.is_file() {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for point in text.split("crash::point(\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
                assert!(tried.contains(point), "{point} of {} is not tried", path.display());
            }
        }
    }
}

fn killed(role: &str, store: &Store, at: &str) -> Vec<String> {
    let output = probe::run(role, &store.path(), Some(at));
    assert_eq!(output.status.signal(), Some(9), "{role} did not come to {at}: {output:?}");
    probe::said(&output)
}

#[test]
fn a_producer_that_is_killed_at_any_step_leaves_whole_batches_or_none() {
    for (point, in_each) in PUBLISHING {
        for time in 1..=(in_each * BATCHES).max(1) {
            let at = format!("{point}:{time}");
            let store = Store::new();
            let said = killed(&format!("publish {BATCHES}"), &store, &at);
            let published: BTreeSet<&str> = said.iter().map(|line| line.strip_prefix("published ").unwrap()).collect();
            let incoming = store.list("incoming");
            assert!(!store.list("tmp").is_empty(), "{at}: the killed producer's presence at least is left");

            let mut target = store.target();
            let mut ingestor = Ingestor::new(&store.spool);
            let round = rounds(&mut ingestor, &mut target);
            assert_clean(&round);
            let applied: BTreeSet<&str> = round.applied.iter().map(|applied| applied.name.id()).collect();
            assert!(applied.is_superset(&published), "{at}: {published:?} were published, {applied:?} applied");
            assert!(applied.len() <= published.len() + 1 && applied.len() == incoming.len(), "{at}: {incoming:?}");
            let wanted: Vec<String> = (1..=applied.len()).flat_map(|n| [format!("{n}a"), format!("{n}b")]).collect();
            assert_eq!(notes(&target), wanted, "{at}");
            assert_eq!(store.list("tmp"), BTreeSet::new(), "{at}: what a dead producer left is collected");
        }
    }
}

#[test]
fn an_owner_that_is_killed_at_any_step_applies_each_batch_once() {
    for point in APPLYING {
        for time in 1..=BATCHES {
            let at = format!("{point}:{time}");
            let store = Store::new();
            let output = probe::run(&format!("publish {BATCHES}"), &store.path(), None);
            assert_eq!(probe::said(&output).len(), 3, "{output:?}");
            drop(store.target());
            killed("ingest", &store, &at);
            // And the next one at the same step, at its first batch.
            probe::run("ingest", &store.path(), Some(point));

            let mut target = store.target();
            assert_clean(&rounds(&mut Ingestor::new(&store.spool), &mut target));
            assert_eq!(notes(&target), ["1a", "1b", "2a", "2b", "3a", "3b"], "{at}");
            assert_eq!((store.list("incoming"), store.list("failed")), Default::default(), "{at}");
            rounds(&mut Ingestor::new(&store.spool), &mut target);
            assert_eq!(store.list("trash"), BTreeSet::new(), "{at}");
        }
    }
}

#[test]
fn an_owner_that_is_killed_while_it_gives_a_batch_up_loses_nothing_of_it() {
    for point in FAILING {
        let store = Store::new();
        let poisoned = Raw::new("a", 1);
        poisoned.put_changed(&store, |manifest| manifest["entries"][0]["rows"] = 7.into());
        Raw::new("a", 2).put(&store);
        drop(store.target());
        killed("ingest", &store, point);

        let mut target = store.target();
        let round = rounds(&mut Ingestor::new(&store.spool), &mut target);
        assert_eq!(round.backlog, 0, "{point}: {round:?}");
        assert_eq!(notes(&target), ["a.2"], "{point}");
        let failed = store.failed().list().unwrap();
        assert_eq!(failed.len(), 1, "{point}: {failed:?}");
        assert_eq!(failed[0].name.as_ref().unwrap().id(), "a.1", "{point}");
        assert!(store.spool.path().join("failed").join(&failed[0].file).join("rows").exists(), "{point}");
        if *point != "batch-failed" {
            assert!(failed[0].reason.as_ref().unwrap().error.contains("manifest.json says 7"), "{point}: {failed:?}");
        }
    }
}

#[test]
fn a_retry_that_is_killed_at_any_step_applies_the_batch_once() {
    for point in RETRYING {
        let store = Store::new();
        let mut target = store.target();
        let path = Raw::new("a", 1).put(&store);
        std::fs::rename(&path, store.spool.path().join("failed").join(path.file_name().unwrap())).unwrap();
        killed("retry", &store, point);
        let again = probe::run("retry", &store.path(), None);
        assert!(again.status.success(), "{again:?}");
        assert_clean(&rounds(&mut Ingestor::new(&store.spool), &mut target));
        assert_eq!(notes(&target), ["a.1"], "{point}");
        assert_eq!(store.list("failed"), BTreeSet::new(), "{point}");
    }
}
