//! Windows of seqs: what is numbered once is numbered for good.

use lockhouse::records::{Operation, RefusalKind, Schema, Source};
use serde_json::json;

use super::store::{Store, append, entry, ids, name, order, plain, row, rows, seqs};

fn keyed(how: &str) -> Schema {
    order(json!({"key": ["id"], "on_conflict": how}))
}

#[test]
fn a_seq_is_never_used_twice_within_a_generation() {
    let mut store = Store::new();
    let schema = plain();
    let schemas = [schema.clone()];
    let some = |from| append("s", &schema, ids(&schema, from..from + 3));
    store.applied(&schemas, some(1));
    let trimmed = store.applied(&[], entry("s", Operation::Trim { before: 4 }));
    assert_eq!(trimmed.removed, 3);
    let meta = store.meta("s");
    assert_eq!((meta.first, meta.next, meta.rows), (4, 4, 0));
    let applied = store.applied(&schemas, some(10));
    assert_eq!((applied.first_seq, applied.last_seq, applied.stored), (Some(4), Some(6), 3));
    store.applied(&[], entry("s", Operation::Trim { before: 5 }));
    assert_eq!(seqs(&store.rows("s")), [5, 6]);
    // Back is no way to go, and neither is past the end.
    assert_eq!(store.applied(&[], entry("s", Operation::Trim { before: 0 })).removed, 0);
    assert_eq!(store.meta("s").first, 5);
    for before in [8, u64::MAX] {
        let refusal = store.refused(&[], entry("s", Operation::Trim { before }));
        assert_eq!(refusal.kind, RefusalKind::BadPosition);
        assert!(refusal.to_string().contains("its next row gets 7"), "{refusal}");
    }
}

#[test]
fn sealed_streams_are_trimmed_reopened_and_deleted() {
    let mut store = Store::new();
    let schema = plain();
    let schemas = [schema.clone()];
    store.applied(&schemas, append("s", &schema, ids(&schema, [1, 2])));
    for _ in 0..2 {
        store.applied(&[], entry("s", Operation::Seal));
        assert!(store.meta("s").sealed);
    }
    assert_eq!(store.applied(&[], entry("s", Operation::Trim { before: 2 })).removed, 1);
    for _ in 0..2 {
        store.applied(&[], entry("s", Operation::Reopen));
        assert!(!store.meta("s").sealed);
    }
    store.applied(&schemas, append("s", &schema, ids(&schema, [3])));
    store.applied(&[], entry("s", Operation::Seal));
    assert_eq!(store.applied(&[], entry("s", Operation::Delete)).removed, 2);
    assert_eq!(store.target.meta(&name("s")).unwrap(), None);
    assert!(store.target.scan(&name("s"), 1, 10).unwrap().is_none());
    let mut other = plain();
    other.kind = "invoice".parse().unwrap();
    let applied = store.applied(std::slice::from_ref(&other), append("s", &other, ids(&other, [1])));
    assert_eq!((applied.generation, applied.first_seq), (2, Some(1)), "another kind may come under the name");
    assert!(!store.meta("s").sealed);
}

#[test]
fn a_row_whose_key_is_there_is_skipped() {
    let mut store = Store::new();
    let schema = keyed("skip");
    let schemas = [schema.clone()];
    store.applied(&schemas, append("s", &schema, vec![row(&schema, json!({"id": 1, "item": "first"}))]));
    let again =
        vec![row(&schema, json!({"id": 1, "item": "second"})), row(&schema, json!({"id": 2, "item": "second"}))];
    let applied = store.applied(&schemas, append("s", &schema, again));
    assert_eq!(
        (applied.first_seq, applied.last_seq, applied.stored, applied.skipped, applied.removed),
        (Some(2), Some(2), 1, 1, 0)
    );
    assert_eq!(store.rows("s"), [(1, json!({"id": 1, "item": "first"})), (2, json!({"id": 2, "item": "second"}))]);
    let none = store.applied(&schemas, append("s", &schema, ids(&schema, [1, 2])));
    assert_eq!((none.first_seq, none.stored, none.skipped), (None, 0, 2));
    // Another stream has keys of its own.
    assert_eq!(store.applied(&schemas, append("t", &schema, ids(&schema, [1]))).stored, 1);
}

#[test]
fn a_row_that_replaces_another_gets_a_new_seq() {
    let mut store = Store::new();
    let schema = keyed("replace");
    let schemas = [schema.clone()];
    store.applied(&schemas, append("s", &schema, ids(&schema, [1, 2, 3])));
    let new = vec![row(&schema, json!({"id": 2, "item": "new"})), row(&schema, json!({"id": 4, "item": "new"}))];
    let applied = store.applied(&schemas, append("s", &schema, new));
    assert_eq!(
        (applied.first_seq, applied.last_seq, applied.stored, applied.skipped, applied.removed),
        (Some(4), Some(5), 2, 0, 1)
    );
    let all = store.rows("s");
    assert_eq!(seqs(&all), [1, 3, 4, 5]);
    assert_eq!(all[2].1, json!({"id": 2, "item": "new"}));
    assert_eq!(store.meta("s").rows, 4);
}

#[test]
fn keys_may_have_several_columns_of_every_allowed_type() {
    let mut store = Store::new();
    let schema: Schema = serde_json::from_value(json!({"kind": "wide", "on_conflict": "replace", "columns": [
        {"name": "a \"b\"", "type": "text"}, {"name": "n", "type": "integer"}, {"name": "yes", "type": "boolean"},
        {"name": "seq", "type": "json"}], "key": ["yes", "a \"b\"", "n"]}))
    .unwrap();
    let make = |text: &str, n: i64, yes: bool, seq: i64| {
        row(&schema, json!({"a \"b\"": text, "n": n, "yes": yes, "seq": [seq]}))
    };
    let first = vec![make("x", 1, true, 1), make("x\0y", 1, true, 2), make("x\0z", 1, true, 3), make("x", 1, false, 4)];
    assert_eq!(store.applied(std::slice::from_ref(&schema), append("s", &schema, first)).stored, 4);
    let applied = store.applied(std::slice::from_ref(&schema), append("s", &schema, vec![make("x\0y", 1, true, 5)]));
    assert_eq!((applied.stored, applied.removed), (1, 1));
    let left: Vec<_> = store.rows("s").into_iter().map(|(_, row)| row["seq"][0].as_i64().unwrap()).collect();
    assert_eq!(left, [1, 3, 4, 5]);
}

#[test]
fn streams_and_kinds_are_listed_by_name() {
    let mut store = Store::new();
    let schema = plain();
    let mut zebra = plain();
    zebra.kind = "Zebra".parse().unwrap();
    for stream in ["b", "a", "C", "gone", "a:1"] {
        store.applied(std::slice::from_ref(&schema), append(stream, &schema, Vec::new()));
    }
    store.applied(std::slice::from_ref(&zebra), append("z", &zebra, Vec::new()));
    store.applied(&[], entry("gone", Operation::Delete));
    let names = |after: Option<&str>, limit| -> Vec<String> {
        let after = after.map(name);
        let metas = store.target.streams(after.as_ref(), limit).unwrap();
        metas.into_iter().map(|meta| meta.stream.to_string()).collect()
    };
    assert_eq!(names(None, 99), ["C", "a", "a:1", "b", "z"]);
    assert_eq!(names(Some("a"), 2), ["a:1", "b"]);
    assert_eq!(store.target.kinds().unwrap(), [zebra, schema]);
    assert!(rows(&store.target, "a").is_empty());
}

#[test]
fn windows_end_where_rows_get_large_and_skip_no_row() {
    let mut store = Store::new();
    let schema = plain();
    let large = "x".repeat(3 << 20);
    for id in 0..7 {
        let large = vec![row(&schema, json!({"id": id, "item": large}))];
        store.applied(std::slice::from_ref(&schema), append("s", &schema, large));
    }
    let (mut from, mut seen) = (0, Vec::new());
    loop {
        let window = store.target.scan(&name("s"), from, 100).unwrap().unwrap();
        if window.rows.is_empty() {
            break;
        }
        assert!(window.rows.len() <= 3, "{}", window.rows.len());
        seen.extend(window.rows.iter().map(|(seq, _)| *seq));
        from = window.next;
    }
    assert_eq!((seen, from), ((1..=7).collect(), 8));
    let past = store.target.scan(&name("s"), u64::MAX, 100).unwrap().unwrap();
    assert_eq!((past.rows.len(), past.next), (0, 8), "past the end, the next row is waited for");
    let none = store.target.scan(&name("s"), 3, 0).unwrap().unwrap();
    assert_eq!((none.rows.len(), none.next), (0, 3));
}

#[test]
fn people_find_the_rows_by_sql() {
    let mut store = Store::new();
    let schema = plain();
    store.applied(std::slice::from_ref(&schema), append("s", &schema, ids(&schema, [5])));
    let found: (String, i64, i64) = rusqlite::Connection::open(store.path())
        .unwrap()
        .query_row("SELECT _stream, _seq, id FROM view_order WHERE item = 'item 5'", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    assert_eq!(found, ("s".to_owned(), 1, 5));
}
