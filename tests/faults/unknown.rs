//! Statements whose fate is unknown: the reply is lost after the server has applied it, or the request
//! arrives after the client has given up. Over hundreds of rounds no document is left and no lease is
//! granted twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockhouse::{Coordinator, Error, ErrorKind, Lease, LeaseTiming};
use mongodb::Collection;
use mongodb::bson::{Document, RawDocument, doc};

use crate::common::{BOUND, Server, builder, dead_writer, leases, soon, until_none};
use crate::support::poll::eventually;
use crate::support::proxy::{Action, Proxy};

/// As short as it may be: each lost answer costs a call's whole limit.
const QUICK: LeaseTiming = LeaseTiming {
    refresh_interval: Duration::from_millis(500),
    stale_multiplier: 3,
    poll_initial: Duration::from_millis(5),
    poll_max: Duration::from_millis(50),
};

/// The statements of a lease's life.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Register,
    LookAsWriter,
    Install,
    LookAsFsck,
    Phase,
    Raise,
    Commit,
    Refresh,
    ReleaseWriter,
    ReleaseFsck,
    Prune,
    Clear,
}

/// All but the commit of a transaction, which a standalone server does not have.
const STEPS: [Step; 11] = [
    Step::Register,
    Step::Install,
    Step::Phase,
    Step::Raise,
    Step::Refresh,
    Step::ReleaseWriter,
    Step::ReleaseFsck,
    Step::Prune,
    Step::Clear,
    Step::LookAsWriter,
    Step::LookAsFsck,
];

const LANES: usize = 8;
const ROUNDS: usize = 25;

fn command(body: &RawDocument) -> &str {
    body.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str())
}

impl Step {
    /// Whether a request is this step, given that it is sent during the step's verb.
    fn is(self, body: &RawDocument) -> bool {
        let yes = |key: &str| body.get_bool(key).unwrap_or(false);
        match self {
            Step::Register | Step::Raise | Step::Refresh => command(body) == "update",
            Step::LookAsWriter | Step::LookAsFsck => matches!(command(body), "find" | "aggregate"),
            Step::Install => command(body) == "findAndModify" && yes("upsert"),
            // On a replica set one command turns the phase and raises the layout.
            Step::Phase => match command(body) {
                "findAndModify" => !yes("upsert"),
                "update" => yes("startTransaction"),
                _ => false,
            },
            Step::Commit => command(body) == "commitTransaction",
            Step::ReleaseWriter | Step::ReleaseFsck | Step::Prune | Step::Clear => command(body) == "delete",
        }
    }
}

/// One store, and a way to it on which statements meet their fate.
struct Lane {
    uri: String,
    proxy: Proxy,
    collection: Collection<Document>,
    other: Coordinator,
}

impl Lane {
    async fn round(&self, step: Step, action: Action) -> usize {
        let coordinator = eventually(BOUND, "to connect", || builder(&self.uri).timing(QUICK).connect()).await;
        // The store is checked once, before the first verb that writes.
        eventually(BOUND, "a first lease", || async { coordinator.acquire_writer().await?.release().await }).await;
        let met = Arc::new(AtomicUsize::new(0));
        let arm = || {
            let met = met.clone();
            let is = move |body: &RawDocument| {
                let is = step.is(body);
                met.fetch_add(usize::from(is), Ordering::Relaxed);
                is
            };
            self.proxy.on_matching(is, action, 1);
        };
        let context = format!("{step:?} {action:?}");
        match step {
            Step::Register | Step::LookAsWriter => {
                arm();
                let lease = soon(coordinator.acquire_writer()).await;
                self.proxy.release_held().await;
                if let Some(lease) = tolerated(lease, &context) {
                    self.stands(&lease, &context).await;
                    tolerated(soon(lease.release()).await, &context);
                }
            }
            Step::Install | Step::LookAsFsck | Step::Phase | Step::Raise | Step::Commit => {
                arm();
                let fsck = soon(coordinator.acquire_fsck()).await;
                self.proxy.release_held().await;
                if let Some(fsck) = tolerated(fsck, &context) {
                    self.stands(&fsck, &context).await;
                    let rival = soon(self.other.acquire_fsck()).await;
                    if fsck.check().is_ok() {
                        assert!(rival.is_err(), "{context}: granted twice");
                    }
                    tolerated(soon(fsck.release()).await, &context);
                }
            }
            Step::Refresh => {
                if let Some(lease) = tolerated(soon(coordinator.acquire_writer()).await, &context) {
                    arm();
                    eventually(BOUND, "a refresh to meet its fate", || async {
                        if met.load(Ordering::Relaxed) > 0 { Ok(()) } else { Err("not yet") }
                    })
                    .await;
                    eventually(BOUND, "the lease to be confirmed again", || lease.refresh_heartbeat(true)).await;
                    self.proxy.release_held().await;
                    self.stands(&lease, &context).await;
                    tolerated(soon(lease.release()).await, &context);
                }
            }
            Step::ReleaseWriter => {
                if let Some(lease) = tolerated(soon(coordinator.acquire_writer()).await, &context) {
                    arm();
                    tolerated(soon(lease.release()).await, &context);
                    self.proxy.release_held().await;
                }
            }
            Step::ReleaseFsck => {
                if let Some(fsck) = tolerated(soon(coordinator.acquire_fsck()).await, &context) {
                    arm();
                    tolerated(soon(fsck.release()).await, &context);
                    // A late delete must not touch the next holder's document, which has the same id.
                    let next = soon(self.other.acquire_fsck().wait(BOUND)).await.unwrap();
                    self.proxy.release_held().await;
                    self.stands(&next, &context).await;
                    next.release().await.unwrap();
                }
            }
            Step::Prune => {
                dead_writer(&self.collection, "lease/dead", 3600).await;
                arm();
                let pruned = soon(coordinator.prune_stale_writers()).await;
                self.proxy.release_held().await;
                if let Some(pruned) = tolerated(pruned, &context) {
                    assert_eq!(pruned.cleared.len(), 1, "{context}");
                }
                let _ = self.collection.delete_one(doc! { "_id": "lease/dead" }).await.unwrap();
            }
            Step::Clear => {
                dead_writer(&self.collection, "lease/fsck", 3600).await;
                self.collection
                    .update_one(doc! { "_id": "lease/fsck" }, doc! { "$unset": { "kind": 1 } })
                    .await
                    .unwrap();
                arm();
                let cleared = soon(coordinator.clear_stale_lock()).await;
                // Again: the late delete names a pulse, and must not touch the next holder's document.
                let next = match tolerated(cleared, &context) {
                    Some(cleared) => {
                        assert_eq!(cleared.cleared.len(), 1, "{context}");
                        Some(soon(self.other.acquire_fsck().wait(BOUND)).await.unwrap())
                    }
                    None => None,
                };
                self.proxy.release_held().await;
                if let Some(next) = next {
                    self.stands(&next, &context).await;
                    next.release().await.unwrap();
                }
                let _ = self.collection.delete_one(doc! { "_id": "lease/fsck", "lockhouse.holder.host": "gone" }).await;
            }
        }
        self.proxy.clear_rules();
        // Nobody holds anything, and everything late has come: whatever is still to go goes by itself on a
        // replica set, and at the latest with the coordinator on a standalone.
        soon(coordinator.shutdown()).await;
        let left = leases(&self.collection).await;
        assert!(left.is_empty(), "{context}: left behind: {left:?}");
        met.load(Ordering::Relaxed)
    }

    /// A lease that its holder may believe in has its document.
    async fn stands(&self, lease: &Lease, context: &str) {
        if lease.check().is_err() {
            return;
        }
        let own = doc! { "_id": lease.identifier(), "owner": lease.owner() };
        let there = self.collection.find_one(own).await.unwrap().is_some();
        assert!(there || lease.check().is_err(), "{context}: held without a document");
    }
}

/// A verb that meets such a fate succeeds, or says that the store could not be had.
fn tolerated<T>(result: Result<T, Error>, context: &str) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let fair = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::LeaseLost);
            assert!(fair, "{context}: {error:?}");
            None
        }
    }
}

async fn lane(server: Server, number: usize) -> (usize, usize) {
    let database = server.database();
    let proxy = database.proxy();
    let other = crate::common::first(&database.uri(), "other").await;
    let collection = crate::common::collection(&database).await;
    let lane = Lane { uri: database.uri_through(&proxy), proxy, collection, other };
    let (mut met, mut rounds) = (0, 0);
    let commit = (server == Server::ReplicaSet).then_some(Step::Commit);
    let steps: Vec<Step> = commit.into_iter().chain(STEPS).collect();
    for round in 0..ROUNDS {
        let fate = number * ROUNDS + round;
        let actions = [Action::DropReply, Action::HoldRequest, Action::CutReply];
        met += usize::from(lane.round(steps[fate % steps.len()], actions[fate / steps.len() % 3]).await > 0);
        rounds += 1;
    }
    until_none(&lane.collection).await;
    (met, rounds)
}

async fn two_hundred_rounds(server: Server) {
    let lanes = (0..LANES).map(|number| tokio::spawn(lane(server, number)));
    let (mut met, mut rounds) = (0, 0);
    for lane in futures::future::join_all(lanes).await {
        let (lane_met, lane_rounds) = lane.unwrap();
        met += lane_met;
        rounds += lane_rounds;
    }
    assert_eq!(rounds, LANES * ROUNDS);
    assert!(met * 10 >= rounds * 9, "only {met} of {rounds} rounds met their fate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_results_leave_nothing_on_a_replica_set() {
    two_hundred_rounds(Server::ReplicaSet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_results_leave_nothing_on_a_standalone() {
    two_hundred_rounds(Server::Standalone).await;
}

/// Without a shutdown, too: the delete is repeated by itself one stale age later, which is as long as a
/// standalone server may show the document of somebody who has given up.
#[tokio::test]
async fn a_late_registration_on_a_standalone_goes_after_a_stale_age() {
    let database = Server::Standalone.database();
    let collection = crate::common::collection(&database).await;
    crate::common::first(&database.uri(), "other").await;
    let proxy = database.proxy();
    let coordinator = builder(&database.uri_through(&proxy)).connect().await.unwrap();
    coordinator.acquire_writer().await.unwrap().release().await.unwrap();
    proxy.on_matching(|body| Step::Register.is(body), Action::HoldRequest, 1);
    let lease = soon(coordinator.acquire_writer()).await;
    assert_eq!(proxy.release_held().await, 1);
    let standing = usize::from(lease.is_ok());
    assert_eq!(leases(&collection).await.len(), standing + 1, "the late registration was applied");
    eventually(BOUND, "only what is held to be left", || async {
        let left = leases(&collection).await;
        if left.len() == standing { Ok(()) } else { Err(left) }
    })
    .await;
    if let Ok(lease) = lease {
        lease.check().unwrap();
        lease.release().await.unwrap();
    }
}
