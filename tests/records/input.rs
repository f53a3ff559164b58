//! Bad input: the error names stream, kind, row and column; nothing of its entry is stored, and the other entries are.

use std::time::Duration;

use lockhouse::records::{Entry, KindName, Operation, Outcome, RefusalKind, Schema, StreamName};
use serde_json::json;

use super::store::{Store, append, append_for, entry, ids, order, plain, row};

/// Applies a bad entry between two good ones.
fn between(store: &mut Store, schemas: &[Schema], bad: Entry) -> lockhouse::records::Refusal {
    let good = plain();
    let before = store.target_rows("good");
    let stream = bad.stream.clone();
    let had = store.target_rows(stream.as_str());
    let outcomes =
        store.apply(schemas, vec![append("good", &good, ids(&good, [1])), bad, append("good", &good, ids(&good, [2]))]);
    assert!(matches!(outcomes[0], Outcome::Applied(_)) && matches!(outcomes[2], Outcome::Applied(_)), "{outcomes:?}");
    assert_eq!(store.target_rows("good"), before + 2);
    assert_eq!(store.target_rows(stream.as_str()), had, "nothing of a refused entry is stored");
    let Outcome::Refused(refusal) = &outcomes[1] else { panic!("{:?}", outcomes[1]) };
    assert_eq!(refusal.stream.as_ref(), Some(&stream));
    refusal.clone()
}

impl Store {
    fn target_rows(&self, stream: &str) -> usize {
        self.rows(stream).len()
    }
}

#[test]
fn names_that_are_none_are_refused_before_they_travel() {
    let refusal = "no name".parse::<StreamName>().unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::BadName);
    assert_eq!("2nd".parse::<KindName>().unwrap_err().kind, RefusalKind::BadName);
}

#[test]
fn an_unknown_kind_is_refused() {
    let mut store = Store::new();
    let mut other = plain();
    other.kind = "invoice".parse().unwrap();
    let refusal = between(&mut store, &[plain()], append("bad", &other, ids(&plain(), [1])));
    assert_eq!(refusal.kind, RefusalKind::UnknownKind);
    assert_eq!(refusal.of, Some(other.kind));
    assert_eq!(
        refusal.to_string(),
        "stream bad, kind invoice: the store has no such kind, and the batch no schema for it: give its schema along"
    );
}

#[test]
fn a_row_of_another_schema_is_refused_by_row_and_column() {
    let mut store = Store::new();
    let good = plain();
    let text = serde_json::from_value::<Schema>(json!({"kind": "order", "columns": [
        {"name": "id", "type": "text"}, {"name": "item", "type": "text"}]}))
    .unwrap();
    let mut rows = ids(&good, [1, 2]);
    rows.push(row(&text, json!({"id": "x", "item": "y"})));
    let refusal = between(&mut store, std::slice::from_ref(&good), append("bad", &good, rows));
    assert_eq!((refusal.kind, refusal.row, refusal.column.as_deref()), (RefusalKind::WrongType, Some(3), Some("id")));

    let short = serde_json::from_value::<Schema>(json!({"kind": "order", "columns": [
        {"name": "id", "type": "integer"}]}))
    .unwrap();
    let bad = append("bad", &good, vec![row(&short, json!({"id": 1}))]);
    let refusal = between(&mut store, std::slice::from_ref(&good), bad);
    assert_eq!((refusal.kind, refusal.row), (RefusalKind::MissingColumn, Some(1)));
    assert_eq!(refusal.column.as_deref(), Some("item"));

    let long = serde_json::from_value::<Schema>(json!({"kind": "order", "columns": [
        {"name": "id", "type": "integer"}, {"name": "item", "type": "text"}, {"name": "price", "type": "real"},
        {"name": "more", "type": "real"}]}))
    .unwrap();
    let bad = append("bad", &good, vec![row(&long, json!({"id": 1, "item": "", "price": 1.5, "more": 1.5}))]);
    assert_eq!(between(&mut store, &[good], bad).kind, RefusalKind::UnknownColumn);
}

#[test]
fn the_same_key_twice_in_one_append_is_refused_whatever_is_stored() {
    for (how, kind) in [("skip", "order"), ("replace", "replaced")] {
        let mut store = Store::new();
        let schema = order(json!({"kind": kind, "key": ["id"], "on_conflict": how}));
        let schemas = [plain_of_good(kind), schema.clone()];
        store.applied(std::slice::from_ref(&schema), append("bad", &schema, ids(&schema, [1])));
        for rows in [ids(&schema, [7, 8, 7]), ids(&schema, [7, 1, 1])] {
            let outcomes = store.apply(&schemas[1..], vec![append("bad", &schema, rows)]);
            let Outcome::Refused(refusal) = &outcomes[0] else { panic!("{outcomes:?}") };
            assert_eq!((refusal.kind, refusal.row), (RefusalKind::DuplicateKey, Some(3)));
            assert_eq!(refusal.column.as_deref(), Some("id"));
            assert_eq!(refusal.stream.as_ref().unwrap().as_str(), "bad");
            assert_eq!(store.target_rows("bad"), 1);
        }
    }
}

fn plain_of_good(kind: &str) -> Schema {
    order(json!({ "kind": kind }))
}

#[test]
fn a_sealed_stream_takes_no_rows() {
    let mut store = Store::new();
    let schema = plain();
    let mut last = append("bad", &schema, ids(&schema, [1]));
    if let Operation::Append { seal, .. } = &mut last.operation {
        *seal = true;
    }
    store.applied(std::slice::from_ref(&schema), last);
    assert!(store.meta("bad").sealed);
    for rows in [ids(&schema, [2]), Vec::new()] {
        let refusal = between(&mut store, std::slice::from_ref(&schema), append("bad", &schema, rows));
        assert_eq!(refusal.kind, RefusalKind::Sealed);
    }
}

#[test]
fn a_time_to_live_is_positive_and_ends() {
    let mut store = Store::new();
    let schema = plain();
    for ttl in [Duration::ZERO, Duration::MAX, Duration::from_secs(400_000_000_000)] {
        let bad = append_for("bad", &schema, ids(&schema, [1]), ttl);
        assert_eq!(between(&mut store, std::slice::from_ref(&schema), bad).kind, RefusalKind::BadTtl);
        let bad = entry("good", Operation::Expire { ttl });
        let before = store.rows("good").len();
        let refusal = store.refused(&[], bad);
        assert_eq!(refusal.kind, RefusalKind::BadTtl);
        assert_eq!(store.rows("good").len(), before);
    }
}

#[test]
fn what_there_is_no_stream_for_is_refused() {
    let mut store = Store::new();
    for operation in [
        Operation::Seal,
        Operation::Reopen,
        Operation::Trim { before: 1 },
        Operation::Expire { ttl: Duration::from_secs(1) },
        Operation::Delete,
    ] {
        let refusal = between(&mut store, &[plain()], entry("bad", operation));
        assert_eq!(refusal.kind, RefusalKind::UnknownStream);
    }
}

#[test]
fn a_stream_keeps_its_kind() {
    let mut store = Store::new();
    let mut other = plain();
    other.kind = "invoice".parse().unwrap();
    store.applied(&[plain()], append("bad", &plain(), ids(&plain(), [1])));
    let refusal = between(&mut store, &[plain(), other.clone()], append("bad", &other, ids(&plain(), [1])));
    assert_eq!(refusal.kind, RefusalKind::OtherKind);
    assert!(refusal.message.contains("kind order"), "{refusal}");
}

#[test]
fn a_schema_that_cannot_be_one_refuses_its_appends_alone() {
    let mut store = Store::new();
    let mut bad = plain();
    bad.kind = "bad".parse().unwrap();
    bad.key = vec!["price".to_owned()];
    let refusal = between(&mut store, &[plain(), bad.clone()], append("bad", &bad, ids(&plain(), [1])));
    assert_eq!((refusal.kind, refusal.column.as_deref()), (RefusalKind::BadSchema, Some("price")));
    let mut twice = plain();
    twice.columns[2].optional = false;
    let refusal = store.refused(&[plain(), twice], append("bad", &plain(), Vec::new()));
    assert_eq!(refusal.kind, RefusalKind::BadSchema);
}

#[test]
fn what_somebody_else_put_on_a_table_refuses_the_entry() {
    let mut store = Store::new();
    let schema = plain();
    store.applied(std::slice::from_ref(&schema), append("bad", &schema, ids(&schema, [1])));
    let other = rusqlite::Connection::open(store.path()).unwrap();
    other.execute_batch("CREATE UNIQUE INDEX theirs ON rows_order (item)").unwrap();
    let refusal = store.refused(std::slice::from_ref(&schema), append("bad", &schema, ids(&schema, [2, 1, 3])));
    assert_eq!((refusal.kind, refusal.row), (RefusalKind::Other, Some(2)));
    assert_eq!(store.rows("bad").len(), 1);
}
