//! Accepting connections, with limits: a hundred slow clients must not keep a probe out, and a request of ten megabytes
//! must not be kept.
//!
//! When all connections are taken, the one that has been waiting for a request for the longest gives way to the next;
//! one that is being answered never does.

mod crowd;
mod patience;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use self::crowd::{Crowd, Place};
use self::patience::Patience;
use crate::clock::{Clock, SystemClock, within};

/// How much [`serve()`] puts up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// The bytes of a request's head; a longer one is answered with 431.
    pub head: usize,
    /// How long a head may take to come, and how long a connection may wait for the next request.
    pub head_time: Duration,
    /// The bytes of a request's body; a longer one is answered with 413. No request here needs a body.
    pub body: usize,
    /// How long the beginning of an answer may take; 503 after that.
    pub answer_time: Duration,
    /// How long a client may take nothing of its answer before it is let go.
    pub stall: Duration,
    /// How long answers under way may take after the shutdown began.
    pub farewell: Duration,
}

impl Default for Limits {
    /// 256 connections, heads of 16 KiB in 5 s, bodies of 4 KiB, answers in 10 s, stalls of 10 s, 2 s at the end.
    fn default() -> Limits {
        Limits {
            connections: 256,
            head: 16 << 10,
            head_time: Duration::from_secs(5),
            body: 4 << 10,
            answer_time: Duration::from_secs(10),
            stall: Duration::from_secs(10),
            farewell: Duration::from_secs(2),
        }
    }
}

/// How long to wait after an accept failed: for want of descriptors it would fail again at once.
const BREATH: Duration = Duration::from_millis(100);

/// The server around a handler has begun to shut down.
#[derive(Debug, Clone)]
pub(crate) struct Closing(CancellationToken);

impl Closing {
    /// Completes with the beginning of the shutdown.
    pub(crate) async fn begun(&self) {
        self.0.cancelled().await;
    }
}

/// Serves `router` on `listener` until `shutdown` completes; then accepts nobody any more, lets the answers under way
/// out, ends event streams, and returns after [`Limits::farewell`] at the latest.
///
/// # Cancellation
///
/// Dropping the future stops accepting. Connections end by themselves: they are told to.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, shutdown: impl Future<Output = ()>) {
    let closing = CancellationToken::new();
    // Also when this future is dropped.
    let closes = closing.clone().drop_guard();
    let crowd = Crowd::new(limits.connections);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // Without a place it is closed by being dropped here.
                if let Some(place) = crowd.enter() {
                    tokio::spawn(attend(stream, place, router.clone(), limits, Closing(closing.clone())));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted");
                pause(BREATH).await;
            }
        }
    }
    drop(listener);
    drop(closes);
    let _ = within(&SystemClock, limits.farewell, crowd.empty()).await;
}

async fn pause(duration: Duration) {
    SystemClock.sleep_until(SystemClock.now() + duration).await;
}

/// One connection, from its first byte to its last.
async fn attend(stream: TcpStream, place: Place, router: Router, limits: Limits, closing: Closing) {
    // Small answers leave at once.
    let _ = stream.set_nodelay(true);
    let place = Arc::new(place);
    let io = TokioIo::new(Patience::new(stream, limits.stall, place.clone()));
    let (at, told) = (place.clone(), closing.clone());
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (router, place, closing) = (router.clone(), at.clone(), told.clone());
        async move { Ok::<Response, Infallible>(answer(request, router, &place, limits, closing).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_header_size(limits.head)
        .serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    let mut leaving = false;
    let asked = async {
        tokio::select! {
            biased;
            () = closing.begun() => {}
            // A farewell with a reset: whoever has not asked for anything gets nothing.
            () = place.gives_way() => return true,
        }
        false
    };
    let mut asked = std::pin::pin!(asked);
    let mut deadline = None;
    loop {
        let over = async {
            match deadline {
                Some(deadline) => SystemClock.sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // How a client leaves is its own affair.
            _ = &mut connection => return,
            gives_way = &mut asked, if !leaving => {
                if gives_way {
                    return;
                }
                leaving = true;
                deadline = Some(SystemClock.now() + limits.farewell);
                connection.as_mut().graceful_shutdown();
            }
            () = over => return,
        }
    }
}

/// Asks the router, within the limits.
async fn answer(
    request: hyper::Request<Incoming>,
    router: Router,
    place: &Arc<Place>,
    limits: Limits,
    closing: Closing,
) -> Response {
    let busy = Place::busy(place);
    let too_long = hyper::body::Body::size_hint(request.body()).lower() > limits.body as u64;
    if too_long {
        let text = format!("no body here may have more than {} bytes\n", limits.body);
        return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
    }
    let mut request: Request = request.map(Body::new);
    request.extensions_mut().insert(closing);
    // One that does not say how long it is, is counted as it is read.
    axum::extract::DefaultBodyLimit::max(limits.body).apply(&mut request);
    let service = TowerToHyperService::new(router);
    let asking = hyper::service::Service::call(&service, request);
    match within(&SystemClock, limits.answer_time, asking).await {
        // Being answered lasts as long as the body.
        Some(Ok(response)) => response.map(|body| Body::new(busy.until_end_of(body))),
        Some(Err(never)) => match never {},
        None => (StatusCode::SERVICE_UNAVAILABLE, "no answer in time\n").into_response(),
    }
}
