//! A batch is applied once, in its place, whole; the ledger knows what became of it.

use lockhouse::records::{Batch, BatchOutcome, Operation, Outcome, RefusalKind, Source, Target, TargetError};
use lockhouse::{Error, ErrorKind};

use super::store::{Store, append, at, batch, entry, fenced, ids, plain, seqs, stands};

/// One row with the id of its seq, whatever that is.
fn of(instance: &str, seq: u64) -> Batch {
    let schema = plain();
    batch(instance, seq, std::slice::from_ref(&schema), vec![append("s", &schema, ids(&schema, [seq.cast_signed()]))])
}

#[test]
fn a_batch_is_applied_once_however_often_it_comes() {
    let mut store = Store::new();
    let mut apply = |batch: &Batch, now| store.target.append_batch(batch, at(now), &mut stands);
    let first = apply(&of("a", 1), 0).unwrap();
    assert_eq!(apply(&of("a", 1), 5).unwrap(), first, "the outcome is the recorded one, its time too");
    let second = apply(&of("a", 2), 6).unwrap();
    assert_eq!(apply(&of("a", 1), 7).unwrap(), first);
    apply(&of("a", 3), 8).unwrap();
    assert_eq!(apply(&of("a", 2), 9).unwrap(), second);
    apply(&of("b", 1), 10).unwrap();
    assert_eq!(store.rows("s").len(), 4);
    assert_eq!(store.target.producer_seq("a").unwrap(), 3);
    assert_eq!(store.target.producer_seq("never").unwrap(), 0);
    assert_eq!(store.target.batch_outcome("a.1").unwrap(), Some(first));
    assert_eq!(store.target.batch_outcome("a.9").unwrap(), None);
    // What was promised to outlive the process is in the file.
    assert_eq!(store.reader().batch_outcome("a.2").unwrap(), Some(second));
}

#[test]
fn a_batch_that_was_passed_is_never_applied() {
    let mut store = Store::new();
    store.target.append_batch(&of("a", 5), at(0), &mut stands).unwrap();
    for seq in [5, 4] {
        let mut late = of("a", seq);
        late.id = format!("other.{seq}");
        match store.target.append_batch(&late, at(1), &mut stands) {
            Err(TargetError::Late { instance, seq: of, last: 5 }) => assert_eq!((instance.as_str(), of), ("a", seq)),
            other => panic!("{other:?}"),
        }
        assert_eq!(store.target.batch_outcome(&late.id).unwrap(), None);
    }
    assert_eq!(store.rows("s").len(), 1);
}

#[test]
fn failures_and_gaps_are_recorded_and_passed() {
    let mut store = Store::new();
    let failed = store.target.record_failure("a.1", "a", 1, "no such format", at(0), &mut stands).unwrap();
    assert_eq!(failed, BatchOutcome::Failed { at: at(0), error: "no such format".to_owned() });
    assert_eq!(store.target.record_failure("a.1", "a", 1, "again", at(1), &mut stands).unwrap(), failed);
    assert_eq!(store.target.append_batch(&of("a", 1), at(1), &mut stands).unwrap(), failed);
    store.target.record_skip("a", 3, at(2), &mut stands).unwrap();
    store.target.record_skip("a", 3, at(3), &mut stands).unwrap();
    store.target.record_skip("b", 3, at(3), &mut stands).unwrap();
    assert_eq!(store.target.producer_seq("a").unwrap(), 3);
    assert!(matches!(store.target.append_batch(&of("a", 2), at(4), &mut stands), Err(TargetError::Late { .. })));
    // A late batch's own failure does not move its instance back.
    store.target.record_failure("late", "a", 2, "late", at(5), &mut stands).unwrap();
    assert_eq!(store.target.producer_seq("a").unwrap(), 3);
    store.target.append_batch(&of("a", 4), at(5), &mut stands).unwrap();
    let applied = store.target.record_failure("a.4", "a", 4, "too late to fail", at(6), &mut stands).unwrap();
    assert!(matches!(applied, BatchOutcome::Applied { .. }));
    assert_eq!(seqs(&store.rows("s")), [1]);
}

#[test]
fn swept_batches_are_forgotten_and_their_seqs_are_not() {
    let mut store = Store::new();
    for seq in 1..=4 {
        store.target.append_batch(&of("a", seq), at(seq.cast_signed()), &mut stands).unwrap();
    }
    store.target.record_skip("b", 7, at(1), &mut stands).unwrap();
    let swept = store.target.sweep_batches(at(4), &|id| id == "a.2", &mut stands).unwrap();
    assert_eq!(swept, 3);
    for (id, known) in [("a.1", false), ("a.2", true), ("a.3", false), ("a.4", true)] {
        assert_eq!(store.target.batch_outcome(id).unwrap().is_some(), known, "{id}");
    }
    assert_eq!((store.target.producer_seq("a").unwrap(), store.target.producer_seq("b").unwrap()), (4, 7));
    assert!(matches!(store.target.append_batch(&of("a", 1), at(9), &mut stands), Err(TargetError::Late { .. })));
    assert_eq!(store.rows("s").len(), 4);
}

#[test]
fn an_entry_stands_by_itself_and_sees_those_before_it() {
    let mut store = Store::new();
    let schema = plain();
    let some = |stream: &str| append(stream, &schema, ids(&schema, [1, 2]));
    let outcomes = store.apply(
        std::slice::from_ref(&schema),
        vec![
            some("a"),
            entry("a", Operation::Seal),
            some("a"),
            entry("a", Operation::Reopen),
            some("a"),
            entry("a", Operation::Trim { before: 99 }),
            some("b"),
        ],
    );
    let refused: Vec<_> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Applied(_) => None,
            Outcome::Refused(refusal) => Some(refusal.kind),
        })
        .collect();
    let (sealed, position) = (Some(RefusalKind::Sealed), Some(RefusalKind::BadPosition));
    assert_eq!(refused, [None, None, sealed, None, None, position, None]);
    assert_eq!(seqs(&store.rows("a")), [1, 2, 3, 4]);
    assert_eq!(seqs(&store.rows("b")), [1, 2]);
}

#[test]
fn an_entry_for_another_incarnation_is_fenced() {
    let mut store = Store::new();
    let schema = plain();
    let some = || append("s", &schema, ids(&schema, [1]));
    let schemas = [schema.clone()];
    assert_eq!(store.refused(&schemas, fenced(some(), 1)).kind, RefusalKind::UnknownStream);
    assert_eq!(store.applied(&schemas, some()).generation, 1);
    assert_eq!(store.applied(&schemas, fenced(some(), 1)).last_seq, Some(2));
    assert_eq!(store.applied(&[], fenced(entry("s", Operation::Delete), 1)).removed, 2);
    assert_eq!(store.refused(&schemas, fenced(some(), 1)).kind, RefusalKind::Fenced);
    assert_eq!(store.refused(&schemas, fenced(entry("s", Operation::Seal), 1)).kind, RefusalKind::Fenced);
    let anew = store.applied(&schemas, some());
    assert_eq!((anew.generation, anew.first_seq), (2, Some(1)));
    for operation in [Operation::Delete, Operation::Trim { before: 2 }, Operation::Seal] {
        let refusal = store.refused(&[], fenced(entry("s", operation), 1));
        assert_eq!(refusal.kind, RefusalKind::Fenced);
        assert!(refusal.message.contains("generation 1") && refusal.message.contains("generation 2"), "{refusal}");
    }
    assert_eq!(store.applied(&schemas, fenced(some(), 2)).last_seq, Some(2));
}

#[test]
fn who_may_not_write_any_more_changes_nothing() {
    let mut store = Store::new();
    for last in [1, 2] {
        let mut asked = 0;
        let outcome = store.target.append_batch(&of("a", 1), at(0), &mut || {
            asked += 1;
            match asked == last {
                true => Err(refused()),
                false => Ok(()),
            }
        });
        match outcome {
            Err(TargetError::Standing(error)) => assert_eq!(error.to_string(), refused().to_string()),
            other => panic!("{other:?}"),
        }
        assert_eq!(asked, last, "asked under the lock, and again before the commit");
        assert!(store.rows("s").is_empty());
        assert_eq!(store.target.producer_seq("a").unwrap(), 0);
    }
    let mut no = || Err(refused());
    assert!(store.target.record_failure("x", "a", 1, "", at(0), &mut no).is_err());
    assert!(store.target.record_skip("a", 1, at(0), &mut no).is_err());
    assert!(store.target.sweep_batches(at(9), &|_| false, &mut no).is_err());
    assert!(store.target.expire(at(9), &mut no).is_err());
    assert_eq!(store.target.producer_seq("a").unwrap(), 0);
    store.target.append_batch(&of("a", 1), at(0), &mut stands).unwrap();
}

/// Any error of the crate's will do.
fn refused() -> Error {
    let error = "mongodb:///".parse::<lockhouse::StoreUrl>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error
}

#[test]
fn a_panic_of_the_question_leaves_nothing_open() {
    let mut store = Store::new();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = store.target.append_batch(&of("a", 1), at(0), &mut || panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    store.target.append_batch(&of("a", 1), at(0), &mut stands).unwrap();
    assert_eq!(store.rows("s").len(), 1);
}

#[test]
fn what_makes_sqlite_leave_the_transaction_takes_the_whole_batch_back() {
    let mut store = Store::new();
    let schema = plain();
    store.applied(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, [1])));
    let other = rusqlite::Connection::open(store.path()).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER theirs BEFORE INSERT ON rows_order WHEN new.id = 13
             BEGIN SELECT RAISE(ROLLBACK, 'not thirteen'); END",
        )
        .unwrap();
    let some = |id| append("s", &schema, ids(&schema, [id]));
    let bad = batch("x", 1, std::slice::from_ref(&schema), vec![some(2), some(13), some(3)]);
    match store.target.append_batch(&bad, at(0), &mut stands) {
        Err(TargetError::Batch(why)) => assert!(why.contains("left the transaction"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.rows("s").len(), 1, "nothing of it was committed by itself");
    assert_eq!(store.target.producer_seq("x").unwrap(), 0);
    store.target.append_batch(&of("x", 1), at(0), &mut stands).unwrap();
}

#[test]
fn numbers_that_no_store_has_fail_the_batch_alone() {
    let mut store = Store::new();
    assert!(matches!(
        store.target.append_batch(&of("a", u64::MAX - 1), at(0), &mut stands),
        Err(TargetError::Batch(_))
    ));
    store.target.append_batch(&of("a", 1), at(0), &mut stands).unwrap();
    assert_eq!(store.rows("s").len(), 1);
}
