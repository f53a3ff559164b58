//! A store that cannot take anything: nobody's batch fails for it, and it is seen.

use std::sync::Arc;
use std::time::Duration;

use lockhouse::Error;
use lockhouse::clock::ManualClock;
use lockhouse::owner::{Ingestor, OwnerLock};

use crate::faulty::{Fault, Faulty};
use crate::raw::Raw;
use crate::{Store, applied, assert_clean, notes, round, rounds};

#[test]
fn a_full_store_pauses_without_an_end_and_fails_nothing() {
    let (store, clock) = (Store::new(), ManualClock::new());
    let mut target = Faulty::new(store.target());
    target.fault = Some(Fault::Pause("database or disk is full"));
    let mut ingestor = Ingestor::new(&store.spool).clock(Arc::new(clock.clone()));
    Raw::new("a", 1).put(&store);
    Raw::new("a", 2).put_changed(&store, |manifest| manifest["version"] = 9.into());
    Raw::new("b", 1).put(&store);
    let mut longest = Duration::ZERO;
    for attempt in 1..=100 {
        let paused = rounds(&mut ingestor, &mut target);
        assert!(paused.applied.is_empty() && paused.failed.is_empty(), "{paused:?}");
        assert_eq!(paused.backlog, 3);
        let pause = paused.paused.unwrap();
        assert!(pause.why.contains("full"), "{pause:?}");
        assert_eq!(target.tries, attempt, "nothing is tried before its time");
        assert!(paused.next.is_some_and(|next| next <= pause.until), "{:?}", paused.next);
        // Once more before its time: nothing happens.
        assert_eq!(round(&mut ingestor, &mut target).paused.as_ref(), Some(&pause));
        assert_eq!(target.tries, attempt);
        let now = clock.clone();
        longest = longest.max(pause.until.since(lockhouse::clock::Clock::now(&now)));
        clock.advance_to(pause.until);
    }
    assert_eq!(longest, Duration::from_secs(30));
    target.fault = None;
    let done = rounds(&mut ingestor, &mut target);
    assert_eq!(applied(&done), ["a.1", "b.1"]);
    assert_eq!((done.failed.len(), done.backlog, &done.paused), (1, 0, &None), "{done:?}");
}

#[test]
fn the_trash_is_emptied_in_a_pause_too() {
    let (store, clock) = (Store::new(), ManualClock::new());
    let mut target = Faulty::new(store.target());
    let mut ingestor = Ingestor::new(&store.spool).clock(Arc::new(clock.clone()));
    Raw::new("a", 1).put(&store);
    assert_clean(&rounds(&mut ingestor, &mut target));
    assert_eq!(store.list("trash").len(), 1);
    target.fault = Some(Fault::Pause("database or disk is full"));
    Raw::new("a", 2).put(&store);
    assert!(rounds(&mut ingestor, &mut target).paused.is_some());
    clock.advance(Duration::from_secs(60));
    assert!(rounds(&mut ingestor, &mut target).paused.is_some());
    assert_eq!(store.list("trash").len(), 0);
}

#[test]
fn a_process_that_may_not_write_applies_and_moves_nothing() {
    let store = Store::new();
    let mut target = store.target();
    let mut ingestor = Ingestor::new(&store.spool);
    Raw::new("a", 1).put(&store);
    Raw::new("a", 2).put(&store);
    // Its ownership ends between two batches.
    let candidate = lockhouse::owner::Candidate::new(store.path(), "test").unwrap();
    let mut lock: Option<OwnerLock> = candidate.elect().unwrap();
    let mut asked = 0;
    let mut standing = || -> lockhouse::Result<()> {
        asked += 1;
        if asked > 2 {
            drop(lock.take());
        }
        match &lock {
            Some(lock) => lock.check(),
            None => Err(released(&candidate)),
        }
    };
    let round = ingestor.round(&mut target, &mut standing);
    assert_eq!(applied(&round), ["a.1"]);
    assert!(matches!(&round.refused, Some(Error::LeaseLost(_))), "{round:?}");
    assert_eq!((round.backlog, round.paused), (1, None));
    assert_eq!(notes(&target), ["a.1"]);
    assert_clean(&rounds(&mut ingestor, &mut target));
    assert_eq!(notes(&target), ["a.1", "a.2"]);
}

/// The error of an owner that has given its store back.
fn released(candidate: &lockhouse::owner::Candidate) -> Error {
    let lock = candidate.elect().unwrap().unwrap();
    let leases = std::path::PathBuf::from(lock.state().store.unwrap() + ".leases");
    std::fs::rename(&leases, leases.with_extension("away")).unwrap();
    let error = lock.check().unwrap_err();
    drop(lock);
    std::fs::rename(leases.with_extension("away"), leases).unwrap();
    error
}
