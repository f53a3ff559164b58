//! What an acquisition and its release send, command by command: as many as the protocol says, and as the bare driver's
//! side of `benches/leases` sends. Times are measured there; that nothing was added to the path is seen here.

use std::time::Duration;

use lockhouse::{LeaseTiming, Watch};
use mongodb::Collection;
use mongodb::bson::{Document, doc};

use crate::common::{BOUND, Server, builder, collection, first, sent};
use crate::support::poll::eventually;
use crate::support::proxy::Proxy;

/// Nothing is refreshed meanwhile.
const TIMING: LeaseTiming = LeaseTiming {
    refresh_interval: Duration::from_secs(60),
    stale_multiplier: 4,
    poll_initial: Duration::from_millis(5),
    poll_max: Duration::from_millis(100),
};

/// One line of the history is written beside each grant and each release of an fsck, and nobody waits for it.
const LINE: &str = "update";

async fn history_has(collection: &Collection<Document>, lines: u64) {
    eventually(BOUND, "the line in the history", || async {
        let range = doc! { "_id": { "$gte": "history/", "$lt": "history0" } };
        let there = collection.count_documents(range).await.unwrap();
        if there == lines { Ok(()) } else { Err(there) }
    })
    .await;
}

/// What was sent since the last time, in no order.
fn taken(proxy: &Proxy) -> Vec<String> {
    let mut taken = sent(proxy);
    proxy.forget_commands();
    taken.sort();
    taken
}

fn commands(all: &[&[&str]]) -> Vec<String> {
    let mut all: Vec<String> = all.concat().iter().map(|name| (*name).to_owned()).collect();
    all.sort();
    all
}

#[tokio::test]
async fn an_acquisition_and_its_release_send_what_the_protocol_says_and_no_more() {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let database = server.database();
        first(&database.uri(), "first").await.shutdown().await;
        let stored = collection(&database).await;
        let proxy = database.proxy();
        let connecting = || builder(&database.uri_through(&proxy)).timing(TIMING).watch(Watch::Never).connect();
        let coordinator = eventually(BOUND, "to connect", connecting).await;
        // The store is checked before the first lease, and the history trimmed with its first line.
        coordinator.acquire_fsck().await.unwrap().release().await.unwrap();
        history_has(&stored, 2).await;
        eventually(BOUND, "the history to be trimmed", || async {
            let sent = sent(&proxy);
            if sent.last().is_some_and(|last| last == "find") { Ok(()) } else { Err(sent) }
        })
        .await;
        proxy.forget_commands();

        let writer = coordinator.acquire_writer().await.unwrap();
        assert_eq!(taken(&proxy), commands(&[&["update", "find"]]), "register, look; {server:?}");
        writer.release().await.unwrap();
        assert_eq!(taken(&proxy), ["delete"], "{server:?}");

        let fsck = coordinator.acquire_fsck().await.unwrap();
        history_has(&stored, 3).await;
        let grant: &[&str] = match server {
            Server::ReplicaSet => &["update", "commitTransaction"],
            Server::Standalone => &["findAndModify", "update"],
        };
        let wanted = commands(&[&["findAndModify", "aggregate"], grant, &[LINE]]);
        assert_eq!(taken(&proxy), wanted, "install, look, grant; {server:?}");
        fsck.release().await.unwrap();
        history_has(&stored, 4).await;
        assert_eq!(taken(&proxy), commands(&[&["update", "delete"], &[LINE]]), "turn, release; {server:?}");
    }
}
