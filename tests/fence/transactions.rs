//! What a user of fences relies on.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockhouse::mongodb::bson::doc;
use lockhouse::{Coordinator, ErrorKind, FencedError, GateOptions, WriterLease};

use crate::support::database::{TestDatabase, database, standalone_database};
use crate::support::poll::eventually;
use crate::{BOUND, TIMING, User, connect};

struct Store {
    database: TestDatabase,
    user: User,
    coordinator: Coordinator,
}

async fn store() -> Store {
    let database = database();
    let user = User::of(&database).await;
    let coordinator = connect(&database.uri(), "writer").await;
    Store { user, coordinator, database }
}

impl Store {
    async fn lease(&self) -> WriterLease {
        self.coordinator.acquire_writer().await.unwrap()
    }
}

#[tokio::test]
async fn a_fenced_transaction_is_committed_and_its_fences_go_with_the_lease() {
    let store = store().await;
    let lease = store.lease().await;
    let mut session = store.user.session().await;
    for n in 0..50 {
        let data = &store.user.data;
        lease
            .fenced(&mut session, async |session| data.insert_one(doc! { "n": n }).session(session).await)
            .await
            .unwrap();
    }
    assert_eq!(store.user.written().await, 50);
    let fences = store.user.fences().await;
    assert!((1..=8).contains(&fences), "a session has one slot, however often it is used: {fences}");
    lease.release().await.unwrap();
    assert_eq!(store.user.fences().await, 0);
}

#[tokio::test]
async fn guards_and_an_fsck_fence_too() {
    let store = store().await;
    let gate = store.coordinator.gate(GateOptions::default());
    let (mut session, data) = (store.user.session().await, &store.user.data);
    let guard = gate.enter().await.unwrap();
    let write = async |session: &mut _| data.insert_one(doc! {}).session(session).await;
    guard.fenced(&mut session, write).await.unwrap();
    drop((guard, gate));
    eventually(BOUND, "the gate's lease to go with its fences", || async {
        match store.user.fences().await {
            0 => Ok(()),
            left => Err(left),
        }
    })
    .await;
    let fsck = connect(&store.database.uri(), "fsck").await.acquire_fsck().await.unwrap();
    fsck.fenced(&mut session, write).await.unwrap();
    assert_eq!(store.user.written().await, 2);
    fsck.release().await.unwrap();
    assert_eq!(store.user.fences().await, 0);
}

#[tokio::test]
async fn a_lease_that_is_gone_lets_nothing_through() {
    let store = store().await;
    let lease = store.lease().await;
    let (mut session, data) = (store.user.session().await, &store.user.data);
    let write = async |session: &mut _| data.insert_one(doc! {}).session(session).await;
    lease.fenced(&mut session, write).await.unwrap();
    // As somebody's force does it: the lease, then its fences.
    let leases = &store.user.leases;
    leases.delete_one(doc! { "_id": lease.identifier() }).await.unwrap();
    leases.delete_many(doc! { "_id": { "$gte": "fence/", "$lt": "fence0" } }).await.unwrap();
    match lease.fenced(&mut session, write).await {
        Err(FencedError::Lease(error)) => assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.user.written().await, 1);
}

#[tokio::test]
async fn the_work_is_repeated_by_the_drivers_rules_and_its_errors_come_back() {
    let store = store().await;
    let lease = store.lease().await;
    let mut session = store.user.session().await;
    // The supervisor inserts too, the first time.
    lease.fenced(&mut session, async |_| Ok(())).await.unwrap();
    let fail_point = store.database.fail_command().commands(&["insert"]).error_code(112);
    let fail_point = fail_point.labels(&["TransientTransactionError"]).times(2).on().await;
    let (calls, data) = (AtomicUsize::new(0), &store.user.data);
    let write = async |session: &mut _| {
        calls.fetch_add(1, Ordering::Relaxed);
        data.insert_one(doc! { "_id": 1 }).session(session).await
    };
    lease.fenced(&mut session, write).await.unwrap();
    fail_point.off().await;
    assert_eq!((calls.load(Ordering::Relaxed), store.user.written().await), (3, 1));
    match lease.fenced(&mut session, write).await {
        Err(FencedError::Driver(error)) => assert!(error.to_string().contains("duplicate key"), "{error}"),
        other => panic!("{other:?}"),
    }
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_fence_outside_of_a_transaction_is_refused() {
    let store = store().await;
    let lease = store.lease().await;
    let mut session = store.user.session().await;
    let error = lease.fence(&mut session).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("start one first"), "{error}");
    session.start_transaction().await.unwrap();
    lease.fence(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    assert_eq!(lease.fence(&mut session).await.unwrap_err().kind(), ErrorKind::Invalid, "it has ended");
}

#[tokio::test]
async fn a_transaction_that_began_before_its_fence_is_told_to_begin_again() {
    let store = store().await;
    let lease = store.lease().await;
    let mut session = store.user.session().await;
    session.start_transaction().await.unwrap();
    store.user.data.find_one(doc! {}).session(&mut session).await.unwrap();
    let error = lease.fence(&mut session).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.is_retryable(), "{error}");
    assert!(session.commit_transaction().await.is_err(), "it is aborted");
    session.start_transaction().await.unwrap();
    store.user.data.find_one(doc! {}).session(&mut session).await.unwrap();
    lease.fence(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    lease.check().unwrap();
}

#[tokio::test]
async fn a_standalone_says_that_it_cannot() {
    let database = standalone_database();
    let user = User::of(&database).await;
    let lease = connect(&database.uri(), "writer").await.acquire_writer().await.unwrap();
    let mut session = user.session().await;
    let error = lease.fence(&mut session).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("replica set"), "{error}");
    let work = async |_: &mut _| panic!("nothing to be done");
    let error = lease.fenced::<()>(&mut session, work).await.unwrap_err();
    assert!(matches!(&error, FencedError::Lease(error) if error.kind() == ErrorKind::Invalid), "{error:?}");
}

#[tokio::test]
async fn a_thousand_at_once_do_not_collide() {
    let store = store().await;
    let lease = Arc::new(store.lease().await);
    let calls = Arc::new(AtomicUsize::new(0));
    let transactions = (0..1000).map(|n| {
        let (lease, calls, data, client) =
            (lease.clone(), calls.clone(), store.user.data.clone(), store.user.client.clone());
        async move {
            let mut session = client.start_session().await.unwrap();
            let work = async |session: &mut _| {
                calls.fetch_add(1, Ordering::Relaxed);
                data.insert_one(doc! { "_id": n }).session(session).await
            };
            lease.fenced(&mut session, work).await.unwrap();
        }
    });
    tokio::time::timeout(BOUND, futures::future::join_all(transactions)).await.expect("in time");
    assert_eq!(store.user.written().await, 1000);
    assert_eq!(calls.load(Ordering::Relaxed), 1000, "none was repeated");
    lease.check().unwrap();
}

#[tokio::test]
async fn an_open_transaction_holds_up_no_refresh() {
    let store = store().await;
    let lease = store.lease().await;
    let mut session = store.user.session().await;
    session.start_transaction().await.unwrap();
    lease.fence(&mut session).await.unwrap();
    let beats = async || {
        let lease = store.user.leases.find_one(doc! { "_id": lease.identifier() }).await.unwrap().unwrap();
        lease.get_document("lockhouse").unwrap().get_i64("beats").unwrap()
    };
    let before = beats().await;
    eventually(BOUND, "four refreshes more", || async {
        let now = beats().await;
        if now >= before + 4 { Ok(()) } else { Err(now) }
    })
    .await;
    lease.check().unwrap();
    session.commit_transaction().await.unwrap();
}

#[tokio::test]
async fn what_is_open_when_its_lease_is_given_back_ends_before_an_fsck_is_granted() {
    let store = store().await;
    let lease = store.lease().await;
    let mut session = store.user.session().await;
    session.start_transaction().await.unwrap();
    lease.fence(&mut session).await.unwrap();
    store.user.data.insert_one(doc! {}).session(&mut session).await.unwrap();
    lease.release().await.unwrap();
    assert!(store.user.fences().await > 0, "the transaction has them");
    fsck_waits_for(&store, session).await;
}

#[tokio::test]
async fn what_a_killed_fencer_left_the_next_fsck_fences() {
    let store = store().await;
    let lease = store.lease().await;
    let mut session = store.user.session().await;
    session.start_transaction().await.unwrap();
    lease.fence(&mut session).await.unwrap();
    store.user.data.insert_one(doc! {}).session(&mut session).await.unwrap();
    // It was killed after it had deleted the lease, and before it deleted the fences.
    store.user.leases.delete_one(doc! { "_id": lease.identifier() }).await.unwrap();
    fsck_waits_for(&store, session).await;
}

/// An fsck, without force, is not granted before the transaction that is open in `session` has ended.
async fn fsck_waits_for(store: &Store, mut session: lockhouse::mongodb::ClientSession) {
    let checker = connect(&store.database.uri(), "checker").await;
    let acquiring = tokio::spawn(checker.acquire_fsck().into_future());
    eventually(BOUND, "the fsck to be installed", || async {
        let fsck = store.user.leases.find_one(doc! { "_id": "lease/fsck" }).await.unwrap();
        fsck.map(drop).ok_or("not yet")
    })
    .await;
    // Time enough for some looks and a sweep.
    tokio::time::sleep(TIMING.refresh_interval + Duration::from_millis(500)).await;
    assert!(!acquiring.is_finished(), "granted beside an open fenced transaction");
    session.commit_transaction().await.unwrap();
    let fsck = tokio::time::timeout(BOUND, acquiring).await.unwrap().unwrap().unwrap();
    assert_eq!((store.user.written().await, store.user.fences().await), (1, 0));
    fsck.release().await.unwrap();
}
