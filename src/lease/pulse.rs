//! What one observer saw of other leases' pulses, on its own clock. A lease whose pulse moves is alive,
//! whatever clocks say; one whose pulse stood still for its whole stale age is dead.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backend::Record;
use crate::clock::Moment;

/// Since when each lease's pulse has stood still.
#[derive(Debug)]
pub(crate) struct PulseWatch<P> {
    seen: BTreeMap<String, (P, Moment)>,
}

impl<P: Clone + PartialEq> PulseWatch<P> {
    pub(crate) fn new() -> Self {
        PulseWatch { seen: BTreeMap::new() }
    }

    /// Takes in one look whose reply came at `replied`: counting from the reply, not from the sending, can
    /// only make a watch longer.
    pub(crate) fn observe<'a>(&mut self, records: impl IntoIterator<Item = &'a Record<P>>, replied: Moment)
    where
        P: 'a,
    {
        for record in records {
            match self.seen.get_mut(&record.id) {
                Some((pulse, _)) if *pulse == record.pulse => {}
                Some(seen) => *seen = (record.pulse.clone(), replied),
                None => {
                    self.seen.insert(record.id.clone(), (record.pulse.clone(), replied));
                }
            }
        }
    }

    /// How long the pulse has stood still; zero if the lease was never seen.
    pub(crate) fn unmoved(&self, id: &str, now: Moment) -> Duration {
        self.seen.get(id).map_or(Duration::ZERO, |(_, since)| now.since(*since))
    }

    /// The pulse that was watched.
    pub(crate) fn pulse(&self, id: &str) -> Option<&P> {
        self.seen.get(id).map(|(pulse, _)| pulse)
    }
}
