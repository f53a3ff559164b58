//! What a time to live ends: streams or rows, by the owner's clock alone.

use std::time::Duration;

use lockhouse::records::{Applied, Operation, Outcome, Schema, Source, Target};
use serde_json::json;

use super::store::{Store, append, append_for, at, entry, fenced, ids, name, order, plain, seqs, stands};

const MINUTE: Duration = Duration::from_secs(60);

fn by_row() -> Schema {
    order(json!({"kind": "event", "key": ["id"], "retention": "row"}))
}

fn applied(outcome: &Outcome) -> &Applied {
    match outcome {
        Outcome::Applied(applied) => applied,
        refused => panic!("{refused:?}"),
    }
}

#[test]
fn a_stream_ends_whole_and_its_name_goes_on() {
    let mut store = Store::new();
    let schema = plain();
    let schemas = [schema.clone()];
    store.apply_at(at(0), &schemas, vec![append_for("s", &schema, ids(&schema, [1, 2]), MINUTE)]);
    assert_eq!(store.meta("s").expires, Some(at(60)));
    // What comes without a time to live leaves it as it is; one with another moves it.
    store.apply_at(at(30), &schemas, vec![append("s", &schema, ids(&schema, [3]))]);
    assert_eq!(store.meta("s").expires, Some(at(60)));
    store.apply_at(at(30), &[], vec![entry("s", Operation::Expire { ttl: MINUTE })]);
    assert_eq!(store.meta("s").expires, Some(at(90)));
    let early = store.target.expire(at(89), &mut stands).unwrap();
    assert_eq!((early.streams, early.rows, early.more), (0, 0, false));
    let ended = store.target.expire(at(90), &mut stands).unwrap();
    assert_eq!((ended.streams, ended.rows, ended.more), (1, 3, false));
    assert!(store.target.meta(&name("s")).unwrap().is_none());
    let outcomes = store.apply_at(at(91), &schemas, vec![append("s", &schema, ids(&schema, [1]))]);
    assert_eq!((applied(&outcomes[0]).generation, applied(&outcomes[0]).first_seq), (2, Some(1)));
    assert_eq!(store.meta("s").expires, None);
}

#[test]
fn a_stream_that_has_ended_takes_no_row_even_before_it_is_removed() {
    let mut store = Store::new();
    let schema = plain();
    let schemas = [schema.clone()];
    store.apply_at(at(0), &schemas, vec![append_for("s", &schema, ids(&schema, [1]), MINUTE)]);
    // Looks show what is there until it is removed.
    assert_eq!(seqs(&store.rows("s")), [1]);
    let some = || append("s", &schema, ids(&schema, [2]));
    let outcomes = store.apply_at(at(60), &schemas, vec![fenced(some(), 1), some()]);
    assert!(
        matches!(&outcomes[0], Outcome::Refused(refusal) if refusal.kind == lockhouse::records::RefusalKind::Fenced)
    );
    assert_eq!(applied(&outcomes[1]).generation, 2);
    assert_eq!(store.rows("s"), [(1, json!({"id": 2, "item": "item 2"}))]);
}

#[test]
fn rows_end_one_by_one() {
    let mut store = Store::new();
    let schema = by_row();
    let schemas = [schema.clone()];
    store.apply_at(at(0), &schemas, vec![append_for("s", &schema, ids(&schema, [1, 2]), MINUTE)]);
    store.apply_at(at(30), &schemas, vec![append_for("s", &schema, ids(&schema, [3]), MINUTE)]);
    store.apply_at(at(30), &schemas, vec![append("s", &schema, ids(&schema, [4]))]);
    assert_eq!(store.meta("s").expires, None);
    let ended = store.target.expire(at(60), &mut stands).unwrap();
    assert_eq!((ended.streams, ended.rows, ended.more), (0, 2, false));
    assert_eq!(seqs(&store.rows("s")), [3, 4]);
    assert_eq!(store.target.expire(at(60), &mut stands).unwrap().rows, 0);
    store.target.expire(at(1000), &mut stands).unwrap();
    assert_eq!(seqs(&store.rows("s")), [4]);
    // The stream's own command reaches all its rows; the stream itself stays.
    store.apply_at(at(1000), &[], vec![entry("s", Operation::Expire { ttl: Duration::from_nanos(1) })]);
    assert_eq!(store.target.expire(at(1001), &mut stands).unwrap().rows, 1);
    assert_eq!((store.meta("s").rows, store.meta("s").next), (0, 5));
}

#[test]
fn an_ended_row_is_in_no_new_rows_way() {
    let mut store = Store::new();
    let schema = by_row();
    let schemas = [schema.clone()];
    let some = || append_for("s", &schema, ids(&schema, [1]), MINUTE);
    store.apply_at(at(0), &schemas, vec![some()]);
    let outcomes = store.apply_at(at(59), &schemas, vec![some()]);
    assert_eq!(applied(&outcomes[0]).skipped, 1);
    let outcomes = store.apply_at(at(60), &schemas, vec![some()]);
    assert_eq!((applied(&outcomes[0]).skipped, applied(&outcomes[0]).first_seq), (0, Some(2)));
    assert_eq!(store.target.expire(at(61), &mut stands).unwrap().rows, 0);
    assert_eq!(seqs(&store.rows("s")), [2]);
}

#[test]
fn much_is_removed_bit_by_bit() {
    let mut store = Store::new();
    let (rows, streams) = (by_row(), plain());
    let many = 10_001;
    store.apply_at(at(0), std::slice::from_ref(&rows), vec![append_for("s", &rows, ids(&rows, 0..many), MINUTE)]);
    let entries = (0..40).map(|n| append_for(&format!("t{n}"), &streams, Vec::new(), MINUTE)).collect();
    store.apply_at(at(0), &[streams], entries);
    let (mut calls, mut gone) = (0, (0, 0));
    loop {
        let expired = store.target.expire(at(100), &mut stands).unwrap();
        calls += 1;
        gone = (gone.0 + expired.streams, gone.1 + expired.rows);
        if !expired.more {
            break;
        }
    }
    assert_eq!(gone, (40, many.cast_unsigned()));
    assert!((2..10).contains(&calls), "{calls}");
}
