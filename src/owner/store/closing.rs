//! The end of an open store: what was published while nobody owned it is not left waiting for the next owner.

use std::sync::Arc;

use futures::FutureExt;

use super::core::Core;
use super::opener::Opener;
use super::owning::open;
use super::period::{close, standing};
use super::permit::{Permit, Permits};
use crate::clock::{Clock, SystemClock};
use crate::owner::candidate::Candidate;
use crate::owner::ingest::Ingestor;
use crate::owner::lock::OwnerLock;

/// How often it is looked once more: others may publish meanwhile, and each of them looks too when it ends.
const ROUNDS: usize = 3;

/// Ingests what is in the spool, if nobody owns the store.
pub(super) async fn ingest_the_rest<O: Opener>(core: &Arc<Core<O>>, candidate: &Candidate, permits: &Permits) {
    for _ in 0..ROUNDS {
        match core.spool.listed() {
            Ok(listed) if !listed.batches.is_empty() => {}
            _ => return,
        }
        // Somebody who owns it, or begins to, does it.
        let Ok(Some(lock)) = candidate.elect() else { return };
        // An fsck has it; whoever opens it next ingests.
        let Some(permit) = permits.try_enter().await else { return };
        let open = ingest(core, &lock, permit).await;
        drop(lock);
        // Who published meanwhile found the lock taken, and left it to this process: so it looks again.
        if !open {
            return;
        }
    }
}

/// `false`: there is no use in looking again.
async fn ingest<O: Opener>(core: &Core<O>, lock: &OwnerLock, permit: Permit) -> bool {
    let options = &core.options;
    let mut target = match open(core, &permit).await {
        Ok(target) => target,
        Err(error) => {
            tracing::debug!(%error, "what is left in the spool stays for the next owner");
            return false;
        }
    };
    let mut ingestor = Ingestor::new(&core.spool).formats(options.formats.clone()).on_poison(options.on_poison);
    let give_up = SystemClock.now() + options.drain_on_close;
    let goes_on = loop {
        let round = ingestor.round(&mut target, &mut standing(Some(lock), &permit));
        let an_fsck_comes = permit.closing().now_or_never().is_some();
        if !round.more || an_fsck_comes || SystemClock.now() >= give_up {
            break round.refused.is_none() && round.paused.is_none() && !an_fsck_comes;
        }
    };
    close(target, &permit);
    goes_on
}
