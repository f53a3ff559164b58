//! The audit trail is written behind the verbs' backs: it costs little, delays nothing, and outlives a short
//! trouble.

use std::time::Duration;

use lockhouse::{Coordinator, LeaseTiming};
use mongodb::bson::RawDocument;

use crate::common::{BOUND, PATIENT, Server, soon};
use crate::support::poll::eventually;
use crate::support::proxy::{Action, Proxy};

/// Nothing is refreshed while a test lasts.
const CALM: LeaseTiming = LeaseTiming { refresh_interval: Duration::from_secs(120), ..PATIENT };

async fn connect(uri: &str, timing: LeaseTiming) -> Coordinator {
    let connect = || Coordinator::builder(uri).unwrap().timing(timing).connect();
    let coordinator = eventually(BOUND, "to connect", connect).await;
    coordinator.init().await.unwrap();
    coordinator
}

/// What was sent for leases and the history, in no order: lines are written beside the rest.
fn sent(proxy: &Proxy) -> Vec<String> {
    let mut sent = proxy.commands();
    sent.retain(|name| ["findAndModify", "update", "delete", "find", "aggregate"].contains(&name.as_str()));
    sent.sort();
    sent
}

async fn lines(coordinator: &Coordinator, what: &str) -> usize {
    coordinator.history().await.unwrap().iter().filter(|line| line.what == what).count()
}

async fn until_lines(coordinator: &Coordinator, what: &str, count: usize) {
    eventually(BOUND, "a line in the history", || async {
        match lines(coordinator, what).await {
            seen if seen == count => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
}

#[tokio::test]
async fn a_line_costs_one_command() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        let proxy = database.proxy();
        let reader = connect(&database.uri(), CALM).await;
        let coordinator = connect(&database.uri_through(&proxy), CALM).await;
        soon(coordinator.acquire_fsck()).await.unwrap().release().await.unwrap();
        until_lines(&reader, "released", 1).await;
        proxy.forget_commands();
        soon(coordinator.acquire_fsck()).await.unwrap().release().await.unwrap();
        until_lines(&reader, "released", 2).await;
        until_lines(&reader, "granted", 2).await;
        // Look, delete, install, the writers' turn, two lines, and the grant: its phase and generation are one command
        // where there are transactions.
        let mut all =
            vec!["aggregate", "delete", "findAndModify", "findAndModify", "update", "update", "update", "update"];
        if server == Server::ReplicaSet {
            all.remove(3);
        }
        assert_eq!(sent(&proxy), all, "{server:?}");
    }
}

#[tokio::test]
async fn a_line_that_meets_trouble_is_written_once_and_delays_nobody() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        for action in [Action::Cut, Action::CutReply] {
            let database = server.database();
            let proxy = database.proxy();
            let reader = connect(&database.uri(), PATIENT).await;
            let coordinator = connect(&database.uri_through(&proxy), PATIENT).await;
            let fsck = soon(coordinator.acquire_fsck()).await.unwrap();
            until_lines(&reader, "granted", 1).await;
            let update = |body: &RawDocument| body.get("update").is_ok_and(|name| name.is_some());
            // More often than the driver tries by itself.
            proxy.on_matching(update, action, 3);
            fsck.release().await.unwrap();
            until_lines(&reader, "released", 1).await;
            soon(coordinator.shutdown()).await;
            assert_eq!((lines(&reader, "granted").await, lines(&reader, "released").await), (1, 1), "{action:?}");
        }
    }
}
