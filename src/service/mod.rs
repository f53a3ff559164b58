//! Health, readiness, metrics, events and one page for people, over HTTP.
//!
//! ```text
//!             looks, on a timer and when something happens
//!   store ◀──────────────────────── watcher ──▶ the last look, the last vitals, events, the last hour
//!                                                        ▲
//!                                       requests ────────┘ read, and ask nobody
//! ```
//!
//! One task looks at the store and one at the coordinator's supervisor; requests read what these saw last. So a
//! thousand requests cost the store nothing, and a store that hangs holds up no answer: what is old says so.
//!
//! # What it does not promise
//!
//! It is plain HTTP: beyond this machine, whoever can read the network reads the token. On loopback there is no token,
//! and **any local user can read all of it**; the Host header is checked so that no web page of elsewhere can, by a
//! name that it lets point to this machine. It changes nothing: no request takes or clears a lease.
//!
//! # Map
//!
//! `watch` looks, `local` beside the leases, `news` tells two looks apart, `events` keeps what happened, `timeline` the last hour. `ready`,
//! `metrics`, `status` and `page` answer. `access` decides who may ask; `serve` accepts connections, with limits.

mod access;
mod events;
mod local;
mod metrics;
mod news;
mod page;
mod ready;
mod serve;
mod status;
mod timeline;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::get;
use futures::future::BoxFuture;

use crate::{Coordinator, Result, StoreName, StoreUrl};

pub use access::{Access, Token};
pub use serve::{Limits, serve};
use watch::{Connect, Watched, Watching};

/// What a [`router`] watches how, and who may ask it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who may ask.
    pub access: Access,
    /// How often the store is looked at: not more often than every 100 ms, and less often where a look takes long, so
    /// that looking never takes more than a tenth of the time.
    pub every: Duration,
    /// Where a local store is, so that its owner is shown too.
    pub path: Option<PathBuf>,
}

impl Default for Options {
    /// For this machine only, every second.
    fn default() -> Options {
        Options { access: Access::Loopback, every: Duration::from_secs(1), path: None }
    }
}

/// The service as a router, to be mounted on a server of one's own or given to [`serve()`]. It watches until the last of
/// its clones is dropped, and keeps the coordinator for as long.
///
/// ```no_run
/// # async fn example(coordinator: lockhouse::Coordinator, own: axum::Router) -> std::io::Result<()> {
/// use lockhouse::service::{Access, Options, router};
///
/// // The server around it decides who may ask.
/// let options = Options { access: Access::Everybody, ..Options::default() };
/// let app = own.nest("/lockhouse", router(&coordinator, options));
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// Outside a tokio runtime with time.
pub fn router(coordinator: &Coordinator, options: Options) -> Router {
    let (store, connected) = (coordinator.store().clone(), coordinator.clone());
    routes(store, Connect::Done(connected), options)
}

/// As [`router`], before there is a coordinator on the store of this URL: `connect` is called until it succeeds, and
/// until then the service is healthy and not ready, and says why.
///
/// # Panics
///
/// Outside a tokio runtime with time.
pub fn router_while_connecting<F>(url: &StoreUrl, mut connect: F, options: Options) -> Router
where
    F: FnMut() -> BoxFuture<'static, Result<Coordinator>> + Send + 'static,
{
    routes(StoreName::new(url.to_string()), Connect::Trying(Box::new(move || connect())), options)
}

fn routes(store: StoreName, connect: Connect, options: Options) -> Router {
    let access = options.access.clone();
    let service = Service::start(store, connect, options);
    let open = Router::new()
        .route("/healthz", get(ready::healthz))
        .route("/readyz", get(ready::readyz))
        .layer(axum::middleware::from_fn_with_state(access.clone(), access::same_host));
    let guarded = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/v1/status", get(status::status))
        .route("/v1/events", get(events::events))
        .route("/", get(page::page))
        .layer(axum::middleware::from_fn_with_state(access, access::may_ask));
    open.merge(guarded).layer(axum::middleware::map_response(access::harden)).with_state(service)
}

/// What the handlers share.
#[derive(Clone)]
struct Service {
    watched: Arc<Watched>,
    /// Ends the watching with the last handler.
    _watching: Arc<Watching>,
}

impl Service {
    fn start(store: StoreName, connect: Connect, options: Options) -> Service {
        let (watched, watching) = watch::start(store, connect, options);
        Service { watched, _watching: Arc::new(watching) }
    }
}

impl FromRef<Service> for Arc<Watched> {
    fn from_ref(service: &Service) -> Arc<Watched> {
        service.watched.clone()
    }
}
