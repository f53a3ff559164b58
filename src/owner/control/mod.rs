//! The owner's control socket: control protocol 1.
//!
//! One JSON line and one answer line per connection:
//!
//! ```text
//! → {"protocol":1,"action":"status"}
//! ← {"ok":true,"state":{…}}
//! → {"protocol":1,"action":"ingest","ids":["b1"],"wait":true}
//! ← {"ok":true,"ingested":["b1"],"results":{"b1":{…}},"more":false}
//! → {"protocol":1,"action":"watch"}
//! ← {"ok":true,"state":{…}}        and the connection stays until the owner drains, goes, or dies
//! ```
//!
//! Nothing depends on it for correctness: a producer that cannot reach the owner waits for the owner's poll, and a
//! follower that is not told of the owner's end finds the lock free. So every limit here is one of patience, and
//! whoever is turned away loses time only.
//!
//! Both sides check that the other is the same user. `wire` has the lines, `socket` the address, `server` the owner's
//! side, `watchers` who is told of its end, `client` everybody else's.

mod client;
mod server;
mod socket;
mod watchers;
mod wire;

use std::time::Duration;

pub use client::{Watch, control_ingest, control_status, watch};
pub(super) use client::{nudge, watch_store};
pub use server::{ControlHandler, ControlServer, StatusOnly, serve_control};
pub(super) use socket::SocketFile;
pub use socket::socket_path;
pub(super) use watchers::Watchers;
pub use wire::Ingested;

/// How long one request may take, from its connection to its answer.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// How many requests are served at once.
const REQUESTS: usize = 64;
/// How many of those may wait for batches: the rest is for requests that are answered at once.
const WAITING: usize = 48;
/// How many watch at once.
const WATCHERS: usize = 256;
/// How long accepting rests after an error.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
