//! Being told by the server: a change stream over the collection, run as a task of the supervisor's local set.
//!
//! Nothing depends on it. When it cannot be had (a standalone, a missing privilege), breaks, is invalidated or its
//! history is lost, it ends, and whoever listened goes on by polling.

use std::rc::Rc;

use bson::doc;
use bson::raw::RawDocumentBuf;
use futures::StreamExt;
use mongodb::Collection;
use tokio::sync::watch;

use super::Mongo;
use super::connect::Topology;
use crate::backend::{Awaited, Changes, FSCK_ID};

/// From how many documents on a gate's stream costs the server more than it is worth.
const CROWDED: u64 = 200;

impl Mongo {
    /// Starts a stream, or shares one that runs.
    pub(super) fn told(&self, of: Awaited) -> Changes {
        if matches!(self.topology, Topology::Standalone) {
            return Changes::untold();
        }
        let running = match of {
            Awaited::Departure => &self.departures,
            Awaited::Arrival { .. } => &self.arrivals,
        };
        if let Some(running) = running.borrow().upgrade() {
            return Changes::told_by(running.subscribe());
        }
        let (sender, receiver) = watch::channel(());
        // The stream alone holds it: when that ends, whoever listens learns it, and the next one starts anew.
        let sender = Rc::new(sender);
        *running.borrow_mut() = Rc::downgrade(&sender);
        tokio::task::spawn_local(follow(self.collection.clone(), of, sender));
        Changes::told_by(receiver)
    }
}

/// Follows the stream until it ends, or nobody listens any more.
async fn follow(collection: Collection<RawDocumentBuf>, of: Awaited, sender: Rc<watch::Sender<()>>) {
    if of == (Awaited::Arrival { always: false }) {
        match collection.estimated_document_count().await {
            Ok(count) if count < CROWDED => {}
            Ok(count) => return tracing::debug!(count, "a crowded store: gates poll"),
            Err(error) => return tracing::debug!(%error, "no change stream; polling instead"),
        }
    }
    // A heartbeat is an update, and tells nothing new.
    let fsck_comes = doc! { "operationType": { "$in": ["insert", "replace"] }, "documentKey._id": FSCK_ID };
    let of_interest = match of {
        Awaited::Arrival { .. } => fsck_comes,
        Awaited::Departure => {
            let somebody_goes = doc! {
                "operationType": "delete",
                "documentKey._id": { "$gte": "lease/", "$lt": "lease0" },
            };
            doc! { "$or": [somebody_goes, fsck_comes] }
        }
    };
    let pipeline = [doc! { "$match": of_interest }, doc! { "$project": { "_id": 1, "operationType": 1 } }];
    let mut stream = match collection.watch().pipeline(pipeline).await {
        Ok(stream) => stream.with_type::<RawDocumentBuf>(),
        Err(error) => {
            let error = error.kind;
            return tracing::info!(%error, "no change stream; polling instead");
        }
    };
    // From here on all is told; what came before may have been missed.
    let _ = sender.send(());
    loop {
        tokio::select! {
            biased;
            () = sender.closed() => return,
            change = stream.next() => match change {
                Some(Ok(_)) => drop(sender.send(())),
                Some(Err(error)) => {
                    let error = error.kind;
                    return tracing::info!(%error, "the change stream broke; polling instead");
                }
                None => return tracing::info!("the change stream ended; polling instead"),
            },
        }
    }
}
