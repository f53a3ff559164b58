//! The watcher: one task that looks at the store, one that asks the supervisor for a sign of life, one that hears what
//! happens to the coordinator's own leases. What they saw last is all that requests read.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Options;
use super::events::Log;
use super::local::{self, Oldest};
use super::news;
use super::timeline::Timeline;
use crate::clock::{Clock, Moment, SystemClock, wall};
use crate::{Coordinator, Error, HistoryEntry, LeaseKind, LeaseState, Measures, Result, Status, StoreName};

/// How often the supervisor is asked for a sign of life.
const PULSE: Duration = Duration::from_secs(1);
/// How old its last one may be. A supervisor answers within microseconds; this is for a machine that is busy.
const SILENCE: Duration = Duration::from_secs(5);
/// Of the time that passes, looking takes one part in so many.
const SHARE: u32 = 10;
/// The shortest pause between two looks, however much happens.
const BREATH: Duration = Duration::from_millis(100);
/// Beyond three pauses a look is old after so long: a store that is away is retried for a while before that is said.
const GRACE: Duration = Duration::from_secs(5);
/// How often the audit trail is read when nothing shows that it grew.
const TRAIL: Duration = Duration::from_secs(60);
/// Between two attempts to connect.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// Where the coordinator comes from.
pub(crate) enum Connect {
    Done(Coordinator),
    Trying(Box<dyn FnMut() -> BoxFuture<'static, Result<Coordinator>> + Send>),
}

/// Watching ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Watching {
    _end: DropGuard,
}

/// The leases of a look, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) fresh: usize,
    pub(crate) stale: usize,
    pub(crate) malformed: usize,
}

/// One look at the store.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) status: Status,
    /// Of the batches that wait in a local store's spool.
    pub(crate) oldest: Option<Oldest>,
    pub(crate) answered: Moment,
    pub(crate) took: Duration,
    /// From then on it is old.
    pub(crate) old_from: Moment,
    pub(crate) writers: Tally,
    json: OnceLock<Bytes>,
}

impl Look {
    fn new(status: Status, oldest: Option<Oldest>, answered: Moment, took: Duration, pause: Duration) -> Look {
        let mut writers = Tally::default();
        for writer in &status.writers {
            match writer.state {
                LeaseState::Fresh => writers.fresh += 1,
                LeaseState::Stale => writers.stale += 1,
                LeaseState::Malformed => writers.malformed += 1,
            }
        }
        let old_from = answered + pause * 3 + GRACE;
        Look { status, oldest, answered, took, old_from, writers, json: OnceLock::new() }
    }

    /// The JSON of the status, made once for all who ask.
    pub(crate) fn json(&self) -> Bytes {
        let make = || match serde_json::to_vec(&self.status) {
            Ok(json) => json.into(),
            // Only a map with keys that are no text could fail; there is none.
            Err(_) => Bytes::from_static(b"{\"schema\":1}"),
        };
        self.json.get_or_init(make).clone()
    }

    pub(crate) fn age(&self) -> Duration {
        now().since(self.answered)
    }

    /// How long the oldest batch in the spool has been waiting.
    pub(crate) fn lag(&self) -> Duration {
        self.oldest.as_ref().map_or(Duration::ZERO, |oldest| oldest.waited + self.age())
    }

    pub(crate) fn is_old(&self) -> bool {
        now() >= self.old_from
    }
}

/// Why the store could not be looked at, and since when.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) message: String,
    pub(crate) since: Moment,
}

/// What is known of the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// The last look that was answered.
    pub(crate) look: Option<Arc<Look>>,
    /// Why there is no newer one.
    pub(crate) trouble: Option<Trouble>,
    pub(crate) history: Arc<Vec<HistoryEntry>>,
    /// There is a coordinator.
    pub(crate) connected: bool,
}

/// The last sign of life of the supervisor.
#[derive(Debug)]
pub(crate) struct Vitals {
    pub(crate) measures: Option<Arc<Measures>>,
    answered: Moment,
    ended: bool,
}

/// How the supervisor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Well,
    Silent(Duration),
    Ended,
}

/// All that requests read.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) store: StoreName,
    pub(crate) began: Moment,
    pub(crate) log: Log,
    seen: ArcSwap<Seen>,
    vitals: ArcSwap<Vitals>,
    timeline: Mutex<Timeline>,
    /// Raised by each look.
    looks: watch::Sender<u64>,
    nudged: Notify,
}

impl Watched {
    pub(crate) fn seen(&self) -> Arc<Seen> {
        self.seen.load_full()
    }

    pub(crate) fn measures(&self) -> Option<Arc<Measures>> {
        self.vitals.load().measures.clone()
    }

    pub(crate) fn health(&self) -> Health {
        let vitals = self.vitals.load();
        let silence = now().since(vitals.answered);
        match vitals.ended {
            true => Health::Ended,
            // Before there is a supervisor nobody can be silent.
            false if !self.seen.load().connected || silence < SILENCE => Health::Well,
            false => Health::Silent(silence),
        }
    }

    pub(crate) fn timeline(&self) -> Timeline {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Completes with each look.
    pub(crate) fn looks(&self) -> watch::Receiver<u64> {
        self.looks.subscribe()
    }

    fn publish(&self, seen: Seen) {
        let before = self.seen.load_full();
        match (&before.trouble, &seen.trouble) {
            (None, Some(trouble)) => tracing::warn!(error = trouble.message, "the store does not answer"),
            (Some(_), None) => tracing::warn!(store = %self.store, "the store answers again"),
            _ => {}
        }
        for what in news::between(&before, &seen) {
            self.log.add(what);
        }
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner).note(now().since(self.began), &seen);
        self.seen.store(Arc::new(seen));
        self.looks.send_modify(|looks| *looks += 1);
    }
}

/// Time that does not run while the machine sleeps: after a sleep nothing is old that has had no chance to be renewed.
pub(crate) fn now() -> Moment {
    SystemClock.awake()
}

async fn sleep(duration: Duration) {
    SystemClock.sleep_until(SystemClock.now() + duration).await;
}

/// Begins to watch.
pub(crate) fn start(store: StoreName, connect: Connect, options: Options) -> (Arc<Watched>, Watching) {
    let began = now();
    let watched = Arc::new(Watched {
        store,
        began,
        log: Log::new(),
        seen: ArcSwap::from_pointee(Seen::default()),
        vitals: ArcSwap::from_pointee(Vitals { measures: None, answered: began, ended: false }),
        timeline: Mutex::new(Timeline::default()),
        looks: watch::Sender::new(0),
        nudged: Notify::new(),
    });
    let end = CancellationToken::new();
    let ended = end.clone();
    let watching = watched.clone();
    tokio::spawn(async move {
        ended.run_until_cancelled(watch_all(watching, connect, options)).await;
    });
    (watched, Watching { _end: end.drop_guard() })
}

async fn watch_all(watched: Arc<Watched>, connect: Connect, options: Options) {
    let coordinator = match connect {
        Connect::Done(coordinator) => coordinator,
        Connect::Trying(mut connect) => loop {
            match connect().await {
                Ok(coordinator) => break coordinator,
                Err(error) => {
                    let seen = watched.seen();
                    let trouble = Some(trouble(&seen, &error));
                    watched.publish(Seen { trouble, ..Seen::clone(&seen) });
                    sleep(CONNECT_AGAIN).await;
                }
            }
        },
    };
    // The supervisor has just shown that it lives: from here on it is asked.
    let vitals = Vitals { measures: None, answered: now(), ended: false };
    watched.vitals.store(Arc::new(vitals));
    watched.seen.store(Arc::new(Seen { connected: true, ..Seen::clone(&watched.seen()) }));
    let looking = look_at_store(&watched, &coordinator, &options);
    let asking = ask_supervisor(&watched, &coordinator);
    let hearing = hear(&watched, &coordinator);
    tokio::join!(looking, asking, hearing);
}

fn trouble(seen: &Seen, error: &Error) -> Trouble {
    let since = seen.trouble.as_ref().map_or_else(now, |trouble| trouble.since);
    Trouble { message: error.again().to_string(), since }
}

async fn look_at_store(watched: &Watched, coordinator: &Coordinator, options: &Options) {
    let mut trail = Trail::default();
    loop {
        let began = now();
        let looked = coordinator.status().await;
        let (answered, before) = (now(), watched.seen());
        let took = answered.since(began);
        let pause = options.every.max(BREATH).max(took * (SHARE - 1));
        let seen = match looked {
            Ok(mut status) => {
                let beside = local::look(options.path.clone()).await;
                (status.owner, status.spool) = (beside.owner, beside.spool);
                let known = before.look.as_ref().and_then(|look| look.oldest.as_ref());
                let oldest = beside.oldest.map(|oldest| Oldest::new(oldest, known, wall(), answered));
                let history = trail.read(coordinator, &status, &before.history).await;
                let look = Some(Arc::new(Look::new(status, oldest, answered, took, pause)));
                Seen { look, trouble: None, history, connected: true }
            }
            // It is not the store that is gone.
            Err(_) if coordinator.measures().await.is_err() => return,
            Err(error) => Seen { trouble: Some(trouble(&before, &error)), ..Seen::clone(&before) },
        };
        watched.publish(seen);
        tokio::select! {
            () = sleep(pause) => {}
            () = watched.nudged.notified() => sleep(BREATH.max(took * (SHARE - 1))).await,
        }
    }
}

/// When the audit trail was read.
#[derive(Debug, Default)]
struct Trail {
    read: Option<Moment>,
    /// What the store was like then: a verb that writes a line changes it.
    like: Value,
}

impl Trail {
    async fn read(
        &mut self,
        coordinator: &Coordinator,
        status: &Status,
        known: &Arc<Vec<HistoryEntry>>,
    ) -> Arc<Vec<HistoryEntry>> {
        let fsck = status.fsck.as_ref().map(|fsck| (&fsck.owner, fsck.phase));
        let like = json!([status.generation, fsck, status.needing_a_person().count()]);
        if like == self.like && self.read.is_some_and(|read| now().since(read) < TRAIL) {
            return known.clone();
        }
        match coordinator.history().await {
            Ok(history) => {
                (self.read, self.like) = (Some(now()), like);
                Arc::new(history)
            }
            // The next look tries again.
            Err(_) => known.clone(),
        }
    }
}

async fn ask_supervisor(watched: &Watched, coordinator: &Coordinator) {
    loop {
        match coordinator.measures().await {
            Ok(measures) => {
                let vitals = Vitals { measures: Some(Arc::new(measures)), answered: now(), ended: false };
                watched.vitals.store(Arc::new(vitals));
            }
            Err(_) => {
                let measures = watched.measures();
                watched.vitals.store(Arc::new(Vitals { measures, answered: now(), ended: true }));
                return;
            }
        }
        sleep(PULSE).await;
    }
}

async fn hear(watched: &Watched, coordinator: &Coordinator) {
    let mut events = coordinator.events();
    while let Some(event) = events.next().await {
        watched.log.add(json!(event));
        watched.nudged.notify_one();
    }
}

impl Seen {
    /// The leases that will not go away without a person: the fsck's and the writers'.
    pub(crate) fn needing_a_person(&self) -> (bool, usize) {
        let Some(look) = &self.look else { return (false, 0) };
        let fsck = look.status.fsck.as_ref();
        let fsck = fsck.is_some_and(|fsck| fsck.kind == LeaseKind::Fsck && fsck.state != LeaseState::Fresh);
        (fsck, look.writers.stale + look.writers.malformed)
    }
}
