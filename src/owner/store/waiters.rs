//! Who waits, over the control socket, for what becomes of which batches.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::owner::control::Ingested;
use crate::owner::ingest::Round;
use crate::records::{BatchOutcome, Source};

type Reply = oneshot::Sender<Result<Ingested, String>>;

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<Waiter>);

#[derive(Debug)]
struct Waiter {
    open: BTreeSet<String>,
    said: Ingested,
    reply: Reply,
}

impl Waiter {
    fn note(&mut self, id: &str, outcome: &BatchOutcome) {
        if self.open.remove(id) {
            self.said.ingested.push(id.to_owned());
            // It has no part that JSON lacks.
            self.said.results.insert(id.to_owned(), serde_json::to_value(outcome).unwrap_or_default());
        }
    }
}

impl Waiters {
    pub(super) fn add(&mut self, ids: Vec<String>, reply: Reply) {
        self.0.push(Waiter { open: ids.into_iter().collect(), said: Ingested::default(), reply });
    }

    /// Takes in what a round did, and what the ledger knows; answers whoever has all that he waits for, and everybody when
    /// nothing is left that they could wait for.
    pub(super) fn settle(&mut self, round: &Round, source: &dyn Source, now: Timestamp) {
        if self.0.is_empty() {
            return;
        }
        for waiter in &mut self.0 {
            for applied in &round.applied {
                waiter.note(applied.name.id(), &applied.outcome);
            }
            for id in waiter.open.clone() {
                if let Ok(Some(outcome)) = source.batch_outcome(&id) {
                    waiter.note(&id, &outcome);
                }
            }
            // One that cannot even be read, or moved past, has no row in the ledger.
            for failed in &round.failed {
                if let Some(name) = &failed.name {
                    waiter.note(name.id(), &BatchOutcome::Failed { at: now, error: failed.error.clone() });
                }
            }
        }
        let nothing_is_left = round.backlog == 0 && !round.more && round.paused.is_none();
        for waiter in std::mem::take(&mut self.0) {
            if waiter.reply.is_closed() {
                continue;
            }
            if waiter.open.is_empty() || nothing_is_left {
                let _ = waiter.reply.send(Ok(waiter.said));
            } else {
                self.0.push(waiter);
            }
        }
    }
}

/// What the ledger knows of some batches, for who does not wait.
pub(super) fn known(ids: &[String], source: &dyn Source, more: bool) -> Ingested {
    let (reply, _) = oneshot::channel();
    let mut waiter = Waiter { open: ids.iter().cloned().collect(), said: Ingested::default(), reply };
    for id in ids {
        if let Ok(Some(outcome)) = source.batch_outcome(id) {
            waiter.note(id, &outcome);
        }
    }
    waiter.said.more = more;
    waiter.said
}
