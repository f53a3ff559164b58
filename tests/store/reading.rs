//! Looking at a store without taking part in it.

use lockhouse::ErrorKind;
use lockhouse::owner::{Ownership, read_only, read_state};

use crate::{PATIENCE, Place, open, row, schema, stream};

#[tokio::test]
async fn who_only_reads_takes_no_part_and_is_woken_by_the_owner() {
    let place = Place::new();
    assert_eq!(read_only(place.path()).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(std::fs::read_dir(place.0.path()).unwrap().next().is_none(), "looking makes nothing");
    let owner = open(&place.path()).await;
    owner.append(&stream("s"), &schema(), vec![row("a", 1)]).await.unwrap();
    let reader = read_only(place.path()).unwrap();
    let mut changes = reader.changes();
    let seen = reader.scan(&stream("s"), 1, 10).await.unwrap().unwrap();
    assert_eq!((seen.rows.len(), seen.next), (1, 2));
    let streams = reader.streams(None, 10).await.unwrap();
    assert_eq!((streams.len(), streams[0].rows), (1, 1));
    owner.append(&stream("s"), &schema(), vec![row("a", 2)]).await.unwrap();
    let soon = async {
        while reader.scan(&stream("s"), seen.next, 10).await.unwrap().unwrap().rows.is_empty() {
            changes.next().await;
        }
    };
    tokio::time::timeout(PATIENCE, soon).await.unwrap();
    owner.close().await.unwrap();
    assert_eq!(read_state(place.path()).unwrap(), Ownership::Nobody);
    assert_eq!(reader.kinds().await.unwrap().len(), 1, "the file is there without an owner");
}

#[tokio::test]
async fn a_change_is_told_of_at_once_and_looking_is_none() {
    let place = Place::new();
    let owner = open(&place.path()).await;
    owner.append(&stream("s"), &schema(), vec![row("a", 1)]).await.unwrap();
    let reader = read_only(place.path()).unwrap();
    reader.meta(&stream("s")).await.unwrap();
    let mut told = Vec::new();
    // Polling alone would tell after a second each time.
    for n in 2..12 {
        let mut changes = reader.changes();
        let begin = std::time::Instant::now();
        owner.append(&stream("s"), &schema(), vec![row("a", n)]).await.unwrap();
        changes.next().await;
        told.push(begin.elapsed());
    }
    told.sort();
    assert!(told[5].as_millis() < 500, "{told:?}");
    owner.close().await.unwrap();
}
