//! From the death of a store's owner to the next owner being ready, beside a waiter that only polls every 100 ms.
//!
//! Both take turns, on the same store, so that noise meets both alike. An owner is this program once more; it is killed
//! outright, and the time runs from the kill to the follower's own `ready`, its control socket included.
//!
//! ```text
//! cargo bench --bench takeover [--no-default-features --features local]
//! ```
//!
//! The first number that is given is the count of kills (200).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[path = "../support/table.rs"]
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod table;

use lockhouse::owner::{Candidate, ControlServer, OwnerLock, Phase, StatusOnly, Takeover, serve_control};

/// The aim for the 99th of a hundred.
const AIM: Duration = Duration::from_millis(10);
/// How often a waiter looks that is told of nothing.
const POLL: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let word = words.next();
    if word.as_deref() == Some("own") {
        let store = words.next().expect("own PATH");
        return own(Path::new(&store)).await;
    }
    let kills: usize = word.map_or(200, |word| word.parse().expect("a count of kills"));
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("p");
    let (mut following, mut polling) = (Vec::new(), Vec::new());
    for _ in 0..kills {
        following.push(follow(&store).await);
        polling.push(poll(&store).await);
    }
    table::head("killed owner to next owner", "polling waiter");
    let of = |step: usize| following.iter().map(|times: &[Duration; 3]| times[step]).collect::<Vec<_>>();
    table::Row::of("told of the end").with(of(0), Vec::new()).print();
    table::Row::of("elected").with(of(1), Vec::new()).print();
    table::Row::of("ready")
        .aim(table::Aim::Mostly(AIM))
        .limited_by("the kernel: how soon it frees a dead process's locks")
        .with(of(2), polling)
        .print();
}

/// An owner that is ready, until it is killed.
async fn own(store: &Path) {
    let owner = Candidate::new(store, "bench").and_then(|candidate| candidate.elect()).expect("an election");
    let owner = owner.expect("nobody else owns it");
    let _server = ready(&owner);
    println!("ready");
    std::io::stdout().flush().expect("somebody reads");
    std::future::pending::<()>().await;
}

fn ready(owner: &OwnerLock) -> ControlServer {
    let server = serve_control(owner, StatusOnly::of(owner)).expect("a socket");
    owner.update(|state| state.phase = Phase::Ready);
    server
}

fn start(store: &Path) -> Child {
    let mut owner = Command::new(std::env::current_exe().expect("this program"))
        .arg("own")
        .arg(store)
        .stdout(Stdio::piped())
        .spawn()
        .expect("an owner");
    let mut line = String::new();
    BufReader::new(owner.stdout.take().expect("a pipe")).read_line(&mut line).expect("its word");
    assert_eq!(line, "ready\n");
    owner
}

/// Kills an owner, at some moment that no waiter's pace knows of.
async fn kill(mut owner: Child) -> Instant {
    tokio::time::sleep(Duration::from_micros(fastrand::u64(150_000..250_000))).await;
    let begin = Instant::now();
    owner.kill().expect("an own child");
    // Reaped later: its locks are free as soon as it is dead.
    tokio::task::spawn_blocking(move || owner.wait());
    begin
}

/// When a follower is told, elected and ready.
async fn follow(store: &Path) -> [Duration; 3] {
    let owner = start(store);
    let mut takeover = Takeover::new(store, "bench").expect("a store");
    let mut gone = takeover.owners_gone();
    let following = async {
        let owner = takeover.elected().await.expect("an election");
        let elected = Instant::now();
        let server = ready(&owner);
        (elected, Instant::now(), owner, server)
    };
    // It may be elected before it is told.
    let told = async {
        match gone.changed().await {
            Ok(()) => Instant::now(),
            Err(_) => std::future::pending().await,
        }
    };
    let both = async {
        tokio::pin!(following, told);
        tokio::select! {
            biased;
            told = &mut told => (Some(told), following.await),
            done = &mut following => (None, done),
        }
    };
    let ((told, (elected, end, owner, server)), begin) = tokio::join!(both, kill(owner));
    let told = told.unwrap_or(elected);
    drop(server);
    owner.release();
    [told - begin, elected - begin, end - begin]
}

async fn poll(store: &Path) -> Duration {
    let owner = start(store);
    let candidate = Candidate::new(store, "bench").expect("a store");
    let polling = async {
        loop {
            if let Some(owner) = candidate.elect().expect("an election") {
                let server = ready(&owner);
                return (Instant::now(), owner, server);
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let ((end, owner, server), begin) = tokio::join!(polling, kill(owner));
    drop(server);
    owner.release();
    end - begin
}
