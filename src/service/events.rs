//! `/v1/events`: what happened, as server-sent events.
//!
//! The last [`KEPT`] are kept. A client that comes again with the id of the last one that it saw misses nothing that is
//! still kept. Nobody waits for a client: one that falls further behind than what is kept is let go, as is one whose
//! socket takes nothing for a while; it may come again.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures::stream::{self, Stream, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::serve::Closing;
use super::watch::Watched;

/// How many events are kept.
const KEPT: usize = 1024;
/// How many bytes of them: a reason may have thousands of characters.
const KEPT_BYTES: usize = 2 << 20;
/// How many clients may listen at a time.
const LISTENERS: usize = 64;
/// How often a comment shows that a silent stream lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// One event as it is sent.
#[derive(Debug)]
struct Entry {
    number: u64,
    name: String,
    text: String,
}

#[derive(Debug, Default)]
struct Kept {
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
}

/// What happened, the last of it.
#[derive(Debug)]
pub(crate) struct Log {
    /// Begins every id: the numbers of another run mean nothing here.
    run: String,
    kept: Mutex<Kept>,
    newest: watch::Sender<u64>,
    listeners: Arc<AtomicUsize>,
}

/// What a listener finds next.
enum Next {
    Entry(Arc<Entry>),
    NotYet,
    Missed,
}

impl Log {
    pub(crate) fn new() -> Log {
        Log {
            run: crate::entropy::unique().simple().to_string(),
            kept: Mutex::default(),
            newest: watch::Sender::new(0),
            listeners: Arc::default(),
        }
    }

    /// Adds an event; its field `event` is its name.
    pub(crate) fn add(&self, mut event: Value) {
        let name = event["event"].as_str().unwrap_or("other").to_owned();
        event["at"] = json!(crate::clock::wall());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *self.newest.borrow() + 1;
        let entry = Entry { number, name, text: event.to_string() };
        kept.bytes += entry.text.len();
        kept.entries.push_back(Arc::new(entry));
        while kept.entries.len() > KEPT || (kept.bytes > KEPT_BYTES && kept.entries.len() > 1) {
            let oldest = kept.entries.pop_front();
            kept.bytes -= oldest.map_or(0, |entry| entry.text.len());
        }
        self.newest.send_replace(number);
    }

    fn next(&self, number: u64) -> Next {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(oldest) = kept.entries.front().map(|entry| entry.number) else { return Next::NotYet };
        match number.checked_sub(oldest) {
            None => Next::Missed,
            Some(at) => {
                let entry = usize::try_from(at).ok().and_then(|at| kept.entries.get(at));
                entry.map_or(Next::NotYet, |entry| Next::Entry(entry.clone()))
            }
        }
    }

    /// The first event for a client that saw this one last.
    fn after(&self, last: Option<&str>) -> u64 {
        let newest = *self.newest.borrow();
        let oldest = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.entries.front().map_or(newest + 1, |entry| entry.number)
        };
        let Some(last) = last else { return newest + 1 };
        let number: Option<u64> =
            last.rsplit_once('-').filter(|(run, _)| *run == self.run).and_then(|(_, number)| number.parse().ok());
        match number {
            // It misses what is kept no longer, and has the rest.
            Some(number) if number <= newest => oldest.max(number + 1),
            // It knew another run: all of this one is new to it.
            _ => oldest,
        }
    }
}

/// One of the listeners, while it is there.
struct Listener(Arc<AtomicUsize>);

impl Listener {
    fn come(listeners: &Arc<AtomicUsize>) -> Option<Listener> {
        let come = |now: usize| (now < LISTENERS).then_some(now + 1);
        listeners.fetch_update(Ordering::AcqRel, Ordering::Acquire, come).ok()?;
        Some(Listener(listeners.clone()))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a client asks for beside the events.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    /// An event without an id with each look at the store.
    #[serde(default)]
    looks: bool,
}

/// The handler.
pub(crate) async fn events(
    State(watched): State<Arc<Watched>>,
    Query(wanted): Query<Wanted>,
    closing: Option<Extension<Closing>>,
    headers: HeaderMap,
) -> Response {
    let Some(listener) = Listener::come(&watched.log.listeners) else {
        let error = json!({"kind": "Unavailable", "message": "too many listen already; come again later"});
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"schema": 1, "error": error}))).into_response();
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let from = watched.log.after(last);
    let happened = happened(watched.clone(), from, listener);
    let stream = match wanted.looks {
        true => stream::select_with_strategy(happened, looks(&watched), |(): &mut ()| stream::PollNext::Left).boxed(),
        false => happened.boxed(),
    };
    // The end of the events ends it, whatever else could come.
    let stream = stream.take_while(|event| std::future::ready(event.is_some()));
    let stream = stream.filter_map(std::future::ready).map(Ok::<Event, Infallible>);
    let stream = stream.take_until(async move {
        match closing {
            Some(Extension(closing)) => closing.begun().await,
            None => std::future::pending().await,
        }
    });
    let alive = KeepAlive::new().interval(SIGN_OF_LIFE);
    let mut response = Sse::new(stream).keep_alive(alive).into_response();
    // A proxy in between that collects would make live events old ones.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}

/// The events from `from` on; `None` for a listener who has fallen too far behind.
fn happened(watched: Arc<Watched>, from: u64, listener: Listener) -> impl Stream<Item = Option<Event>> + Send {
    let newest = watched.log.newest.subscribe();
    stream::unfold((watched, newest, from, listener), |(watched, mut newest, number, listener)| async move {
        loop {
            newest.mark_unchanged();
            match watched.log.next(number) {
                Next::Entry(entry) => {
                    let id = format!("{}-{}", watched.log.run, entry.number);
                    let event = Event::default().id(id).event(&entry.name).data(&entry.text);
                    return Some((Some(event), (watched, newest, number + 1, listener)));
                }
                Next::Missed => return Some((None, (watched, newest, number, listener))),
                Next::NotYet => newest.changed().await.ok()?,
            }
        }
    })
}

fn looks(watched: &Watched) -> impl Stream<Item = Option<Event>> + Send + use<> {
    stream::unfold(watched.looks(), |mut looks| async move {
        looks.changed().await.ok()?;
        let look = json!({"look": *looks.borrow_and_update()});
        Some((Some(Event::default().event("look").data(look.to_string())), looks))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(events: usize) -> Log {
        let log = Log::new();
        for n in 0..events {
            log.add(json!({"event": "joined", "n": n}));
        }
        log
    }

    #[test]
    fn who_comes_again_misses_nothing_that_is_kept() {
        let log = log(5);
        let id = |run: &str, number: u64| format!("{run}-{number}");
        assert_eq!(log.after(None), 6, "a new client hears of what is to come");
        assert_eq!(log.after(Some(&id(&log.run, 3))), 4);
        assert_eq!(log.after(Some(&id(&log.run, 5))), 6);
        for strange in ["", "nonsense", &id("another", 3), &id(&log.run, 99)] {
            assert_eq!(log.after(Some(strange)), 1, "{strange}");
        }
        let Next::Entry(entry) = log.next(4) else { panic!("it is kept") };
        assert!(entry.text.contains("\"n\":3"), "{}", entry.text);
        assert!(matches!(log.next(6), Next::NotYet));
    }

    #[test]
    fn what_is_kept_is_bounded_in_number_and_in_bytes() {
        let crowded = log(KEPT + 10);
        assert!(matches!(crowded.next(10), Next::Missed));
        assert!(matches!(crowded.next(11), Next::Entry(_)));
        assert_eq!(crowded.after(Some(&format!("{}-1", crowded.run))), 11);
        let heavy = Log::new();
        for _ in 0..100 {
            heavy.add(json!({"event": "joined", "text": "x".repeat(KEPT_BYTES / 10)}));
        }
        let kept = heavy.kept.lock().unwrap();
        assert!(kept.bytes <= KEPT_BYTES && kept.entries.len() >= 5, "{} {}", kept.bytes, kept.entries.len());
    }

    #[test]
    fn only_so_many_listen_at_a_time() {
        let listeners = Arc::default();
        let all: Vec<_> = (0..LISTENERS).map(|_| Listener::come(&listeners).unwrap()).collect();
        assert!(Listener::come(&listeners).is_none());
        drop(all);
        assert!(Listener::come(&listeners).is_some());
    }
}
