//! Everybody's side of the control socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::socket::{self, Address};
use super::wire::{self, BUSY, Ingested, LONGEST_LINE, Request, Response};
use crate::backend::local::path::StorePath;
use crate::clock::{Clock, SystemClock, within};
use crate::describe;
use crate::error::{Error, Failure, Result};
use crate::owner::state::{self, Ownership, State};
use crate::store_url::StoreName;

/// How long connecting for a watch may take, with its first answer.
pub(super) const WATCH_LIMIT: Duration = Duration::from_secs(2);
/// Between two tries while the owner is busy.
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// Asks the owner of the store at `path` for its state.
///
/// # Errors
///
/// `Unavailable` if no owner answers within `timeout`: there is none, it serves no socket, or it is stopped or busy,
/// which the text says. `Denied` if the socket is another user's.
///
/// # Cancellation
///
/// May be dropped at any time.
pub async fn control_status(path: impl AsRef<Path>, timeout: Duration) -> Result<State> {
    let store = StorePath::resolve(path.as_ref())?;
    let (response, _) = ask(&store, &Request::new("status"), timeout).await?;
    response.state.ok_or_else(|| strange(&store.display()))
}

/// Asks the owner of the store at `path` to ingest its spool now, and with `wait` to answer once the batches `ids` are
/// applied. An owner answers within ten seconds: that some are not applied yet is then said by [`Ingested::more`], and
/// is no error. So give it a longer `timeout`.
///
/// # Errors
///
/// As [`control_status`]; `Invalid` if an id is no batch's, or the request would be over 64 KiB. What the owner refused
/// is `Unavailable` with its reason.
///
/// # Cancellation
///
/// May be dropped at any time: the owner goes on ingesting.
pub async fn control_ingest(path: impl AsRef<Path>, ids: &[String], wait: bool, timeout: Duration) -> Result<Ingested> {
    let store = StorePath::resolve(path.as_ref())?;
    let name = store.display();
    if let Some(bad) = ids.iter().find(|id| !wire::is_batch_id(id)) {
        return Err(Error::invalid_at(&name, format!("{} is no batch's id", describe::brief(bad))));
    }
    let request = Request { ids: ids.to_vec(), wait, ..Request::new("ingest") };
    let (response, _) = ask(&store, &request, timeout).await?;
    response.ingested.ok_or_else(|| strange(&name))
}

/// Says that a batch waits, and waits itself for no answer: an owner that is busy hears it when it has done what it does.
///
/// # Errors
///
/// Where nobody hears it now. Nothing depends on it: an owner looks by itself soon.
pub(in crate::owner) async fn nudge(store: &StorePath, id: &str, timeout: Duration) -> Result<()> {
    let name = store.display();
    let line = Request { ids: vec![id.to_owned()], ..Request::new("ingest") }.line();
    let socket = socket::place(store);
    let saying = async { connect(&name, &socket).await?.write_all(&line).await.map_err(Trouble::Nobody) };
    match within(&SystemClock, timeout, saying).await {
        Some(Ok(())) => Ok(()),
        Some(Err(Trouble::Refused(error))) => Err(error),
        Some(Err(Trouble::Nobody(_) | Trouble::Busy)) | None => {
            Err(Error::unavailable_at(&name, "no owner listens now; it looks at its spool by itself"))
        }
    }
}

/// A connection that lasts until the owner drains; one that was made later, until it goes.
#[derive(Debug)]
pub struct Watch {
    stream: UnixStream,
    state: State,
}

/// Watches the owner of the store at `path`: connects, and has its state within two seconds.
///
/// # Errors
///
/// As [`control_status`]; `Unavailable` as well when too many watch.
///
/// # Cancellation
///
/// May be dropped at any time.
pub async fn watch(path: impl AsRef<Path>) -> Result<Watch> {
    watch_store(&StorePath::resolve(path.as_ref())?).await
}

pub(in crate::owner) async fn watch_store(store: &StorePath) -> Result<Watch> {
    let (response, stream) = ask(store, &Request::new("watch"), WATCH_LIMIT).await?;
    let state = response.state.ok_or_else(|| strange(&store.display()))?;
    Ok(Watch { stream, state })
}

impl Watch {
    /// The owner's state when the watch began.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Completes when the owner begins to drain, ends or dies: the kernel closes a dead process's sockets, perhaps a
    /// moment before it frees its locks. May be dropped and called again.
    pub async fn ended(&mut self) {
        let mut rest = [0; 64];
        // The owner says nothing more, so whatever comes is the end or makes no sense.
        let _ = self.stream.read(&mut rest).await;
    }
}

/// What one try came to, short of an answer.
enum Trouble {
    /// Nobody listens.
    Nobody(io::Error),
    /// Again, soon.
    Busy,
    /// For good.
    Refused(Error),
}

/// One request and its answer, tried again while the owner is busy.
async fn ask(store: &StorePath, request: &Request, timeout: Duration) -> Result<(Response, UnixStream)> {
    let name = store.display();
    let line = request.line();
    if line.len() > LONGEST_LINE {
        let message =
            format!("a request may have {LONGEST_LINE} bytes, this one has {}; ask for fewer ids", line.len());
        return Err(Error::invalid_at(&name, message));
    }
    let socket = socket::place(store);
    let asking = async {
        loop {
            match ask_once(&name, &socket, &line).await {
                Ok(answered) => return Ok(answered),
                Err(Trouble::Busy) => SystemClock.sleep_until(SystemClock.now() + TRY_AGAIN).await,
                Err(trouble) => return Err(trouble),
            }
        }
    };
    match within(&SystemClock, timeout, asking).await {
        Some(Ok(answered)) => Ok(answered),
        Some(Err(Trouble::Refused(error))) => Err(error),
        Some(Err(Trouble::Nobody(error))) => Err(match state::look(store) {
            Ownership::Nobody => Error::unavailable_at(&name, "no owner; start one, or wait until there is one"),
            owner => Error::unavailable_at(
                &name,
                format!("its owner ({owner}) cannot be reached at {}: {error}; try again", socket.display()),
            ),
        }),
        Some(Err(Trouble::Busy)) | None => {
            let owner = state::look(store);
            let waited = describe::duration(timeout);
            let message = format!("its owner ({owner}) did not answer within {waited}; it may be stopped or very busy");
            Err(Error::unavailable_at(&name, message))
        }
    }
}

async fn connect(name: &StoreName, socket: &Path) -> Result<UnixStream, Trouble> {
    let address = Address::of(socket).map_err(Trouble::Nobody)?;
    let stream = match UnixStream::connect(&address.path).await {
        Ok(stream) => stream,
        Err(error) => {
            return Err(match Errno::from_io_error(&error) {
                // The queue of those who want to be accepted is full.
                Some(Errno::AGAIN | Errno::INTR) => Trouble::Busy,
                _ => Trouble::Nobody(error),
            });
        }
    };
    let uid = rustix::process::geteuid().as_raw();
    let peer = stream.peer_cred().map_err(Trouble::Nobody)?.uid();
    if peer != uid {
        let message = format!("uid {peer} listens at {}, and this is uid {uid}; remove it", socket.display());
        let failure = Failure { store: Some(name.clone()), message, source: None };
        return Err(Trouble::Refused(Error::Denied(Box::new(failure))));
    }
    Ok(stream)
}

async fn ask_once(name: &StoreName, socket: &Path, line: &[u8]) -> Result<(Response, UnixStream), Trouble> {
    let mut stream = connect(name, socket).await?;
    // An owner that turns somebody away answers before it has heard anything: its answer may be there all the same.
    let sent = stream.write_all(line).await;
    let answer = match wire::read_line(&mut stream).await {
        Ok(Some(answer)) => answer,
        // It went, or had no place: whether there is another shows with the next try.
        Ok(None) => return Err(Trouble::Busy),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(Trouble::Refused(strange(name))),
        Err(error) => {
            tracing::debug!(%error, ?sent, "the owner's answer broke off");
            return Err(Trouble::Busy);
        }
    };
    let response: Response = serde_json::from_slice(&answer).map_err(|_| Trouble::Refused(strange(name)))?;
    match (response.ok, &response.error) {
        (true, _) => Ok((response, stream)),
        (false, Some(error)) if error.starts_with(BUSY) => Err(Trouble::Busy),
        (false, error) => {
            let why = error.as_deref().map_or_else(|| "it gave no reason".to_owned(), describe::brief);
            Err(Trouble::Refused(Error::unavailable_at(name, format!("its owner refused: {why}"))))
        }
    }
}

fn strange(name: &StoreName) -> Error {
    Error::unavailable_at(name, "what answers at its control socket makes no sense; is its owner of another version?")
}
