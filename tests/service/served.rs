//! The service as the tests run it: in the process, on a thread of its own, or as the program.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use futures::executor::block_on;
use lockhouse::clock::ManualClock;
use lockhouse::service::{Limits, Options, router, serve};
use lockhouse::{Coordinator, LeaseKind, LeaseTiming, MemoryStore};
use tokio::sync::oneshot;

use crate::client::{self, Answer, PATIENCE};
use crate::program::{Running, Store};
use crate::support::poll::eventually_blocking;

/// Short, and long enough for a machine that is busy with other tests.
pub(crate) const TIMING: LeaseTiming = LeaseTiming {
    refresh_interval: Duration::from_millis(500),
    stale_multiplier: 4,
    poll_initial: Duration::from_millis(5),
    poll_max: Duration::from_millis(50),
};

/// Looks often: a test waits for them.
pub(crate) fn often() -> Options {
    Options { every: Duration::from_millis(50), ..Options::default() }
}

/// A memory store with a layout, and a coordinator on it.
pub(crate) fn memory() -> (MemoryStore, Coordinator) {
    let store = MemoryStore::new();
    let coordinator = another(&store, "the service");
    block_on(coordinator.init()).unwrap();
    (store, coordinator)
}

/// Another process.
pub(crate) fn another(store: &MemoryStore, label: &str) -> Coordinator {
    block_on(Coordinator::on_memory(store).timing(TIMING).label(label).connect()).unwrap()
}

/// The lease of a process that died: it stands and is not refreshed, and the store's clock has run past its stale age.
pub(crate) fn dead(store: &MemoryStore, label: &str, kind: LeaseKind) -> String {
    // Its clock never runs, so it never refreshes.
    let dying = Coordinator::on_memory(store).timing(TIMING).label(label).clock(ManualClock::new());
    let dying = block_on(dying.connect()).unwrap();
    let id = match kind {
        LeaseKind::Writer => {
            let lease = block_on(dying.acquire_writer().into_future()).unwrap();
            let id = lease.identifier().to_owned();
            std::mem::forget(lease);
            id
        }
        LeaseKind::Fsck => {
            let lease = block_on(dying.acquire_fsck().into_future()).unwrap();
            let id = lease.identifier().to_owned();
            std::mem::forget(lease);
            id
        }
    };
    std::mem::forget(dying);
    store.shift_server_clock(60_000);
    id
}

/// A service in this process.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start(coordinator: &Coordinator, options: Options, limits: Limits) -> Served {
        Served::at("127.0.0.1:0".parse().unwrap(), coordinator, options, limits)
    }

    /// As usual, on a port that is known.
    pub(crate) fn start_at(coordinator: &Coordinator, address: SocketAddr) -> Served {
        Served::at(address, coordinator, often(), Limits::default())
    }

    fn at(address: SocketAddr, coordinator: &Coordinator, options: Options, limits: Limits) -> Served {
        let coordinator = coordinator.clone();
        Served::routes(address, move || router(&coordinator, options), limits)
    }

    /// A program's own routes.
    pub(crate) fn own(routes: impl FnOnce() -> axum::Router + Send + 'static, limits: Limits) -> Served {
        Served::routes("127.0.0.1:0".parse().unwrap(), routes, limits)
    }

    fn routes(address: SocketAddr, routes: impl FnOnce() -> axum::Router + Send + 'static, limits: Limits) -> Served {
        let (end, ended) = oneshot::channel::<()>();
        let (listening, bound) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind(address).await.unwrap();
                listening.send(listener.local_addr().unwrap()).unwrap();
                serve(listener, routes(), limits, async { drop(ended.await) }).await;
            });
        });
        let address = bound.recv_timeout(PATIENCE).unwrap();
        Served { address, end: Some(end), thread: Some(thread) }
    }

    /// With everything as usual, once the first look is there.
    pub(crate) fn ready(coordinator: &Coordinator) -> Served {
        let served = Served::start(coordinator, often(), Limits::default());
        until(served.address, "/readyz", "to be ready", |answer| answer.code == 200);
        served
    }

    /// As `ready`, on a store that is not.
    pub(crate) fn ready_or_not(coordinator: &Coordinator) -> Served {
        Served::start(coordinator, often(), Limits::default())
    }

    /// Tells it to end.
    pub(crate) fn end(&mut self) {
        drop(self.end.take());
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) {
        self.end();
        let thread = self.thread.take().unwrap();
        eventually_blocking(PATIENCE, "the service to end", || if thread.is_finished() { Ok(()) } else { Err(()) });
        thread.join().unwrap();
    }
}

/// Waits until an answer shows what is looked for.
pub(crate) fn until(to: SocketAddr, path: &str, what: &str, shows: impl Fn(&Answer) -> bool) -> Answer {
    eventually_blocking(Duration::from_secs(40), what, || {
        let answer = client::try_with(to, path, &[]).map_err(|error| error.to_string())?;
        if shows(&answer) { Ok(answer) } else { Err(format!("{answer:#?}")) }
    })
}

/// A program that listens, and where.
pub(crate) fn listening(mut command: Command) -> (Running, SocketAddr) {
    command.env("LOCKHOUSE_LISTEN", "127.0.0.1:0");
    let mut running = Running::start(command);
    running.until_err("listening on http://");
    let address = address(&running);
    (running, address)
}

/// What a program said that it listens on.
pub(crate) fn address(running: &Running) -> SocketAddr {
    let err = running.err();
    let (_, rest) = err.split_once("listening on http://").unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

/// `serve` on a store.
pub(crate) fn serve_on(store: &Store) -> (Running, SocketAddr) {
    listening(store.command(["serve"]))
}
