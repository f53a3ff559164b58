//! Opening what cannot be owned, or not now, and what a process may do that is no longer the one that opened.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockhouse::owner::{BatchResult, Opener, Ownership, Role, Store, read_state};
use lockhouse::records::sqlite::SqliteTarget;
use lockhouse::records::{Entry, Operation, Outcome, StreamName};
use lockhouse::spool::NewBatch;
use lockhouse::{Coordinator, Error, ErrorKind, Result};

use crate::probe::Probe;
use crate::support::poll::eventually;
use crate::{PATIENCE, Place, numbers, open, row, schema, stream};

/// Far longer than anything takes that does not wait.
const SOON: Duration = Duration::from_secs(20);

/// What lies under the path is nothing that any owner could open: whoever opens it need not wait for one.
#[tokio::test]
async fn a_file_that_is_no_store_is_refused_at_once() {
    let place = Place::new();
    std::fs::write(place.path(), vec![b'x'; 8192]).unwrap();
    let opening = tokio::time::timeout(SOON, Store::open(place.path()).build("test").into_future());
    let error = opening.await.expect("an answer at once").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("no SQLite database"), "{error}");
    assert_eq!(read_state(place.path()).unwrap(), Ownership::Nobody);
}

#[tokio::test]
async fn a_build_that_does_not_know_the_catalog_never_owns_the_store() {
    let place = Place::new();
    open(&place.path()).await.close().await.unwrap();
    let later = rusqlite::Connection::open(place.path()).unwrap();
    later.pragma_update(None, "user_version", 99).unwrap();
    drop(later);
    let path = place.path();
    let opening = tokio::spawn(async move { Store::open(path).start_wait(Duration::from_secs(2)).await });
    while !opening.is_finished() {
        let owner = read_state(place.path()).unwrap();
        assert_eq!(owner, Ownership::Nobody, "it took the lock");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let error = opening.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::CatalogVersion(_)), "{error}");
}

/// As a build that knows no catalog so late: what it may read is another file, which has one.
#[derive(Debug, Clone)]
struct Earlier(PathBuf);

impl Opener for Earlier {
    type Target = SqliteTarget;

    fn catalog_version(&self) -> u32 {
        0
    }

    fn open(&self, file: &Path, store_id: &str) -> Result<SqliteTarget> {
        panic!("{} of the store {store_id} is opened for writing", file.display());
    }

    fn open_read_only(&self, _: &Path, store_id: &str) -> Result<Option<SqliteTarget>> {
        SqliteTarget::open_read_only(&self.0, store_id)
    }
}

/// A file whose catalog nobody knows yet.
fn later(place: &Place) -> Earlier {
    let path = place.0.path().join("later");
    drop(SqliteTarget::open(&path, "later").unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    Earlier(path)
}

fn rows(by: &str, numbers: std::ops::RangeInclusive<u64>) -> NewBatch {
    let rows = numbers.map(|n| row(by, n)).collect();
    let operation = Operation::Append { kind: schema().kind, rows, ttl: None, seal: false };
    NewBatch::new(vec![schema()], vec![Entry { stream: stream("s"), generation: None, operation }])
}

/// A batch whose outcome has no room in an answer of the owner: each of its entries is refused with a long text.
fn talkative() -> NewBatch {
    let name: StreamName = "n".repeat(200).parse().unwrap();
    let entry = Entry { stream: name, generation: None, operation: Operation::Seal };
    NewBatch::new(Vec::new(), vec![entry; 1000])
}

#[tokio::test]
async fn an_earlier_build_writes_through_a_later_owner() {
    let place = Place::new();
    let (mut owner, _) = Probe::start(&place.path());
    let earlier = later(&place);
    let store = tokio::time::timeout(PATIENCE, Store::open(place.path()).opener(earlier).into_future()).await;
    let store = store.unwrap().unwrap();
    let error = store.kinds().await.unwrap_err();
    assert!(matches!(error, Error::CatalogVersion(_)), "{error}");
    // What the owner did is what it says.
    let outcomes = tokio::time::timeout(PATIENCE, store.write(rows("earlier", 1..=3))).await.unwrap().unwrap();
    let Outcome::Applied(applied) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!((applied.stored, applied.first_seq, applied.last_seq), (3, Some(1), Some(3)));
    let unknown = tokio::time::timeout(SOON, store.await_batch("never")).await.expect("no wait").unwrap();
    assert_eq!(unknown, BatchResult::Unknown);
    // An answer that has no room for the outcome is the end of what this build can learn; it is not asked for ever.
    let error = tokio::time::timeout(SOON, store.write(talkative())).await.expect("an end").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Pending, "{error}");
    // It does not take over.
    owner.kill();
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        assert_eq!((store.role(), store.status()), (Role::Reader, Ownership::Nobody));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn an_outcome_that_is_too_long_for_an_answer_is_looked_up() {
    let place = Place::new();
    let (_owner, _) = Probe::start(&place.path());
    let store = open(&place.path()).await;
    let outcomes = tokio::time::timeout(SOON, store.write(talkative())).await.unwrap().unwrap();
    assert_eq!(outcomes.len(), 1000);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Refused(_))));
}

#[tokio::test]
async fn the_end_of_an_fsck_is_the_end_of_what_is_written_under_it() {
    let place = Place::new();
    open(&place.path()).await.close().await.unwrap();
    let checker = Coordinator::connect(place.path().to_str().unwrap()).await.unwrap();
    let fsck = checker.acquire_fsck().await.unwrap();
    let below = Store::open(place.path()).under_fsck(fsck.owner()).await.unwrap();
    below.append(&stream("s"), &schema(), vec![row("fsck", 1)]).await.unwrap();
    fsck.release().await.unwrap();
    let error = tokio::time::timeout(SOON, below.append(&stream("s"), &schema(), vec![row("fsck", 2)])).await;
    let error = error.expect("an end").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LeaseLost), "{error}");
    // From then on nothing is begun.
    eventually(PATIENCE, "the loss to be noticed", || async {
        match below.append(&stream("s"), &schema(), vec![row("fsck", 3)]).await {
            Err(error) if error.kind() == ErrorKind::LeaseLost => Ok(()),
            other => Err(other.map_err(|error| error.to_string())),
        }
    })
    .await;
    tokio::time::timeout(PATIENCE, below.close()).await.unwrap().unwrap();
    let store = open(&place.path()).await;
    let found = numbers(&store, "s", "fsck").await;
    assert_eq!(found.first(), Some(&1));
}

#[tokio::test]
async fn an_opener_waits_for_an_owner_that_is_starting() {
    let place = Place::new();
    let starting = lockhouse::owner::Candidate::new(place.path(), "slow").unwrap().elect().unwrap().unwrap();
    // An owner that never gets ready is named when the patience is over.
    let error = Store::open(place.path()).start_wait(Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("starting") && error.to_string().contains("slow"), "{error}");
    let path = place.path();
    let opening = tokio::spawn(async move { open(&path).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!opening.is_finished());
    starting.release();
    let store = tokio::time::timeout(PATIENCE, opening).await.unwrap().unwrap();
    assert_eq!(store.role(), Role::Owner);
}

#[tokio::test]
async fn two_handles_that_are_closed_at_once_both_wait_for_the_end() {
    let place = Place::new();
    for _ in 0..20 {
        let store = open(&place.path()).await;
        let other = store.clone();
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(2));
        let closing = [store, other].map(|store| {
            let barrier = barrier.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                barrier.wait();
                runtime.block_on(store.close()).unwrap();
            })
        });
        for thread in closing {
            thread.join().unwrap();
        }
        assert_eq!(read_state(place.path()).unwrap(), Ownership::Nobody);
    }
}

/// A child has none of its parent's threads: it is told so, and never waits for them.
#[tokio::test]
async fn a_forked_child_is_refused() {
    let place = Place::new();
    let (mut parent, role) = Probe::start(&place.path());
    assert_eq!(role, "owner");
    assert_eq!(parent.ask("append parent 1 1"), "done");
    assert_eq!(parent.ask("fork"), "child good");
    assert_eq!(parent.ask("append parent 2 2"), "done");
    let store = open(&place.path()).await;
    assert_eq!(numbers(&store, "s", "parent").await, [1, 2]);
}
