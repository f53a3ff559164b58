//! Kinds that change: additions are applied, everything else is refused.

use lockhouse::records::{Refusal, RefusalKind, Schema, Source};
use serde_json::{Value, json};

use super::store::{Store, append, ids, order, plain, row};

fn with(more: &[Value]) -> Schema {
    let mut schema = serde_json::to_value(plain()).unwrap();
    schema["columns"].as_array_mut().unwrap().extend_from_slice(more);
    serde_json::from_value(schema).unwrap()
}

fn wide() -> Schema {
    with(&[json!({"name": "note", "type": "json", "optional": true})])
}

#[test]
fn a_kind_is_widened_and_rows_of_the_narrow_one_still_come() {
    let mut store = Store::new();
    let (narrow, wide) = (plain(), wide());
    store.applied(std::slice::from_ref(&narrow), append("s", &narrow, ids(&narrow, [1])));
    let reader = store.reader();
    let new = vec![row(&wide, json!({"id": 2, "item": "b", "note": {"x": 1.50}}))];
    store.applied(std::slice::from_ref(&wide), append("s", &wide, new));
    store.applied(std::slice::from_ref(&narrow), append("s", &narrow, ids(&narrow, [3])));
    // Without a schema the store's own is meant.
    store.applied(&[], append("t", &narrow, ids(&narrow, [4])));
    assert_eq!(store.target.kinds().unwrap(), std::slice::from_ref(&wide));
    assert_eq!(reader.kinds().unwrap(), [wide]);
    let rows: Vec<_> = store.rows("s").into_iter().map(|(_, row)| row).collect();
    assert_eq!(
        rows,
        [
            json!({"id": 1, "item": "item 1"}),
            json!({"id": 2, "item": "b", "note": {"x": 1.5}}),
            json!({"id": 3, "item": "item 3"})
        ]
    );
}

#[test]
fn a_batch_may_widen_a_kind_between_its_entries() {
    let mut store = Store::new();
    let (narrow, wide) = (plain(), wide());
    let note = || vec![row(&wide, json!({"id": 2, "item": "b", "note": "n"}))];
    store.applied(std::slice::from_ref(&narrow), append("s", &narrow, ids(&narrow, [1])));
    let mut refused = append("s", &wide, note());
    refused.generation = Some(9);
    // A refused entry widens nothing; the next one does.
    store.apply(std::slice::from_ref(&wide), vec![refused]);
    assert_eq!(store.target.kinds().unwrap(), [narrow]);
    store.applied(std::slice::from_ref(&wide), append("s", &wide, note()));
    assert_eq!(store.target.kinds().unwrap(), [wide]);
}

#[test]
fn any_other_change_is_refused_by_name() {
    let mut store = Store::new();
    let schema = plain();
    store.applied(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, [1])));
    let mut renamed = plain();
    renamed.columns[1].name = "thing".to_owned();
    let mut retyped = plain();
    retyped.columns[0].holds = lockhouse::records::ColumnType::Text;
    let changes: [(Schema, &str); 6] = [
        (renamed, "thing"),
        (retyped, "a whole number"),
        (with(&[json!({"name": "must", "type": "text"})]), "must"),
        (order(json!({"key": ["id"]})), "[id]"),
        (order(json!({"on_conflict": "replace"})), "Replace"),
        (order(json!({"retention": "row"})), "Row"),
    ];
    for (changed, named) in changes {
        let refusal: Refusal = store.refused(std::slice::from_ref(&changed), append("s", &changed, Vec::new()));
        assert_eq!(refusal.kind, RefusalKind::SchemaConflict);
        assert!(refusal.to_string().contains(named), "{refusal}");
        assert_eq!(refusal.of, Some(changed.kind));
    }
    assert_eq!(store.target.kinds().unwrap(), [schema]);
}

#[test]
fn kinds_that_differ_in_case_alone_are_refused() {
    let mut store = Store::new();
    store.applied(&[plain()], append("s", &plain(), Vec::new()));
    let shouted = order(json!({"kind": "ORDER"}));
    let refusal = store.refused(std::slice::from_ref(&shouted), append("t", &shouted, Vec::new()));
    assert_eq!(refusal.kind, RefusalKind::SchemaConflict);
    assert_eq!(store.refused(&[], append("t", &shouted, Vec::new())).kind, RefusalKind::UnknownKind);
}

#[test]
fn a_new_kind_goes_with_the_entry_that_was_refused() {
    let mut store = Store::new();
    let schema = order(json!({"key": ["id"]}));
    let refusal = store.refused(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, [1, 1])));
    assert_eq!(refusal.kind, RefusalKind::DuplicateKey);
    assert!(store.target.kinds().unwrap().is_empty());
    assert_eq!(store.applied(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, [1]))).stored, 1);
}
