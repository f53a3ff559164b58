use super::*;
use crate::backend::HISTORY_KEPT;
use crate::backend::mongo::history::TRIMMED_EVERY;

/// So many lines of long ago.
async fn old_lines(store: &Store, count: usize) {
    let old = (0..count).map(|n| {
        doc! { "_id": format!("history/{n}"), "kind": "history", "what": "old",
        "at": bson::DateTime::from_millis(n as i64) }
    });
    store.documents().insert_many(old).await.unwrap();
}

async fn count(store: &Store) -> usize {
    usize::try_from(store.documents().count_documents(statements::history()).await.unwrap()).unwrap()
}

#[tokio::test]
async fn lines_are_read_in_the_order_of_their_own_times() {
    let store = Store::ready(Server::Standalone).await;
    for (id, at) in [("9-a", 1), ("1-b", 3), ("5-d", 2), ("5-c", 2)] {
        let at = bson::DateTime::from_millis(at);
        store.put(doc! { "_id": format!("history/{id}"), "kind": "history", "what": id, "at": at }).await;
    }
    let read: Vec<String> = store.history().await.unwrap().into_iter().map(|line| line.what).collect();
    assert_eq!(read, ["9-a", "5-c", "5-d", "1-b"]);
    store.close().await;
}

#[tokio::test]
async fn a_line_is_kept_as_it_was_said_and_once() {
    for server in BOTH {
        let store = Store::open(server, None).await;
        assert!(store.history().await.unwrap().is_empty());
        let line = line("forced");
        Backend::record(&store.mongo, &line).await.unwrap();
        let first = store.history().await.unwrap();
        Backend::record(&store.mongo, &line).await.unwrap();
        let lines = store.history().await.unwrap();
        assert_eq!((lines.len(), lines[0].at), (1, first[0].at), "sent again it is the same line");
        assert_eq!((lines[0].what.as_str(), lines[0].lease.as_deref()), ("forced", Some("$owner")));
        assert_eq!(lines[0].holder, Some(line.holder));
        assert_eq!(lines[0].reason, line.reason);
        assert!(lines[0].at.as_millisecond() > 1_600_000_000_000);
        store.close().await;
    }
}

#[tokio::test]
async fn the_newest_lines_are_shown_and_the_others_go_with_the_first_line_of_a_process() {
    for server in BOTH {
        let store = Store::open(server, None).await;
        old_lines(&store, HISTORY_KEPT + 5).await;
        store.put(doc! { "_id": "history0" }).await;
        store.put(doc! { "_id": "history/broken" }).await;
        assert_eq!(store.history().await.unwrap().len(), HISTORY_KEPT);
        Backend::record(&store.mongo, &line("forced")).await.unwrap();
        assert_eq!(count(&store).await, HISTORY_KEPT);
        let lines = store.history().await.unwrap();
        assert_eq!(lines.last().unwrap().what, "forced");
        assert_eq!(lines[0].at.as_millisecond(), 6);
        assert!(store.get("history0").await.is_some() && store.get("history/broken").await.is_none());
        store.close().await;
    }
}

#[tokio::test]
async fn a_process_that_writes_on_and_on_trims_once_in_a_while() {
    let store = Store::open(Server::ReplicaSet, None).await;
    old_lines(&store, HISTORY_KEPT).await;
    let mut most = 0;
    for _ in 0..=TRIMMED_EVERY {
        Backend::record(&store.mongo, &line("granted")).await.unwrap();
        most = most.max(count(&store).await);
    }
    assert_eq!(most, HISTORY_KEPT + TRIMMED_EVERY as usize - 1);
    assert_eq!((count(&store).await, store.history().await.unwrap().len()), (HISTORY_KEPT, HISTORY_KEPT));
    store.close().await;
}
