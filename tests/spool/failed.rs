//! What lies in `failed/`: seen, shown, dropped, and brought back.

use std::io::{self, BufRead, Write};

use lockhouse::ErrorKind;
use lockhouse::owner::Ingestor;
use lockhouse::records::{BatchOutcome, Source};
use lockhouse::spool::{Budget, Format, Formats, Ndjson, Producer, TakeRow};

use crate::raw::Raw;
use crate::{Store, assert_clean, batch, notes, rounds};

/// A format that only a newer build knows.
#[derive(Debug)]
struct Newer;

impl Format for Newer {
    fn name(&self) -> &str {
        "newer"
    }

    fn encode(&self, rows: &mut dyn Iterator<Item = Vec<u8>>, to: &mut dyn Write) -> io::Result<()> {
        Ndjson.encode(rows, to)
    }

    fn decode(&self, from: &mut dyn BufRead, budget: &mut Budget, row: TakeRow<'_>) -> io::Result<()> {
        Ndjson.decode(from, budget, row)
    }
}

fn newer() -> Formats {
    let mut formats = Formats::default();
    formats.register(Newer);
    formats
}

#[test]
fn a_newer_build_retries_what_an_older_one_could_not_read() {
    let store = Store::new();
    let mut target = store.target();
    let producer = Producer::with_formats(&store.spool, "2.0", newer());
    let first = producer.publish(&batch(&["one"]), "newer").unwrap();
    producer.publish(&batch(&["two"]), "ndjson").unwrap();
    let old = rounds(&mut Ingestor::new(&store.spool), &mut target);
    assert!(old.failed[0].error.contains("the format newer, and this build reads ndjson, ndjson.gz"), "{old:?}");
    assert!(matches!(target.batch_outcome(first.id()).unwrap(), Some(BatchOutcome::Failed { .. })));
    assert_eq!(notes(&target), ["two"]);

    let failed = store.failed();
    let there = failed.find(first.id().as_ref()).unwrap().unwrap();
    let error = failed.show(&there, &Formats::default()).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("retry it with a build"), "{error}");
    assert!(failed.retry(&there, &producer, &Formats::default(), "ndjson").is_err());
    assert_eq!(failed.list().unwrap().len(), 1, "what cannot be retried stays");

    let again = failed.retry(&there, &producer, &newer(), "ndjson").unwrap();
    assert_ne!(again.id(), first.id());
    assert_eq!(failed.list().unwrap(), []);
    let round = rounds(&mut Ingestor::new(&store.spool).formats(newer()), &mut target);
    assert_clean(&round);
    assert_eq!(notes(&target), ["two", "one"]);
}

#[test]
fn what_stood_in_the_way_of_a_name_does_not_hinder_a_retry() {
    let store = Store::new();
    let mut target = store.target();
    let path = Raw::new("a", 1).put(&store);
    let name = path.file_name().unwrap();
    std::fs::create_dir(store.spool.path().join("failed").join(name)).unwrap();
    // Late, and so moved to where its name is taken.
    Raw::new("a", 2).put(&store);
    std::fs::rename(&path, store.directory().join("away")).unwrap();
    let clock = lockhouse::clock::ManualClock::new();
    let mut ingestor = Ingestor::new(&store.spool).clock(std::sync::Arc::new(clock.clone()));
    rounds(&mut ingestor, &mut target);
    clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(rounds(&mut ingestor, &mut target).skipped.len(), 1);
    std::fs::rename(store.directory().join("away"), &path).unwrap();
    assert_eq!(rounds(&mut ingestor, &mut target).failed.len(), 1);

    let failed = store.failed();
    let list = failed.list().unwrap();
    assert_eq!(list.len(), 2, "{list:?}");
    assert!(list[0].reason.is_none() && list[1].reason.as_ref().unwrap().error.contains("late"), "{list:?}");
    let producer = Producer::new(&store.spool, "");
    failed.retry(&list[1], &producer, &Formats::default(), "ndjson.gz").unwrap();
    assert_clean(&rounds(&mut ingestor, &mut target));
    assert_eq!(notes(&target), ["a.2", "a.1"]);
    failed.drop(&list[0]).unwrap();
    failed.drop(&list[0]).unwrap();
    assert_eq!(store.list("failed").len(), 0);
}
