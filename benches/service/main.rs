//! What the service costs with a crowd in the store: how long answers take, beside a server that only says "ok", and how
//! much memory it takes.
//!
//! ```text
//! cargo bench --bench service
//! ```
//!
//! The server is that of `LOCKHOUSE_TEST_MONGODB_URI`; the writers are documents of a database of its own. The first
//! number that is given is the count of writers (10,000), the second that of requests (5,000).

#[path = "../support/table.rs"]
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod table;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::{DateTime, Document, doc};

/// The aim for the 99th of a hundred, and for the memory.
const AIM: Duration = Duration::from_millis(2);
const MEMORY_MIB: u64 = 50;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse().ok());
    let writers: i32 = numbers.next().unwrap_or(10_000);
    let requests = numbers.next().and_then(|number| usize::try_from(number).ok()).unwrap_or(5_000);
    let uri = std::env::var("LOCKHOUSE_TEST_MONGODB_URI").expect("LOCKHOUSE_TEST_MONGODB_URI; scripts/bench sets it");
    let name = format!("lhb_service_{}", std::process::id());
    let (server, options) = uri.split_once("/?").unwrap_or((&uri, ""));
    let database = Client::with_uri_str(&uri).await.expect("a server").database(&name);
    let leases = database.collection::<Document>("lockhouse");
    leases.insert_one(doc! {"_id": "layout", "generation": 0}).await.expect("a layout");
    let all: Vec<Document> = (0..writers).map(writer).collect();
    leases.insert_many(all).await.expect("writers");

    let serve = Serve::start(&format!("{server}/{name}?{options}"));
    serve.until(&format!("lockhouse_store_leases{{kind=\"writer\",state=\"fresh\"}} {writers}"));
    let bare = bare();
    table::head(&format!("serve, with {writers} writers in the store"), "a bare \"ok\"");
    let bare = measure("a bare \"ok\"", bare, "/", requests);
    for path in ["/healthz", "/metrics", "/readyz", "/"] {
        // The page is no probe's.
        let (count, aim) = if path == "/" { (requests / 5, None) } else { (requests, Some(table::Aim::Mostly(AIM))) };
        let row = table::Row::of(path).limited_by("CPU: the last look is put into words");
        let row = match aim {
            Some(aim) => row.aim(aim),
            None => row,
        };
        row.with(measure(path, serve.address, path, count), bare.clone()).print();
    }
    let memory = serve.memory();
    println!("memory: {} MiB now, {} MiB at most", memory.0 >> 10, memory.1 >> 10);
    let verdict = |reached| if reached { "reached" } else { "missed" };
    println!("aim: memory below {MEMORY_MIB} MiB: {}", verdict(memory.1 >> 10 < MEMORY_MIB));
    database.drop().await.expect("to drop the database");
}

/// A writer that refreshes itself in an hour, so that it stays fresh.
fn writer(n: i32) -> Document {
    let (now, owner) = (DateTime::now(), format!("owner-{n}"));
    let holder = doc! {"host": format!("worker-{n}"), "pid": n, "user": "ops", "program": "import", "label": "orders"};
    doc! {
        "_id": format!("lease/{n:08}"), "kind": "writer", "owner": &owner, "heartbeat": now,
        "lockhouse": {
            "for": &owner, "version": 1, "beats": 1_i64, "acquired": now, "refresh_interval_ms": 900_000_i64,
            "stale_after_ms": 3_600_000_i64, "reason": "night run", "holder": holder,
        },
    }
}

/// The program, serving.
struct Serve {
    child: Child,
    address: SocketAddr,
}

impl Serve {
    fn start(store: &str) -> Serve {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockhouse"));
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("LOCKHOUSE_STORE", store).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("its stderr")).read_line(&mut line).expect("a line");
        let (_, url) = line.split_once("http://").expect("where it listens");
        let address = url.trim_end().trim_end_matches('/').parse().expect("an address");
        Serve { child, address }
    }

    fn until(&self, metric: &str) {
        let begin = Instant::now();
        while !String::from_utf8_lossy(&Connection::open(self.address).ask("/metrics")).contains(metric) {
            assert!(begin.elapsed() < PATIENCE, "waited in vain for {metric}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The memory that it has, and the most that it had, in KiB.
    fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the field");
            line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
        };
        (field("VmRSS:"), field("VmHWM:"))
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that says "ok" to whatever comes: what the machine and the client take by themselves.
fn bare() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stream.set_nodelay(true);
            let mut from = BufReader::new(stream);
            let mut line = String::new();
            while from.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                if line.trim_end().is_empty() {
                    let _ = from.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n");
                }
                line.clear();
            }
        }
    });
    address
}

/// A connection that is asked over and over.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(to: SocketAddr) -> Connection {
        let stream = TcpStream::connect(to).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        Connection(BufReader::new(stream))
    }

    fn ask(&mut self, path: &str) -> Vec<u8> {
        write!(self.0.get_mut(), "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("to ask");
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a head");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.trim_end().parse().expect("a length");
            }
            if line.trim_end().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        body
    }
}

/// Prints how long answers take, and returns the 99th of a hundred.
fn measure(what: &str, to: SocketAddr, path: &str, requests: usize) -> Vec<Duration> {
    let mut connection = Connection::open(to);
    println!("{what}: {} bytes", connection.ask(path).len());
    let once = |_| {
        let begin = Instant::now();
        connection.ask(path);
        begin.elapsed()
    };
    (0..requests).map(once).collect()
}
