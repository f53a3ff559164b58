//! What an ingestor does each minute, in a pause too: on a full disk it is what makes room.

use std::collections::HashSet;
use std::time::Duration;

use super::Ingestor;
use super::report::Round;
use super::round::Halt;
use crate::clock::Moment;
use crate::records::{Standing, Target};
use crate::spool::{self, Directories, Listed};

/// How often the trash is emptied, and what went wrong on the way out of `incoming/` is tried again.
pub(super) const EVERY: Duration = Duration::from_secs(60);
/// How long that may take.
const TIME: Duration = Duration::from_millis(100);

impl Ingestor {
    /// When there is something to tidy.
    pub(super) fn tidies_at(&self) -> Moment {
        self.tidied.map_or(Moment::ORIGIN, |tidied| tidied + EVERY)
    }

    /// Empties the trash, and removes what dead producers left.
    pub(super) fn tidy(&mut self, directories: &Directories, round: &mut Round) {
        let now = self.clock.now();
        if now < self.tidies_at() {
            return;
        }
        self.unexplained.retain(|(name, reason)| match spool::explain(directories, name, reason) {
            Ok(()) => false,
            Err(error) => {
                tracing::debug!(%error, ?name, "why it failed cannot be written beside it yet");
                true
            }
        });
        match spool::collect(directories, &*self.clock, now + TIME) {
            Ok(collected) if collected.more => round.more = true,
            Ok(_) => self.tidied = Some(now),
            Err(error) => {
                tracing::warn!(%error, "the spool cannot be tidied");
                self.tidied = Some(now);
            }
        }
    }

    /// Lets the ledger forget what is old, but not what still lies in `incoming/`: it would be applied again.
    pub(super) fn sweep(
        &mut self,
        directories: &Directories,
        target: &mut dyn Target,
        standing: Standing<'_>,
    ) -> Result<(), Halt> {
        let (now, wall) = (self.clock.now(), (self.wall)());
        let Some(before) = self.aging.due(now, wall) else { return Ok(()) };
        // Not done until it is.
        self.aging.again(now + EVERY);
        let mut there: HashSet<String> = HashSet::new();
        // One listing may miss something.
        for _ in 0..2 {
            let listed = Listed::of(self.names(directories)?);
            there.extend(listed.batches.iter().map(|name| name.id().to_owned()));
        }
        let forgot = target.sweep_batches(before, &|id| there.contains(id), standing)?;
        self.aging.again(now + EVERY * 60);
        if forgot > 0 {
            tracing::debug!(forgot, "the ledger forgot old batches");
        }
        Ok(())
    }
}
