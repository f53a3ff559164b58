//! The next owner.

use std::time::{Duration, Instant};

use lockhouse::owner::{Candidate, StatusOnly, Takeover, serve_control};

use crate::probe::Probe;
use crate::{PATIENCE, Store};

#[tokio::test]
async fn a_follower_is_told_and_elected_at_once() {
    let store = Store::new();
    let mut times = Vec::new();
    let mut told = 0;
    for _ in 0..5 {
        let mut owner = Probe::owner("serving", &store.path());
        let mut follower = Takeover::new(store.path(), "next").unwrap();
        let mut gone = follower.owners_gone();
        let following = tokio::spawn(async move { follower.elected().await.map(|owner| (owner, Instant::now())) });
        // Until the follower watches, it only polls.
        tokio::time::timeout(Duration::from_millis(300), gone.changed()).await.expect_err("the owner lives");
        let begin = Instant::now();
        owner.kill();
        let (next, at) = tokio::time::timeout(PATIENCE, following).await.unwrap().unwrap().unwrap();
        times.push(at - begin);
        told += *gone.borrow_and_update();
        next.release();
    }
    times.sort();
    // A try that was due at that very moment may come first.
    assert!((3..=5).contains(&told), "{told}");
    assert!(times[2] < Duration::from_millis(50), "{times:?}");
}

/// Who watches is told at the very end of a release, however long what comes before it takes.
#[tokio::test]
async fn a_follower_is_quick_when_an_owner_takes_its_time_to_go() {
    let store = Store::new();
    let mut times = Vec::new();
    for round in 0..9 {
        let owner = Candidate::new(store.path(), "slow").unwrap().elect().unwrap().unwrap();
        let server = serve_control(&owner, StatusOnly::of(&owner)).unwrap();
        let mut follower = Takeover::new(store.path(), "next").unwrap();
        let mut gone = follower.owners_gone();
        let following = tokio::spawn(async move { follower.elected().await.map(|owner| (owner, Instant::now())) });
        tokio::time::timeout(Duration::from_millis(200), gone.changed()).await.expect_err("the owner lives");
        server.drain();
        tokio::time::timeout(PATIENCE, gone.changed()).await.unwrap().unwrap();
        // Time to watch again, which the next telling is for.
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.close();
        // Longer than a follower is in haste, and at no fixed moment of its polling: one that was told of the closing
        // would find the store free at its next poll only.
        tokio::time::sleep(Duration::from_millis(200 + round * 11)).await;
        let begin = Instant::now();
        owner.release();
        let (next, at) = tokio::time::timeout(PATIENCE, following).await.unwrap().unwrap().unwrap();
        times.push(at - begin);
        assert_eq!(*gone.borrow_and_update(), 1, "one owner went");
        next.release();
    }
    times.sort();
    assert!(times[4] < Duration::from_millis(20), "{times:?}");
}

#[tokio::test]
async fn without_a_socket_it_only_takes_longer() {
    let store = Store::new();
    let mut owner = Probe::owner("owner", &store.path());
    let mut follower = Takeover::new(store.path(), "next").unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), follower.elected()).await.is_err());
    owner.kill();
    // The same follower again: nothing is lost by dropping the wait.
    let next = tokio::time::timeout(PATIENCE, follower.elected()).await.unwrap().unwrap();
    next.check().unwrap();
}

#[tokio::test]
async fn a_stopped_owner_is_no_dead_one() {
    let store = Store::new();
    let owner = Probe::owner("serving", &store.path());
    owner.stop();
    let mut follower = Takeover::new(store.path(), "next").unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(3), follower.elected()).await.is_err());
    owner.go_on();
    drop(owner);
    tokio::time::timeout(PATIENCE, follower.elected()).await.unwrap().unwrap().release();
}

#[tokio::test]
async fn of_many_followers_one_is_elected_and_the_rest_follow_it() {
    let store = Store::new();
    let mut owner = Probe::owner("serving", &store.path());
    let (elected, mut told) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..8 {
        let mut follower = Takeover::new(store.path(), "next").unwrap();
        let elected = elected.clone();
        tokio::spawn(async move {
            let owner = follower.elected().await.unwrap();
            let server = serve_control(&owner, StatusOnly::of(&owner)).unwrap();
            elected.send((owner, server)).unwrap();
        });
    }
    owner.kill();
    for round in 0..8 {
        let (owner, server) = tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
        owner.check().unwrap();
        assert!(told.try_recv().is_err(), "two owners in round {round}");
        server.close();
        owner.release();
    }
}

#[tokio::test]
async fn a_failed_promotion_is_followed_by_a_rest() {
    let store = Store::new();
    let mut follower = Takeover::of(Candidate::new(store.path(), "next").unwrap());
    follower.elected().await.unwrap().release();
    follower.failed();
    let begin = Instant::now();
    // Dropping the wait does not shorten it.
    assert!(tokio::time::timeout(Duration::from_millis(100), follower.elected()).await.is_err());
    let owner = tokio::time::timeout(PATIENCE, follower.elected()).await.unwrap().unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(500), "{:?}", begin.elapsed());
    owner.release();
    follower.succeeded();
    let begin = Instant::now();
    follower.elected().await.unwrap().release();
    assert!(begin.elapsed() < Duration::from_millis(500), "it rested");
}
