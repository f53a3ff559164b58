//! What is in `incoming/`, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use lockhouse::owner::Ingestor;
use lockhouse::records::{BatchOutcome, Entry, Operation, Outcome};
use lockhouse::spool::{Formats, NewBatch, Producer, Spool, Taken};
use lockhouse::{Error, ErrorKind};

use crate::{Store, append, applied, assert_clean, batch, notes, probe, rounds, schema, stream};

#[test]
fn a_published_batch_is_private_whole_and_as_described() {
    let store = Store::new();
    let producer = Producer::new(&store.spool, "1.2");
    let name = producer.publish(&batch(&["ü", "two"]), "ndjson").unwrap();
    assert_eq!((name.instance(), name.seq()), (producer.instance().as_str(), 1));
    let at = store.incoming().join(name.to_string());
    assert_eq!(std::fs::read_to_string(at.join("1.ndjson")).unwrap(), "{\"text\":\"ü\"}\n{\"text\":\"two\"}\n");
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(at.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["producer"]["build"], "1.2");
    assert_eq!(manifest["entries"][0]["rows"], 2);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&at), mode(&at.join("1.ndjson")), mode(&at.join("manifest.json"))), (0o700, 0o600, 0o600));
    for part in ["", "tmp", "incoming", "failed", "trash"] {
        assert_eq!(mode(&store.spool.path().join(part)), 0o700, "{part}");
    }
    assert_eq!(store.list("tmp"), BTreeSet::from([format!("{}.alive", producer.instance())]));
    drop(producer);
    assert_eq!(store.list("tmp"), BTreeSet::new(), "its presence goes with it");
}

#[test]
fn every_operation_comes_through_as_it_is() {
    let store = Store::new();
    let producer = Producer::new(&store.spool, "");
    let entry = |generation, operation| Entry { stream: stream(), generation, operation };
    let ttl = Duration::from_nanos(86_400_000_000_001);
    let entries = vec![
        append(&["a", "b"]),
        entry(Some(1), Operation::Trim { before: 2 }),
        entry(None, Operation::Expire { ttl }),
        entry(None, Operation::Seal),
        append(&["refused"]),
        entry(None, Operation::Reopen),
        Entry {
            stream: stream(),
            generation: Some(1),
            operation: Operation::Append {
                kind: "note".parse().unwrap(),
                rows: vec![crate::note("c")],
                ttl: Some(ttl),
                seal: true,
            },
        },
    ];
    let mut target = store.target();
    for format in ["ndjson", "ndjson.gz"] {
        let new = NewBatch::new(vec![schema()], entries.clone());
        let name = producer.publish(&new, format).unwrap();
        let loaded = store.failed();
        // Moved by hand to where batches can be looked into.
        std::fs::rename(
            store.incoming().join(name.to_string()),
            store.spool.path().join("failed").join(name.to_string()),
        )
        .unwrap();
        let there = loaded.find(name.id().as_ref()).unwrap().unwrap();
        let batch = loaded.show(&there, &Formats::default()).unwrap();
        assert_eq!((batch.entries, batch.schemas), (new.entries, new.schemas), "{format}");
        loaded.drop(&there).unwrap();
    }
    let producer = Producer::new(&store.spool, "");
    producer.publish(&NewBatch::new(vec![schema()], entries), "ndjson").unwrap();
    let round = rounds(&mut Ingestor::new(&store.spool), &mut target);
    let BatchOutcome::Applied { entries, .. } = &round.applied[0].outcome else { panic!("{round:?}") };
    let refused: Vec<bool> = entries.iter().map(|entry| matches!(entry, Outcome::Refused(_))).collect();
    assert_eq!(refused, [false, false, false, false, true, false, false], "{entries:?}");
    assert_eq!(notes(&target), ["b", "c"]);
}

#[test]
fn what_is_over_the_limits_is_refused_before_anything_is_published() {
    let store = Store::new();
    let producer = Producer::new(&store.spool, "");
    let invalid = |batch: &NewBatch, format: &str, what: &str| {
        let error = producer.publish(batch, format).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(what), "{error}");
    };
    invalid(&NewBatch { id: "../x".to_owned(), ..batch(&["a"]) }, "ndjson", "no id of a batch");
    invalid(&batch(&["a"]), "parquet", "no format that this build writes: ndjson, ndjson.gz");
    invalid(&NewBatch::new(vec![], vec![append(&["a"])]), "ndjson", "no schema of it");
    let seal = Entry { stream: stream(), generation: None, operation: Operation::Seal };
    invalid(&NewBatch::new(vec![], vec![seal.clone(); 10_001]), "ndjson", "10001 entries");
    let long = Entry { stream: "s".repeat(200).parse().unwrap(), ..seal };
    invalid(&NewBatch::new(vec![], vec![long; 10_000]), "ndjson", "the manifest of a batch");
    let forever = Entry { operation: Operation::Expire { ttl: Duration::MAX }, ..append(&[]) };
    invalid(&NewBatch::new(vec![], vec![forever]), "ndjson", "longer than can be written");
    assert_eq!(store.list("incoming"), BTreeSet::new());
    assert_eq!(store.list("tmp").len(), 1, "nothing but its presence");
    assert_eq!(producer.publish(&batch(&["a"]), "ndjson").unwrap().seq(), 1, "no place was used up");
}

#[test]
fn direct_writes_and_published_ones_share_the_places_of_an_instance() {
    let store = Store::new();
    let mut target = store.target();
    let producer = Producer::new(&store.spool, "");
    producer.publish(&batch(&["one"]), "ndjson").unwrap();
    assert_clean(&rounds(&mut Ingestor::new(&store.spool), &mut target));
    let mut apply = |text: &str, fails: bool| {
        producer.directly(batch(&[text]), |batch| {
            if fails {
                return Taken::No(producer.publish_error());
            }
            use lockhouse::records::Target;
            let now = "2026-01-01T00:00:00Z".parse().unwrap();
            Taken::Yes((batch.seq, target.append_batch(&batch, now, &mut || Ok(())).unwrap()))
        })
    };
    assert!(apply("refused", true).is_err());
    assert_eq!(apply("two", false).unwrap().0, 2);
    assert_eq!(producer.publish(&batch(&["three"]), "ndjson").unwrap().seq(), 3);
    assert_clean(&rounds(&mut Ingestor::new(&store.spool), &mut target));
    assert_eq!(notes(&target), ["one", "two", "three"]);
}

/// Any error will do.
trait AnError {
    fn publish_error(&self) -> Error;
}

impl AnError for Producer {
    fn publish_error(&self) -> Error {
        Spool::open("/no/such/directory/p").unwrap_err()
    }
}

#[test]
fn threads_get_their_places_one_after_the_other() {
    let store = Store::new();
    let producer = Producer::new(&store.spool, "");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let producer = &producer;
            scope.spawn(move || {
                for n in 0..5 {
                    producer.publish(&batch(&[&format!("{thread}:{n}")]), "ndjson").unwrap();
                }
            });
        }
    });
    let mut target = store.target();
    let round = rounds(&mut Ingestor::new(&store.spool), &mut target);
    assert_clean(&round);
    let seqs: Vec<u64> = round.applied.iter().map(|applied| applied.name.seq()).collect();
    assert_eq!(seqs, (1..=20).collect::<Vec<_>>());
    let mut of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for note in notes(&target) {
        of.entry(note[..1].to_owned()).or_default().push(note);
    }
    assert!(of.values().all(|notes| notes.is_sorted() && notes.len() == 5), "{of:?}");
}

#[test]
fn a_spool_that_is_removed_or_replaced_is_made_anew() {
    let store = Store::new();
    let mut target = store.target();
    let producer = Producer::new(&store.spool, "");
    producer.publish(&batch(&["lost by hand"]), "ndjson").unwrap();
    std::fs::remove_dir_all(store.spool.path()).unwrap();
    let name = producer.publish(&batch(&["two"]), "ndjson").unwrap();
    assert!(store.incoming().join(name.to_string()).is_dir());
    std::fs::rename(store.spool.path(), store.directory().join("away")).unwrap();
    let third = producer.publish(&batch(&["three"]), "ndjson").unwrap();
    assert_eq!(third.seq(), 3);
    let round = rounds(&mut Ingestor::new(&store.spool), &mut target);
    assert_eq!((round.waiting[0].seq, applied(&round).len()), (1, 0), "the others are missing: {round:?}");
}

#[test]
fn a_spool_in_whose_place_is_something_else_is_refused() {
    let scratch = crate::support::scratch::Scratch::new("spool");
    let path = scratch.path().join("p");
    let spool = scratch.path().join("p.spool");
    std::fs::write(&spool, "").unwrap();
    assert_eq!(Spool::open(&path).unwrap_err().kind(), ErrorKind::Invalid);
    std::fs::remove_file(&spool).unwrap();
    std::fs::create_dir(scratch.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", &spool).unwrap();
    assert!(Spool::open(&path).is_err());
    std::fs::remove_file(&spool).unwrap();
    std::fs::create_dir(&spool).unwrap();
    std::fs::set_permissions(&spool, std::fs::Permissions::from_mode(0o707)).unwrap();
    let error = Spool::open(&path).unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("chmod 700"), "{error}");
}

/// A batch that is being written belongs to a process that lives: nobody takes it away.
#[test]
fn what_a_living_producer_has_in_tmp_stays_and_what_a_dead_one_left_goes() {
    let store = Store::new();
    let mut target = store.target();
    let producer = Producer::new(&store.spool, "");
    producer.publish(&batch(&["one"]), "ndjson").unwrap();
    let tmp = store.spool.path().join("tmp");
    let own = tmp.join(format!("{}-half", producer.instance()));
    let dead = tmp.join("deadbeef-half");
    for half in [&own, &dead] {
        std::fs::create_dir(half).unwrap();
        std::fs::write(half.join("1.ndjson"), "{").unwrap();
    }
    std::fs::write(tmp.join("deadbeef.alive"), "{}").unwrap();
    std::fs::write(tmp.join("README"), "no producer's").unwrap();
    assert_clean(&rounds(&mut Ingestor::new(&store.spool), &mut target));
    assert!(own.is_dir() && !dead.exists() && !tmp.join("deadbeef.alive").exists() && tmp.join("README").exists());
    drop(producer);
    assert_clean(&rounds(&mut Ingestor::new(&store.spool), &mut target));
    assert_eq!(store.list("tmp"), BTreeSet::from(["README".to_owned()]));
}

#[test]
fn a_forked_child_is_another_instance() {
    let store = Store::new();
    let mut target = store.target();
    let output = probe::run("fork", &store.path(), None);
    assert_eq!(probe::said(&output), ["child good", "parent 2", "presence true"], "{output:?}");
    assert_clean(&rounds(&mut Ingestor::new(&store.spool), &mut target));
    let mut all = notes(&target);
    all.sort();
    assert_eq!(all, ["child 1", "parent 1", "parent 2"]);
}
