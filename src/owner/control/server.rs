//! The owner's side of the control socket.
//!
//! No client can hold it: a request has ten seconds from its connection to its answer, a line has an end, and when
//! all places are taken, the connection goes that has said nothing for longest. Those that wait for batches have places of
//! their own, and are forgotten as soon as they are gone; those that watch are in nobody's way (`watchers`).

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use super::wire::{self, BUSY, Ingested, LONGEST_LINE, PROTOCOL, Request, Response};
use super::{ACCEPT_AGAIN, REQUEST_LIMIT, REQUESTS, WAITING, WATCHERS, socket};
use crate::backend::local::trouble::explain;
use crate::clock::{Clock, Moment, SystemClock, within};
use crate::error::Result;
use crate::owner::lock::{OwnerLock, Shared};
use crate::owner::state::State;

/// What answers control requests.
///
/// Its futures are dropped when the client is gone or the request's time is up, so they must be safe to drop.
pub trait ControlHandler: Send + Sync + 'static {
    /// The owner's state now. Must not block.
    fn status(&self) -> State;

    /// Ingests the spool now; with `wait`, completes once the batches `ids` are applied or have failed. The text of an
    /// error goes to the client.
    fn ingest(&self, ids: Vec<String>, wait: bool) -> BoxFuture<'_, Result<Ingested, String>>;
}

/// Answers with an owner's own state, and has nothing to ingest.
#[derive(Debug)]
pub struct StatusOnly(Arc<Shared>);

impl StatusOnly {
    /// Of this owner.
    pub fn of(owner: &OwnerLock) -> StatusOnly {
        StatusOnly(Arc::clone(&owner.shared))
    }
}

impl ControlHandler for StatusOnly {
    fn status(&self) -> State {
        self.0.state()
    }

    fn ingest(&self, _ids: Vec<String>, _wait: bool) -> BoxFuture<'_, Result<Ingested, String>> {
        Box::pin(async { Err("this owner ingests nothing: it holds the store for a command".to_owned()) })
    }
}

/// Serves a control socket until it is closed or dropped.
#[must_use = "a control server that is dropped is closed at once"]
#[derive(Debug)]
pub struct ControlServer {
    shared: Arc<Shared>,
    closed: CancellationToken,
}

/// Serves the owner's control socket on the current runtime. A socket that a dead owner left is replaced: this one
/// holds the lock.
///
/// The socket belongs to the ownership: giving the store back unlinks it, if the server has not been closed before.
///
/// # Errors
///
/// `Invalid` if something else is in the socket's place, `Denied` without the right to write, `LeaseLost` if the store
/// is no longer owned. An owner can do without.
///
/// # Panics
///
/// Outside of a tokio runtime with I/O and time.
pub fn serve_control(owner: &OwnerLock, handler: impl ControlHandler) -> Result<ControlServer> {
    let shared = &owner.shared;
    shared.check()?;
    let path = socket::place(&shared.store);
    let trouble = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => crate::error::Error::invalid_at(&shared.name, format!("{error}; remove it")),
        _ => explain("binding", &path, &error).at(&shared.name),
    };
    let (listener, file) = socket::bind(&path).map_err(trouble)?;
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            file.unlink();
            return Err(trouble(error));
        }
    };
    if !shared.keep_socket(file) {
        return Err(shared.error(crate::error::LossReason::Released));
    }
    shared.update(|state| state.socket = Some(path.to_string_lossy().into_owned()));
    let closed = CancellationToken::new();
    let room = Arc::new(Room {
        handler,
        shared: Arc::clone(shared),
        closed: closed.clone(),
        talking: Mutex::default(),
        waiting: AtomicUsize::new(0),
    });
    tokio::spawn(accept(listener, room));
    Ok(ControlServer { shared: Arc::clone(shared), closed })
}

impl ControlServer {
    /// Tells the watchers that the owner is about to go. Requests are still answered, and those who watch again are told
    /// when the store is given back.
    pub fn drain(&self) {
        self.shared.end_watchers();
    }

    /// Unlinks the socket, then stops serving. A later owner's socket stays. Those who watch are told when the store is
    /// given back.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        if !self.shared.is_own() {
            return;
        }
        self.shared.unlink_socket();
        self.shared.update(|state| state.socket = None);
        self.closed.cancel();
    }
}

/// Everybody who is connected.
struct Room<H> {
    handler: H,
    shared: Arc<Shared>,
    closed: CancellationToken,
    /// By the order in which they came.
    talking: Mutex<Talking>,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Talking {
    last: u64,
    guests: BTreeMap<u64, Guest>,
}

/// A connection that has a request's place.
struct Guest {
    leave: CancellationToken,
    /// It has said what it wants.
    heard: bool,
}

/// A place, until it is dropped.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(taken: &'a AtomicUsize, all: usize) -> Option<Place<'a>> {
        taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < all).then_some(taken + 1))
            .ok()
            .map(|_| Place(taken))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts until the server is closed.
async fn accept<H: ControlHandler>(listener: UnixListener, room: Arc<Room<H>>) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = room.closed.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => Arc::clone(&room).admit(stream),
            Err(error) => {
                tracing::debug!(%error, "no connection can be accepted on the control socket");
                SystemClock.sleep_until(SystemClock.now() + ACCEPT_AGAIN).await;
            }
        }
    }
}

impl<H: ControlHandler> Room<H> {
    fn talking(&self) -> std::sync::MutexGuard<'_, Talking> {
        self.talking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a connection a place, if need be that of the one who has said nothing for longest.
    fn admit(self: Arc<Self>, stream: UnixStream) {
        let uid = rustix::process::geteuid().as_raw();
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == uid => {}
            Ok(peer) => return turn_away(&stream, &format!("the store belongs to uid {uid}, not {}", peer.uid())),
            Err(error) => return turn_away(&stream, &format!("whose connection it is cannot be told: {error}")),
        }
        let leave = CancellationToken::new();
        let id = {
            let mut talking = self.talking();
            if talking.guests.len() >= REQUESTS {
                let silent = talking.guests.iter().find(|(_, guest)| !guest.heard).map(|(id, _)| *id);
                match silent.and_then(|id| talking.guests.remove(&id)) {
                    Some(guest) => guest.leave.cancel(),
                    None => return turn_away(&stream, &format!("{BUSY}{REQUESTS} requests are being served")),
                }
            }
            talking.last += 1;
            let id = talking.last;
            talking.guests.insert(id, Guest { leave: leave.clone(), heard: false });
            id
        };
        tokio::spawn(async move {
            let closed = self.closed.clone();
            tokio::select! {
                biased;
                () = closed.cancelled() => {}
                () = self.serve(id, stream, leave) => {}
            }
            self.talking().guests.remove(&id);
        });
    }

    /// From a request to its answer. Nobody is told when that takes too long because nothing is said, or read.
    async fn serve(&self, id: u64, mut stream: UnixStream, leave: CancellationToken) {
        let limit = SystemClock.now() + REQUEST_LIMIT;
        let line = tokio::select! {
            biased;
            () = leave.cancelled() => {
                turn_away(&stream, &format!("{BUSY}others had something to say"));
                return;
            }
            line = within(&SystemClock, REQUEST_LIMIT, wire::read_line(&mut stream)) => line,
        };
        let line = match line {
            Some(Ok(Some(line))) => line,
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                turn_away(&stream, &format!("a line may have {LONGEST_LINE} bytes"));
                return;
            }
            Some(Ok(None) | Err(_)) => return,
            None => {
                turn_away(&stream, "nothing was asked for in time");
                return;
            }
        };
        match self.talking().guests.get_mut(&id) {
            Some(guest) => guest.heard = true,
            // Its place was taken at the very last moment.
            None => return turn_away(&stream, &format!("{BUSY}others came")),
        }
        let request = match serde_json::from_slice::<Request>(&line) {
            Ok(request) if request.protocol == PROTOCOL => request,
            Ok(request) => {
                let error = format!("this owner speaks protocol {PROTOCOL}, not {}", request.protocol);
                return answer(&mut stream, Response::error(error), limit).await;
            }
            Err(error) => {
                return answer(&mut stream, Response::error(format!("no request: {error}")), limit).await;
            }
        };
        match request.action.as_str() {
            "status" => answer(&mut stream, Response::state(self.handler.status()), limit).await,
            "ingest" => self.ingest(stream, request, limit).await,
            "watch" => self.watch(stream, limit).await,
            _ => answer(&mut stream, Response::error("the actions are status, ingest and watch"), limit).await,
        }
    }

    async fn ingest(&self, mut stream: UnixStream, request: Request, limit: Moment) {
        if let Some(bad) = request.ids.iter().find(|id| !wire::is_batch_id(id)) {
            let bad = crate::describe::brief(bad);
            return answer(&mut stream, Response::error(format!("{bad} is no batch's id")), limit).await;
        }
        let wait = request.wait;
        let place = if wait { Place::take(&self.waiting, WAITING) } else { None };
        if wait && place.is_none() {
            return answer(&mut stream, Response::error(format!("{BUSY}{WAITING} requests wait")), limit).await;
        }
        // Some of the time is kept for the answer.
        let left = limit.since(SystemClock.now()).saturating_sub(Duration::from_millis(100));
        let ingesting = within(&SystemClock, left, self.handler.ingest(request.ids, wait));
        let done = tokio::select! {
            biased;
            done = ingesting => done,
            // Nobody is left to be answered.
            () = gone(&mut stream), if wait => return,
        };
        let response = match done {
            Some(Ok(ingested)) => Response::ingested(ingested),
            Some(Err(error)) => Response::error(error),
            None if wait => Response::ingested(Ingested { more: true, ..Ingested::default() }),
            None => Response::error("ingesting takes longer than a request may"),
        };
        answer(&mut stream, response, limit).await;
    }

    /// Answers, and leaves the connection to the ownership, which outlives this server and its runtime.
    async fn watch(&self, mut stream: UnixStream, limit: Moment) {
        if !self.shared.has_room_to_watch() {
            return answer(&mut stream, Response::error(format!("{BUSY}{WATCHERS} watch")), limit).await;
        }
        let line = Response::state(self.handler.status()).line();
        let written = within(&SystemClock, limit.since(SystemClock.now()), stream.write_all(&line)).await;
        if matches!(written, Some(Ok(())))
            && let Ok(stream) = stream.into_std()
        {
            self.shared.keep_watcher(stream);
        }
    }
}

/// Completes when the client has closed its side, or says more than it may.
async fn gone(stream: &mut UnixStream) {
    let mut byte = [0];
    // Whatever it is: more than one line, the end, or an error.
    let _ = stream.read(&mut byte).await;
}

/// Answers and ends the connection.
async fn answer(stream: &mut UnixStream, response: Response, limit: Moment) {
    let line = response.line();
    let written = within(&SystemClock, limit.since(SystemClock.now()), async {
        stream.write_all(&line).await?;
        stream.shutdown().await
    });
    if !matches!(written.await, Some(Ok(()))) {
        tracing::debug!("a client of the control socket did not take its answer");
    }
}

/// Says why there is no answer, to whoever reads it, and waits for nobody.
fn turn_away(stream: &UnixStream, why: &str) {
    // A new connection has room for a line; if this one has none, nobody reads.
    let _ = stream.try_write(&Response::error(why).line());
}
