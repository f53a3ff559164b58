//! What a local store has beside its leases: its owner, and the batches that wait in its spool.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::clock::Moment;

/// What is beside the leases.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    pub(crate) owner: Option<Value>,
    pub(crate) spool: Option<Value>,
    /// When the oldest batch that waits was published.
    pub(crate) oldest: Option<Timestamp>,
}

/// Looks at it. A file system that hangs holds up a thread for that, and the look, but no request.
pub(crate) async fn look(path: Option<PathBuf>) -> Beside {
    #[cfg(feature = "local")]
    if let Some(path) = path {
        let read = tokio::task::spawn_blocking(move || {
            let owner = crate::owner::read_state(&path).ok().map(|owner| serde_json::json!(owner));
            // One that may not be looked at is shown as none.
            let spool = crate::spool::SpoolStatus::look(&path).ok().flatten();
            Beside {
                owner: owner.filter(|owner| !owner.is_null()),
                oldest: spool.as_ref().and_then(|spool| spool.oldest),
                spool: spool.map(|spool| serde_json::json!(spool)),
            }
        });
        return read.await.unwrap_or_default();
    }
    #[cfg(not(feature = "local"))]
    drop(path);
    Beside::default()
}

/// The batch that has been waiting for the longest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Oldest {
    published: Timestamp,
    /// When it was the oldest for the first time, as far as was looked.
    seen: Moment,
    /// How long it had been waiting at the last look.
    pub(crate) waited: Duration,
}

impl Oldest {
    /// As one look shows it. Its name says when it was published, by the wall clock; where that was set back since, it has
    /// waited for at least as long as it was looked at.
    pub(crate) fn new(published: Timestamp, before: Option<&Oldest>, wall: Timestamp, now: Moment) -> Oldest {
        let seen = before.filter(|before| before.published == published).map_or(now, |before| before.seen);
        let by_wall = Duration::try_from(wall.duration_since(published)).unwrap_or_default();
        Oldest { published, seen, waited: by_wall.max(now.since(seen)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::watch::now;

    #[test]
    fn the_oldest_batch_has_waited_since_it_was_published() {
        let published = Timestamp::from_second(1_000_000).unwrap();
        let later = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let (begin, second) = (now(), Duration::from_secs(1));
        let first = Oldest::new(published, None, later(7), begin);
        assert_eq!(first.waited, 7 * second);
        // The wall clock is set back by an hour: it is counted from the first look.
        let back = Oldest::new(published, Some(&first), later(-3590), begin + 3 * second);
        assert_eq!(back.waited, 3 * second);
        let on = Oldest::new(published, Some(&back), later(-3588), begin + 5 * second);
        assert_eq!(on.waited, 5 * second);
        // Another one.
        assert_eq!(Oldest::new(later(-3589), Some(&on), later(-3588), begin + 5 * second).waited, second);
        assert_eq!(Oldest::new(later(1), Some(&on), later(0), begin + 5 * second).waited, Duration::ZERO);
    }
}
