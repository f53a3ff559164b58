//! An fsck that puts another file in the place of the store's.

use std::time::Duration;

use lockhouse::owner::Role;

use crate::checker::{Rebuild, check, rebuild};
use crate::probe::Probe;
use crate::support::poll::eventually;
use crate::{PATIENCE, Place, numbers, open, row, schema, stream};

#[tokio::test(flavor = "multi_thread")]
async fn whoever_had_the_file_open_goes_on_with_the_new_one() {
    for how in [Rebuild::Compact, Rebuild::Larger] {
        let place = Place::new();
        let store = open(&place.path()).await;
        for n in 1..=50 {
            store.append(&stream("s"), &schema(), vec![row("owner", n)]).await.unwrap();
        }
        // Both have read: their connections are open.
        let (mut reader, role) = Probe::start(&place.path());
        assert_eq!((role.as_str(), reader.ask("count")), ("reader", "50".to_owned()));
        assert_eq!(numbers(&store, "s", "owner").await.len(), 50);
        for round in 0..3_u64 {
            let path = place.path();
            tokio::task::spawn_blocking(move || rebuild(&path, how)).await.unwrap();
            // Nobody has closed anything in between, and whoever reads first has the old one still.
            assert_eq!(reader.ask("count"), (50 + round * 20).to_string(), "{how:?}");
            let from = 51 + round * 10;
            for n in from..from + 10 {
                let appended = store.append(&stream("s"), &schema(), vec![row("owner", n)]).await;
                appended.unwrap_or_else(|error| panic!("{how:?}, {round}: {error}"));
            }
            let (first, last) = (round * 10 + 1, round * 10 + 10);
            assert_eq!(reader.ask(&format!("append reader {first} {last}")), "done", "{how:?}, {round}");
            assert_eq!(reader.ask("count"), (70 + round * 20).to_string(), "{how:?}, {round}");
            assert_eq!(numbers(&store, "s", "owner").await, (1..from + 10).collect::<Vec<_>>());
        }
        // The next owner finds what was written, and all of it is well.
        store.close().await.unwrap();
        assert_eq!(reader.ask("append reader 31 31"), "done");
        let path = place.path();
        tokio::task::spawn_blocking(move || check(&path)).await.unwrap();
        assert_eq!(reader.ask("count"), "111");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_owner_may_be_the_first_to_see_the_new_file() {
    let place = Place::new();
    let (mut owner, _) = Probe::start(&place.path());
    assert_eq!(owner.ask("append a 1 50"), "done");
    let (mut reader, _) = Probe::start(&place.path());
    assert_eq!(reader.ask("count"), "50");
    owner.kill();
    eventually(PATIENCE, "the reader to take over", || async {
        let status = lockhouse::owner::read_state(place.path()).unwrap();
        if status.state().is_some_and(|state| state.phase == lockhouse::owner::Phase::Ready) {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    let path = place.path();
    tokio::task::spawn_blocking(move || rebuild(&path, Rebuild::Larger)).await.unwrap();
    assert_eq!(reader.ask("append b 1 10"), "done");
    let store = open(&place.path()).await;
    assert_eq!(store.role(), Role::Reader);
    assert_eq!(numbers(&store, "s", "b").await.len(), 10);
    reader.kill();
    tokio::time::timeout(Duration::from_secs(30), store.append(&stream("s"), &schema(), vec![row("c", 1)]))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(crate::rows(&store, "s").await.len(), 61);
}
