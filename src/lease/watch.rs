//! Being told instead of asking: it only ever shortens a sleep. What cannot be told, or no longer, is asked for.

use std::time::Duration;

use crate::backend::{Awaited, Backend, Changes};
use crate::clock::Moment;
use crate::lease::supervisor::Supervisor;

/// Whether a coordinator lets the store tell it of changes (on MongoDB by a change stream, on a local store by
/// directory events), or only asks. A telling costs a MongoDB server about 4 µs for each write of the collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Watch {
    /// While it drains or waits; and for its gates as long as fewer than 200 documents stand in the collection.
    #[default]
    Auto,
    /// Also for the gates of a crowded store.
    Always,
    /// Never: it only polls.
    Never,
}

/// How soon a telling that could not be had, or broke, is asked for again.
const AGAIN: Duration = Duration::from_secs(30);

/// What the renewer hears: an fsck that comes, for which gates close; on a local store anything, for it may be that
/// somebody took a lease's file away.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    changes: Option<Changes>,
    asked: Option<Moment>,
}

impl Arrivals {
    /// Completes when there is something to look at. Never, where nobody of this process wants to know.
    pub(crate) async fn next<B: Backend>(&mut self, supervisor: &Supervisor<B>) {
        let wanted = supervisor.backend.traits().knows_the_living || supervisor.has_open_gates();
        let always = match supervisor.watch {
            Watch::Never => None,
            Watch::Auto => Some(false),
            Watch::Always => Some(true),
        };
        let Some(always) = always.filter(|_| wanted) else {
            self.changes = None;
            return std::future::pending().await;
        };
        if !self.changes.as_ref().is_some_and(Changes::are_told) {
            let now = supervisor.clock.now();
            if self.asked.is_none_or(|asked| now.since(asked) >= AGAIN) {
                self.asked = Some(now);
                self.changes = Some(supervisor.backend.changes(Awaited::Arrival { always }));
            }
        }
        match &mut self.changes {
            Some(changes) => changes.next().await,
            None => std::future::pending().await,
        }
    }
}
