//! Each batch once, in the order of its instance, whatever is seen when.

use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use lockhouse::clock::ManualClock;
use lockhouse::owner::{Cause, Ingestor};
use lockhouse::records::{BatchOutcome, Source};
use lockhouse::spool::{Gap, Listing};

use crate::faulty::Faulty;
use crate::raw::Raw;
use crate::{Store, applied, assert_clean, notes, round, rounds};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn replays_are_applied_once_and_thrown_away() {
    for replay in [&[1, 2, 1][..], &[1, 2, 3, 2], &[1, 1, 2, 2, 3, 1, 3]] {
        let store = Store::new();
        let mut target = store.target();
        let mut last = 0;
        for seq in replay {
            Raw::new("a", *seq).put(&store);
            Raw::new("b", *seq).put(&store);
            // One owner after the other: what the last one remembers must not be needed.
            let round = rounds(&mut Ingestor::new(&store.spool), &mut target);
            assert_clean(&round);
            assert_eq!(round.applied.len(), if *seq > last { 2 } else { 0 }, "{replay:?}: {round:?}");
            last = last.max(*seq);
        }
        let mut all = notes(&target);
        all.sort();
        let wanted: Vec<String> = ["a", "b"].iter().flat_map(|i| (1..=last).map(move |s| format!("{i}.{s}"))).collect();
        assert_eq!(all, wanted, "{replay:?}");
        assert_eq!(store.list("failed").len(), 0, "{replay:?}");
    }
}

#[test]
fn a_clock_that_steps_back_turns_nothing_round() {
    let store = Store::new();
    let start = 1_767_225_600_000_000_000;
    for (seq, hours) in [(1, 5), (2, 1), (3, 3), (4, -9)] {
        Raw::new("a", seq).created(start + hours * 3_600_000_000_000).put(&store);
        Raw::new("b", seq).created(start + seq.cast_signed()).put(&store);
    }
    let mut target = store.target();
    assert_clean(&rounds(&mut Ingestor::new(&store.spool), &mut target));
    for instance in ["a", "b"] {
        let mut of = notes(&target);
        of.retain(|note| note.starts_with(instance));
        assert_eq!(of, (1..=4).map(|seq| format!("{instance}.{seq}")).collect::<Vec<_>>());
    }
}

#[test]
fn a_gap_holds_its_producer_alone_for_a_minute_and_is_then_in_the_ledger() {
    let (store, clock) = (Store::new(), ManualClock::new());
    let mut target = store.target();
    let mut ingestor = Ingestor::new(&store.spool).clock(Arc::new(clock.clone()));
    for seq in [1, 2, 4, 5] {
        Raw::new("a", seq).put(&store);
    }
    Raw::new("b", 1).put(&store);
    let first = rounds(&mut ingestor, &mut target);
    assert_eq!(applied(&first), ["a.1", "b.1", "a.2"]);
    let waiting = &first.waiting[0];
    assert_eq!((waiting.instance.as_str(), waiting.seq, &waiting.cause), ("a", 3, &Cause::Missing));
    assert_eq!(first.backlog, 2);

    clock.advance(MINUTE - SECOND);
    Raw::new("b", 2).put(&store);
    assert_eq!(applied(&rounds(&mut ingestor, &mut target)), ["b.2"]);
    clock.advance(SECOND);
    let last = rounds(&mut ingestor, &mut target);
    assert_eq!(last.skipped.len(), 1, "{last:?}");
    let Gap { instance, from, to, .. } = &last.skipped[0];
    assert_eq!((instance.as_str(), *from, *to), ("a", 3, 3));
    assert_eq!(applied(&last), ["a.4", "a.5"]);
    assert_eq!(target.producer_seq("a").unwrap(), 5);

    // What comes after all is late: never applied, and not lost either.
    Raw::new("a", 3).put(&store);
    let late = rounds(&mut ingestor, &mut target);
    assert!(late.applied.is_empty() && late.failed[0].error.contains("late"), "{late:?}");
    assert!(matches!(target.batch_outcome("a.3").unwrap(), Some(BatchOutcome::Failed { .. })));
    assert_eq!(store.failed().list().unwrap().len(), 1);
}

#[test]
fn a_gap_that_closes_in_time_is_no_gap() {
    let (store, clock) = (Store::new(), ManualClock::new());
    let mut target = store.target();
    let mut ingestor = Ingestor::new(&store.spool).clock(Arc::new(clock.clone()));
    Raw::new("a", 2).put(&store);
    assert_eq!(rounds(&mut ingestor, &mut target).waiting.len(), 1);
    clock.advance(MINUTE - SECOND);
    Raw::new("a", 1).put(&store);
    assert_clean(&rounds(&mut ingestor, &mut target));
    assert_eq!(notes(&target), ["a.1", "a.2"]);
}

/// A counter that was lost begins at 1 again, under the same name only by a program that breaks the rules.
#[test]
fn a_producer_that_lost_its_counter_overwrites_nothing_and_loses_nothing() {
    let store = Store::new();
    let mut target = store.target();
    let mut ingestor = Ingestor::new(&store.spool);
    for seq in [1, 2] {
        Raw::new("a", seq).put(&store);
    }
    assert_clean(&rounds(&mut ingestor, &mut target));
    Raw::new("a", 1).id("another").put(&store);
    let round = rounds(&mut ingestor, &mut target);
    assert!(round.failed[0].error.contains("late") && round.applied.is_empty(), "{round:?}");
    assert_eq!(notes(&target), ["a.1", "a.2"]);
    assert_eq!(store.failed().list().unwrap()[0].name.as_ref().unwrap().id(), "another");
}

#[test]
fn an_id_that_the_ledger_knows_is_not_applied_under_another_seq() {
    let store = Store::new();
    let mut target = store.target();
    let mut ingestor = Ingestor::new(&store.spool);
    Raw::new("a", 1).id("same").put(&store);
    Raw::new("a", 2).id("same").put(&store);
    Raw::new("b", 1).id("same").put(&store);
    assert_clean(&rounds(&mut ingestor, &mut target));
    // Its place is taken all the same: what comes next does not wait for it.
    assert_eq!((target.producer_seq("a").unwrap(), target.producer_seq("b").unwrap()), (2, 1));
    Raw::new("a", 3).put(&store);
    Raw::new("b", 2).put(&store);
    assert_clean(&rounds(&mut Ingestor::new(&store.spool), &mut target));
    let mut all = notes(&target);
    all.sort();
    assert_eq!(all, ["a.1", "a.3", "b.2"]);
}

/// Shows what it is told to.
#[derive(Debug, Clone)]
struct Told(Arc<Mutex<Vec<Vec<OsString>>>>);

impl Listing for Told {
    fn names(&mut self) -> std::io::Result<Vec<OsString>> {
        let mut told = self.0.lock().unwrap();
        Ok(if told.len() > 1 { told.remove(0) } else { told[0].clone() })
    }
}

#[test]
fn what_one_listing_misses_is_looked_for_in_another_before_anything_is_passed() {
    let store = Store::new();
    let names: Vec<OsString> = (1..=4)
        .map(|seq| Raw::new("a", seq))
        .map(|raw| {
            raw.put(&store);
            raw.name().into()
        })
        .collect();
    let of = |seqs: &[usize]| seqs.iter().map(|seq| names[seq - 1].clone()).collect::<Vec<_>>();
    // The second listing shows what the first missed, and misses what the first showed.
    let told = Told(Arc::new(Mutex::new(vec![of(&[1, 3]), of(&[2, 4]), of(&[])])));
    let mut target = store.target();
    let mut ingestor = Ingestor::new(&store.spool).listing(told.clone());
    assert_eq!(applied(&round(&mut ingestor, &mut target)), ["a.1", "a.2", "a.3", "a.4"]);

    // Both miss it: nothing behind it is applied.
    let store = Store::new();
    (1..=4).for_each(|seq| drop(Raw::new("a", seq).put(&store)));
    let told = Told(Arc::new(Mutex::new(vec![of(&[1, 3]), of(&[1, 3, 4]), of(&[2, 3, 4])])));
    let mut target = store.target();
    let mut ingestor = Ingestor::new(&store.spool).listing(told);
    let first = round(&mut ingestor, &mut target);
    assert_eq!(applied(&first), ["a.1"]);
    assert_eq!((first.waiting[0].seq, &first.waiting[0].cause), (2, &Cause::Missing));
    assert_eq!(applied(&round(&mut ingestor, &mut target)), ["a.2", "a.3", "a.4"]);
    assert_eq!(notes(&target), ["a.1", "a.2", "a.3", "a.4"]);
}

const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn the_ledger_forgets_after_a_week_by_both_clocks_and_not_what_is_still_there() {
    let (store, clock) = (Store::new(), ManualClock::new());
    let wall = Arc::new(Mutex::new("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap()));
    let mut target = Faulty::new(store.target());
    let reads = Arc::clone(&wall);
    let mut ingestor = Ingestor::new(&store.spool).clock(Arc::new(clock.clone())).wall(move || *reads.lock().unwrap());
    let pass = |wall_days: u64, days: u64| {
        clock.advance(DAY * u32::try_from(days).unwrap());
        *wall.lock().unwrap() += Duration::from_secs(wall_days * 24 * 3600);
    };
    Raw::new("a", 1).put(&store);
    Raw::new("a", 2).put(&store);
    assert_clean(&rounds(&mut ingestor, &mut target));

    // A year passes for the wall clock, and six days for the machine.
    pass(365, 6);
    assert_clean(&rounds(&mut ingestor, &mut target));
    assert!(target.swept.is_empty() && target.batch_outcome("a.1").unwrap().is_some());

    // The batch is back in the directory, as after a crash of the machine, when the week is over.
    pass(1, 2);
    Raw::new("a", 1).put(&store);
    let round = rounds(&mut ingestor, &mut target);
    assert!(!target.swept.is_empty(), "{round:?}");
    assert_eq!(notes(&target), ["a.1", "a.2"]);
    assert_eq!(store.list("failed").len(), 0, "the ledger still knew it");
    pass(1, 1);
    assert_clean(&rounds(&mut ingestor, &mut target));
    assert_eq!(target.batch_outcome("a.1").unwrap(), None);
    assert_eq!(target.producer_seq("a").unwrap(), 2, "how far an instance came outlives the rows");
}

#[test]
fn what_a_listing_still_shows_is_not_forgotten() {
    let (store, clock) = (Store::new(), ManualClock::new());
    let mut target = store.target();
    let [first, second] = [1, 2].map(|seq| Raw::new("a", seq));
    first.put(&store);
    second.put(&store);
    let names = [&first, &second].map(|raw| OsString::from(raw.name()));
    let told = Told(Arc::new(Mutex::new(vec![names.to_vec(), names[..1].to_vec()])));
    let mut ingestor = Ingestor::new(&store.spool)
        .clock(Arc::new(clock.clone()))
        .wall(|| "2026-01-01T00:00:00Z".parse().unwrap())
        .listing(told);
    assert_eq!(applied(&round(&mut ingestor, &mut target)), ["a.1", "a.2"]);
    clock.advance(DAY * 9);
    let mut ingestor = ingestor.wall(|| "2026-01-10T00:00:00Z".parse().unwrap());
    round(&mut ingestor, &mut target);
    assert!(target.batch_outcome("a.1").unwrap().is_some(), "it is still listed");
    assert_eq!(target.batch_outcome("a.2").unwrap(), None);
}
