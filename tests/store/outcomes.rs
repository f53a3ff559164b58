//! What a reader gets back for each of its entries is what the owner did, whatever was in the way.

use std::time::Duration;

use lockhouse::Coordinator;
use lockhouse::owner::{BatchResult, Role, Store};
use lockhouse::records::{BatchOutcome, Entry, Operation, Outcome, RefusalKind, Schema};
use lockhouse::spool::{NewBatch, Producer, Spool};

use crate::probe::Probe;
use crate::support::poll::eventually;
use crate::{PATIENCE, Place, numbers, open, row, schema, stream};

fn append(name: &str, schema: &Schema, json: &str, generation: Option<u64>) -> Entry {
    let rows = vec![schema.row(json.as_bytes()).unwrap()];
    let operation = Operation::Append { kind: schema.kind.clone(), rows, ttl: None, seal: false };
    Entry { stream: stream(name), generation, operation }
}

async fn write(store: &Store, schemas: Vec<Schema>, entries: Vec<Entry>) -> Vec<Outcome> {
    let batch = NewBatch::new(schemas, entries);
    tokio::time::timeout(PATIENCE, store.write(batch)).await.expect("in time").unwrap()
}

/// What became of each: a word for one that was applied, else what it was refused for.
fn kinds(outcomes: &[Outcome]) -> Vec<Option<RefusalKind>> {
    outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Applied(_) => None,
            Outcome::Refused(refusal) => Some(refusal.kind),
        })
        .collect()
}

#[tokio::test]
async fn each_entry_of_a_batch_stands_by_itself_in_either_role() {
    let wide: Schema = serde_json::from_str(
        r#"{"kind": "note", "columns": [
            {"name": "by", "type": "text"}, {"name": "n", "type": "integer"},
            {"name": "more", "type": "text", "optional": true}, {"name": "weight", "type": "real", "optional": true}]}"#,
    )
    .unwrap();
    let changed: Schema = serde_json::from_str(
        r#"{"kind": "note", "columns": [{"name": "by", "type": "text"}, {"name": "n", "type": "text"}]}"#,
    )
    .unwrap();
    let narrow = r#"{"by": "me", "n": 1}"#;
    let mut seen = Vec::new();
    for role in [Role::Owner, Role::Reader] {
        let place = Place::new();
        let _owner = (role == Role::Reader).then(|| Probe::start(&place.path()));
        let store = open(&place.path()).await;
        assert_eq!(store.role(), role);
        // A sealed stream in the middle of a bulk batch.
        store.append(&stream("sealed"), &schema(), vec![row("me", 1)]).await.unwrap();
        store.apply(&stream("sealed"), Operation::Seal).await.unwrap();
        let three = ["a", "sealed", "b"].map(|name| append(name, &schema(), narrow, None));
        let bulk = write(&store, vec![schema()], three.into()).await;
        assert_eq!(kinds(&bulk), [None, Some(RefusalKind::Sealed), None]);
        // A widened schema is applied, a changed one is refused.
        let widened = append("a", &wide, r#"{"by": "me", "n": 2, "weight": 0.5}"#, None);
        let widened = write(&store, vec![wide.clone()], vec![widened]).await;
        assert_eq!(kinds(&widened), [None]);
        let other = append("a", &changed, r#"{"by": "me", "n": "x"}"#, None);
        let other = write(&store, vec![changed.clone()], vec![other]).await;
        assert_eq!(kinds(&other), [Some(RefusalKind::SchemaConflict)]);
        // A batch for an incarnation of a stream that is gone.
        let generation = store.meta(&stream("a")).await.unwrap().unwrap().generation;
        store.apply(&stream("a"), Operation::Delete).await.unwrap();
        store.append(&stream("a"), &schema(), vec![row("me", 3)]).await.unwrap();
        let fenced = write(&store, vec![schema()], vec![append("a", &schema(), narrow, Some(generation))]).await;
        assert_eq!(kinds(&fenced), [Some(RefusalKind::Fenced)]);
        assert_eq!(numbers(&store, "a", "me").await, [3]);
        seen.push((kinds(&bulk), kinds(&widened), kinds(&other), kinds(&fenced)));
        store.close().await.unwrap();
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_manifest_from_the_future_fails_and_its_producer_learns_it() {
    let place = Place::new();
    open(&place.path()).await.close().await.unwrap();
    let producer = Producer::new(&Spool::open(place.path()).unwrap(), "later");
    let batch = NewBatch::new(vec![schema()], vec![append("s", &schema(), r#"{"by": "me", "n": 1}"#, None)]);
    let name = producer.publish(&batch, "ndjson").unwrap();
    let manifest = place.0.path().join("records.spool/incoming").join(name.to_string()).join("manifest.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    json["version"] = 9.into();
    std::fs::write(&manifest, serde_json::to_vec(&json).unwrap()).unwrap();
    let store = open(&place.path()).await;
    let result = tokio::time::timeout(PATIENCE, store.await_batch(&batch.id)).await.unwrap().unwrap();
    let BatchResult::Known(BatchOutcome::Failed { error, .. }) = result else { panic!("{result:?}") };
    assert!(error.contains("version 9"), "{error}");
    // Those behind it are applied.
    producer.publish(&NewBatch::new(vec![schema()], batch.entries), "ndjson").unwrap();
    eventually(PATIENCE, "the batch behind it", || async {
        match numbers(&store, "s", "me").await.len() {
            1 => Ok(()),
            others => Err(others),
        }
    })
    .await;
}

#[tokio::test]
async fn without_a_socket_the_ledger_answers() {
    let place = Place::new();
    let (_owner, _) = Probe::start(&place.path());
    let store = open(&place.path()).await;
    std::fs::remove_file(place.0.path().join("records.sock")).unwrap();
    for n in 1..=3 {
        let (stream, schema) = (stream("s"), schema());
        let appended = store.append(&stream, &schema, vec![row("me", n)]);
        assert_eq!(tokio::time::timeout(PATIENCE, appended).await.unwrap().unwrap().first_seq, Some(n));
    }
    assert_eq!(store.role(), Role::Reader);
}

#[tokio::test]
async fn another_programs_lock_is_waited_out() {
    let place = Place::new();
    let (mut owner, _) = Probe::start(&place.path());
    assert_eq!(owner.ask("append owner 1 1"), "done");
    let store = open(&place.path()).await;
    let other = rusqlite::Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    owner.tell("append owner 2 4");
    let writing = tokio::spawn({
        let store = store.clone();
        async move { store.append(&stream("s"), &schema(), vec![row("me", 1)]).await }
    });
    eventually(PATIENCE, "the owner to say why it waits", || async {
        let status = store.status();
        match status.state().and_then(|state| state.last_error.clone()) {
            Some(error) if error.contains("another program holds it locked") => Ok(()),
            _ => Err(status),
        }
    })
    .await;
    // Who comes now is not kept out by it.
    let (mut late, role) = Probe::start(&place.path());
    assert_eq!((role.as_str(), late.ask("count").as_str()), ("reader", "1"));
    assert!(!writing.is_finished());
    other.execute_batch("ROLLBACK").unwrap();
    tokio::time::timeout(PATIENCE, writing).await.unwrap().unwrap().unwrap();
    assert_eq!(owner.answer(), "done");
    assert_eq!(numbers(&store, "s", "owner").await, [1, 2, 3, 4]);
    assert_eq!(numbers(&store, "s", "me").await, [1]);
    let failed = std::fs::read_dir(place.0.path().join("records.spool/failed")).unwrap().count();
    assert_eq!(failed, 0);
}

/// The role changes again and again between the question and the write.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_changes_under_a_write_changes_nothing_of_it() {
    const WRITERS: u64 = 4;
    const ROWS: u64 = 60;
    let place = Place::new();
    let store = open(&place.path()).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 1..=ROWS {
                    let applied =
                        store.append(&stream("s"), &schema(), vec![row(&writer.to_string(), n)]).await.unwrap();
                    assert_eq!(applied.stored, 1);
                }
            })
        })
        .collect();
    let checker = Coordinator::connect(place.path().to_str().unwrap()).await.unwrap();
    let mut fscks = 0;
    while fscks < 10 {
        let fsck = tokio::time::timeout(PATIENCE, checker.acquire_fsck().into_future()).await.unwrap().unwrap();
        assert_eq!(store.role(), Role::Reader);
        fsck.check().unwrap();
        fsck.release().await.unwrap();
        fscks += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for writer in 0..WRITERS {
        assert_eq!(numbers(&store, "s", &writer.to_string()).await, (1..=ROWS).collect::<Vec<_>>());
    }
    store.close().await.unwrap();
}

/// Nothing is stored of what is refused for want of room, and all goes on when there is some.
#[test]
fn on_a_full_disk_nothing_is_half_written() {
    let place = Place::new();
    let script = r#"
        mkdir "$D/small"; mount -t tmpfs -o size=2m,mode=700 none "$D/small"
        printf 'append me 1 3\nfill\nthree me 4\nempty\nappend me 4 6\ncount\nclose\n' |
            LOCKHOUSE_STORE_PROBE="$D/small/records" "$EXE" --exact probe::probe --nocapture
    "#;
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-euc", script]);
    command.env("EXE", std::env::current_exe().unwrap()).env("D", place.0.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = crate::probe::said(&output);
    assert_eq!(said[..3], ["owner", "done", "full"], "{output:?}");
    assert!(said[3].starts_with("Unavailable") && said[3].contains("room on the disk"), "{said:?}");
    assert_eq!(said[4..], ["empty", "done", "6", "closed"], "{output:?}");
}
