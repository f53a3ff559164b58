//! Batches that cannot be applied: passed over, recorded and visible, or in their producer's way until somebody says.

use std::sync::Arc;
use std::time::Duration;

use lockhouse::clock::ManualClock;
use lockhouse::owner::{Cause, Ingestor, OnPoison};
use lockhouse::records::{BatchOutcome, Source};

use crate::faulty::{Fault, Faulty};
use crate::raw::Raw;
use crate::{Store, applied, assert_clean, notes, rounds};

fn poisoned(store: &Store, instance: &str, seq: u64) {
    Raw::new(instance, seq).put_changed(store, |manifest| manifest["entries"][0]["sha256"] = "00".into());
}

#[test]
fn poison_at_the_head_is_passed_over_recorded_and_visible() {
    let store = Store::new();
    let mut target = store.target();
    poisoned(&store, "a", 1);
    Raw::new("a", 2).put(&store);
    Raw::new("b", 1).put(&store);
    let round = rounds(&mut Ingestor::new(&store.spool), &mut target);
    assert_eq!(round.failed[0].name.as_ref().unwrap().id(), "a.1");
    assert!(round.failed[0].error.contains("rows is damaged"), "{round:?}");
    assert_eq!(applied(&round), ["b.1", "a.2"]);
    assert!(matches!(target.batch_outcome("a.1").unwrap(), Some(BatchOutcome::Failed { .. })));
    assert_eq!(target.producer_seq("a").unwrap(), 2);
}

#[test]
fn a_producer_is_halted_at_its_poison_until_somebody_gives_it_up() {
    let (store, clock) = (Store::new(), ManualClock::new());
    let mut target = store.target();
    let mut ingestor = Ingestor::new(&store.spool).on_poison(OnPoison::Stop).clock(Arc::new(clock.clone()));
    Raw::new("a", 1).put(&store);
    poisoned(&store, "a", 2);
    Raw::new("a", 3).put(&store);
    Raw::new("b", 1).put(&store);
    let first = rounds(&mut ingestor, &mut target);
    assert_eq!(applied(&first), ["a.1", "b.1"]);
    let waiting = &first.waiting[0];
    assert_eq!((waiting.instance.as_str(), waiting.seq), ("a", 2));
    assert!(matches!(&waiting.cause, Cause::Stopped(why) if why.contains("damaged")), "{first:?}");
    assert_eq!(first.backlog, 2);
    // However long it takes, and by another owner as well.
    clock.advance(Duration::from_secs(86_400));
    for ingestor in [&mut ingestor, &mut Ingestor::new(&store.spool).on_poison(OnPoison::Stop)] {
        let still = rounds(ingestor, &mut target);
        assert!(still.applied.is_empty() && still.failed.is_empty(), "{still:?}");
        assert_eq!((still.waiting[0].seq, still.backlog), (2, 2));
    }
    assert!(!ingestor.give_up("a.3") && !ingestor.give_up("nothing"));
    assert!(ingestor.give_up("a.2"));
    let last = rounds(&mut ingestor, &mut target);
    assert!(last.failed[0].error.contains("given up: rows is damaged"), "{last:?}");
    assert_eq!(applied(&last), ["a.3"]);
    assert_eq!(store.failed().list().unwrap().len(), 1);
}

#[test]
fn a_halted_producer_goes_on_once_its_batch_is_mended() {
    let (store, clock) = (Store::new(), ManualClock::new());
    let mut target = store.target();
    let mut ingestor = Ingestor::new(&store.spool).on_poison(OnPoison::Stop).clock(Arc::new(clock.clone()));
    poisoned(&store, "a", 1);
    assert_eq!(rounds(&mut ingestor, &mut target).waiting.len(), 1);
    let raw = Raw::new("a", 1);
    std::fs::write(store.incoming().join(raw.name()).join("manifest.json"), raw.manifest().to_string()).unwrap();
    clock.advance(Duration::from_secs(60));
    assert_clean(&rounds(&mut ingestor, &mut target));
    assert_eq!(notes(&target), ["a.1"]);
}

#[test]
fn what_is_wrong_with_one_batch_is_tried_for_a_while_and_holds_its_producer_alone() {
    let (store, clock) = (Store::new(), ManualClock::new());
    let mut target = Faulty::new(store.target());
    target.batches.insert("a.1".to_owned(), Fault::Batch("it does not fit"));
    let mut ingestor = Ingestor::new(&store.spool).clock(Arc::new(clock.clone()));
    Raw::new("a", 1).put(&store);
    Raw::new("a", 2).put(&store);
    Raw::new("b", 1).put(&store);
    let first = rounds(&mut ingestor, &mut target);
    assert_eq!(applied(&first), ["b.1"]);
    assert!(matches!(&first.waiting[0].cause, Cause::Retrying(why) if why == "it does not fit"), "{first:?}");
    let (mut waited, mut last) = (Duration::ZERO, first);
    while last.failed.is_empty() {
        let until = last.waiting[0].until;
        waited = until.since(lockhouse::clock::Moment::ORIGIN);
        assert!(last.applied.is_empty() || waited < Duration::from_secs(1), "{last:?}");
        clock.advance_to(until);
        last = rounds(&mut ingestor, &mut target);
    }
    assert_eq!(target.tries, 20 + 2, "twenty for a.1, one each for the others");
    assert!(waited <= Duration::from_secs(600), "{waited:?}");
    assert!(last.failed[0].error.contains("after 20 attempts: it does not fit"), "{last:?}");
    assert_eq!(applied(&last), ["a.2"]);
}

#[test]
fn a_batch_that_fits_after_all_is_applied_in_its_place() {
    let (store, clock) = (Store::new(), ManualClock::new());
    let mut target = Faulty::new(store.target());
    target.batches.insert("a.1".to_owned(), Fault::Batch("it does not fit"));
    let mut ingestor = Ingestor::new(&store.spool).clock(Arc::new(clock.clone()));
    Raw::new("a", 1).put(&store);
    Raw::new("a", 2).put(&store);
    let waiting = rounds(&mut ingestor, &mut target).waiting;
    target.batches.clear();
    clock.advance_to(waiting[0].until);
    assert_clean(&rounds(&mut ingestor, &mut target));
    assert_eq!(notes(&target), ["a.1", "a.2"]);
}
