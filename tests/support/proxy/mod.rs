//! A TCP proxy between a client and a server, whose behaviour a test changes at any time. It knows
//! just enough of the wire protocol to see whole messages and the names of commands, so a fault hits
//! a statement, never half of one.
//!
//! Clients must connect with `directConnection=true` (`TestDatabase::uri_through` says so), or the
//! driver goes to the address that the server gives for itself. The proxy runs on a thread of its own:
//! a test may block its own without stopping the traffic.

mod connection;
mod controls;
mod wire;

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use mongodb::bson::RawDocument;
use tokio::net::TcpListener;
use tokio::sync::mpsc as tokio_mpsc;

pub(crate) use self::controls::Action;
use self::controls::{Controls, Mode};
use super::poll::eventually;

/// How long a statement that was held may take on the server once it is released.
const LATE_BOUND: Duration = Duration::from_secs(10);

/// Asks the acceptor to listen (or not), and to say when it does.
struct Listen(bool, mpsc::Sender<()>);

/// The proxy and the handle to it. Dropping it closes everything.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    controls: Arc<Controls>,
    // Closed by drop, which is how the acceptor learns of the end.
    listen: Option<tokio_mpsc::UnboundedSender<Listen>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy on a free loopback port, in front of `target` (`host:port`), that lets everything pass.
    pub(crate) fn start(target: &str) -> Self {
        let controls = Arc::new(Controls::default());
        let (listen, orders) = tokio_mpsc::unbounded_channel();
        let (started, address) = mpsc::channel();
        let thread = std::thread::spawn({
            let (controls, target) = (controls.clone(), target.to_owned());
            move || {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime for the proxy")
                    .block_on(accept(target, controls, orders, started));
            }
        });
        Self {
            address: address.recv().expect("the proxy listens"),
            controls,
            listen: Some(listen),
            thread: Some(thread),
        }
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything passes again, new connections too. Delays and targeted faults stay as they are.
    pub(crate) fn pass(&self) {
        self.controls.set_mode(Mode::Pass);
        self.set_listening(true);
    }

    /// Resets every connection and refuses new ones, until `pass`. What is held stays held.
    pub(crate) fn cut(&self) {
        self.set_listening(false);
        self.controls.reset_connections();
    }

    /// Resets every connection that is open now; new ones pass.
    pub(crate) fn reset(&self) {
        self.controls.reset_connections();
    }

    /// Accepts, and swallows what comes from either side.
    pub(crate) fn blackhole(&self) {
        self.controls.set_mode(Mode::Blackhole);
    }

    /// Requests reach the server, which executes them; no reply comes back.
    pub(crate) fn drop_replies(&self) {
        self.controls.set_mode(Mode::DropReplies);
    }

    /// Requests wait in the proxy until `release_held`, even when their client has gone by then.
    pub(crate) fn hold_requests(&self) {
        self.controls.set_mode(Mode::HoldRequests);
    }

    /// Each message waits for so long in its direction. Zero ends it.
    pub(crate) fn delay(&self, requests: Duration, replies: Duration) {
        self.controls.set_delays(requests, replies);
    }

    /// The next `times` requests with this command name meet `action`.
    pub(crate) fn on_command(&self, name: &str, action: Action, times: usize) {
        let name = name.to_owned();
        let named = move |body: &RawDocument| wire::command_name(body) == Some(name.as_str());
        self.on_matching(named, action, times);
    }

    /// The next `times` requests whose body satisfies `matches` meet `action`. Earlier rules go first.
    /// The body is the command's document without the sequences (the documents of an insert, the
    /// statements of an update) that a driver sends beside it.
    pub(crate) fn on_matching(
        &self,
        matches: impl Fn(&RawDocument) -> bool + Send + 'static,
        action: Action,
        times: usize,
    ) {
        self.controls.add_rule(Box::new(matches), action, times);
    }

    /// Forgets all targeted faults that have not happened yet.
    pub(crate) fn clear_rules(&self) {
        self.controls.clear_rules();
    }

    /// How many requests with this command name clients have sent, whatever became of them.
    pub(crate) fn count(&self, command: &str) -> usize {
        self.commands().iter().filter(|name| *name == command).count()
    }

    /// The command names of all requests, in the order of their arrival.
    pub(crate) fn commands(&self) -> Vec<String> {
        self.controls.commands()
    }

    /// Starts counting from zero.
    pub(crate) fn forget_commands(&self) {
        self.controls.forget_commands();
    }

    /// The command names of the requests that are held now.
    pub(crate) fn held(&self) -> Vec<String> {
        self.controls.held()
    }

    /// How many replies were swallowed so far: so many statements have been executed unseen.
    pub(crate) fn dropped_replies(&self) -> usize {
        self.controls.dropped_replies()
    }

    /// Waits until so many requests are held.
    pub(crate) async fn wait_held(&self, count: usize) {
        eventually(LATE_BOUND, "requests to be held by the proxy", || async {
            let held = self.held();
            if held.len() >= count { Ok(()) } else { Err(held) }
        })
        .await;
    }

    /// Waits until so many replies were swallowed since the proxy started.
    pub(crate) async fn wait_dropped(&self, count: usize) {
        eventually(LATE_BOUND, "replies to be swallowed by the proxy", || async {
            let dropped = self.dropped_replies();
            if dropped >= count { Ok(()) } else { Err(dropped) }
        })
        .await;
    }

    /// Delivers what is held, in the order in which it came, and waits until the server has answered
    /// each: then the late statements have been executed. Returns how many there were.
    pub(crate) async fn release_held(&self) -> usize {
        let released = self.controls.take_held();
        let count = released.len();
        for held in released {
            let command = held.command.clone();
            // Delivered by the proxy's own thread, whose sockets they are.
            let answered = held.release();
            tokio::time::timeout(LATE_BOUND, answered)
                .await
                .unwrap_or_else(|_| panic!("no answer to the late {command} in {LATE_BOUND:?}"))
                .unwrap_or_else(|_| panic!("the server closed the connection of the late {command}"));
        }
        count
    }

    fn set_listening(&self, on: bool) {
        let (done, wait) = mpsc::channel();
        let orders = self.listen.as_ref().expect("open until drop");
        orders.send(Listen(on, done)).expect("the acceptor runs until drop");
        wait.recv().expect("the acceptor answers");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.listen.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(
    target: String,
    controls: Arc<Controls>,
    mut orders: tokio_mpsc::UnboundedReceiver<Listen>,
    started: mpsc::Sender<SocketAddr>,
) {
    let first = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
    let address = first.local_addr().expect("a bound socket has an address");
    let _ = started.send(address);
    let mut listener = Some(first);
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Orders first: after a cut is acknowledged nobody gets in any more.
            biased;
            order = orders.recv() => {
                let Some(Listen(on, done)) = order else { return };
                if !on {
                    listener = None;
                } else if listener.is_none() {
                    let again = TcpListener::bind(address).await;
                    listener = Some(again.expect("the proxy's own port is free again"));
                }
                let _ = done.send(());
            }
            accepted = accepted => {
                if let Ok((client, _)) = accepted {
                    // Taken here, so that a cut reaches also whoever was let in just before it.
                    let open = controls.open();
                    let serve = connection::serve(client, target.clone(), controls.clone(), open);
                    tokio::spawn(serve);
                }
            }
        }
    }
}
