//! `--listen`: the service in a thread of its own, beside whatever the program does.
//!
//! The port is bound before anything else is done: a port that is taken is said before a lease is. The main thread, which
//! ends a command at its lease's deadline, never waits for a request.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use clap::Args;
use futures::future::{BoxFuture, FutureExt};
use lockhouse::service::{Access, Limits, Options, Token, router_while_connecting, serve};
use lockhouse::{Coordinator, Error, StoreUrl};
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::Context;
use super::console::Console;
use super::exit::Failure;
use super::store;

/// `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen. On loopback any user of this machine may ask; elsewhere whoever has the token.
    #[arg(long, value_name = "ADDRESS:PORT", env = "LOCKHOUSE_LISTEN", default_value = "127.0.0.1:7411", value_parser = address)]
    listen: SocketAddr,

    /// A file with the token that whoever asks has to send: Authorization: Bearer TOKEN. Health and readiness need none.
    #[arg(long, value_name = "FILE", env = "LOCKHOUSE_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Asks whether the service that listens there is well, and ends: 0 if it is, 69 if not. For health checks.
    #[arg(long)]
    check: bool,
}

impl ServeArgs {
    /// The address of the service to ask, if that is all that is wanted.
    pub(crate) fn checks(&self) -> Option<SocketAddr> {
        self.check.then_some(self.listen)
    }
}

/// What a command under a lease takes, and whoever owns a store.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListenArgs {
    /// Answers over HTTP meanwhile: health, readiness, metrics, status, events, and a page. See `lockhouse serve`.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,

    /// A file with the token that whoever asks has to send; needed to listen beyond this machine.
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
}

/// An address with its port. A name would have to be looked up, and could be another one tomorrow.
fn address(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address = local.as_deref().unwrap_or(text).parse();
    address.map_err(|_| "not an address with a port, such as 127.0.0.1:7411 or [::]:7411".to_owned())
}

/// A bound port.
pub(crate) struct Port {
    listener: TcpListener,
    address: SocketAddr,
    access: Access,
}

impl Port {
    fn bind(address: SocketAddr, token_file: Option<&PathBuf>) -> Result<Port, Failure> {
        let access = match token_file {
            Some(file) => Access::Token(Token::from_file(file)?),
            None if address.ip().is_loopback() => Access::Loopback,
            None => {
                return Err(Failure::Usage(format!(
                    "listening on {address}, beyond this machine, needs a token: use --token-file FILE, or listen on 127.0.0.1"
                )));
            }
        };
        let cannot = |error: io::Error| {
            let next = match error.kind() {
                io::ErrorKind::AddrInUse => "; another program listens there: choose another port with --listen",
                _ => "",
            };
            Failure::system("cannot listen", io::Error::new(error.kind(), format!("{address}: {error}{next}")))
        };
        let listener = TcpListener::bind(address).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        Ok(Port { listener, address, access })
    }

    /// For `serve`.
    pub(crate) fn of_serve(args: &ServeArgs) -> Result<Port, Failure> {
        Port::bind(args.listen, args.token_file.as_ref())
    }

    /// Starts the thread.
    pub(crate) fn open<F>(self, console: &Console, url: StoreUrl, connect: F) -> Result<Listening, Failure>
    where
        F: FnMut() -> BoxFuture<'static, Result<Coordinator, Error>> + Send + 'static,
    {
        let Port { listener, address, access } = self;
        let path = match &url {
            StoreUrl::Local(path) => Some(path.clone()),
            StoreUrl::Mongo(_) => None,
        };
        let options = Options { access, path, ..Options::default() };
        let (end, ended) = oneshot::channel();
        let (done, finished) = sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| Failure::system("the service's runtime cannot be started", error))?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)
        };
        let listener = listener.map_err(|error| Failure::system("the port cannot be watched", error))?;
        let serving = async move {
            let router = router_while_connecting(&url, connect, options);
            // Dropped without a word it ends too.
            serve(listener, router, Limits::default(), async { drop(ended.await) }).await;
        };
        let thread = std::thread::Builder::new().name("service".to_owned()).spawn(move || {
            runtime.block_on(serving);
            // What it waits for may hang: a file system.
            runtime.shutdown_background();
            let _ = done.send(());
        });
        thread.map_err(|error| Failure::system("the service's thread cannot be started", error))?;
        let url = format!("http://{address}/");
        console.event("listening", json!({"address": address, "url": url}), &format!("listening on {url}"));
        Ok(Listening { end, finished })
    }
}

/// A service that runs. It is told to end when this is dropped.
pub(crate) struct Listening {
    end: oneshot::Sender<()>,
    finished: Receiver<()>,
}

/// Longer than a service needs to let its last answers out, and than a coordinator that goes with it waits for releases.
const FAREWELL: Duration = Duration::from_secs(10);

impl Listening {
    /// Lets the last answers out, and returns when they are, or after a while.
    pub(crate) fn finish(self) {
        drop(self.end);
        let _ = self.finished.recv_timeout(FAREWELL);
    }
}

/// The service beside a command under a lease, or beside an owner.
pub(crate) struct Beside {
    listening: Listening,
    connected: watch::Sender<Option<Coordinator>>,
}

impl Beside {
    /// Binds and starts it, before anything is connected. `None` if it was not asked for.
    pub(crate) fn start(context: &Context, args: &ListenArgs) -> Result<Option<Beside>, Failure> {
        let Some(address) = args.listen else { return Ok(None) };
        let (url, _) = store::given(&context.global)?;
        let port = Port::bind(address, args.token_file.as_ref())?;
        let (connected, waiting) = watch::channel(None);
        let listening = port.open(&context.console, url, move || connection(waiting.clone()).boxed())?;
        Ok(Some(Beside { listening, connected }))
    }

    /// There is a coordinator to watch.
    pub(crate) fn connected(&self, coordinator: &Coordinator) {
        self.connected.send_replace(Some(coordinator.clone()));
    }

    /// The job has ended so. Whoever insisted on leaving at once waits for nobody.
    pub(crate) fn finish(self, result: &Result<i32, Failure>) {
        drop(self.connected);
        if !matches!(result, Err(Failure::Interrupted { left: Some(_), .. })) {
            self.listening.finish();
        }
    }
}

/// The coordinator that the job connected.
async fn connection(mut waiting: watch::Receiver<Option<Coordinator>>) -> Result<Coordinator, Error> {
    let connected = waiting.wait_for(Option::is_some).await.ok().and_then(|connected| connected.clone());
    match connected {
        Some(coordinator) => Ok(coordinator),
        // The job ended before it was connected, and the service ends with it.
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_and_needs_no_look_up() {
        assert_eq!(address("localhost:80").unwrap(), "127.0.0.1:80".parse().unwrap());
        assert!(address("[::1]:0").is_ok());
        for wrong in ["", "7411", "127.0.0.1", "example.org:80", ":80"] {
            assert!(address(wrong).unwrap_err().contains("127.0.0.1:7411"), "{wrong}");
        }
    }
}
