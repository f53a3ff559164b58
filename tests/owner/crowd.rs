//! Too many clients, and bad ones: the owner answers the next good one within a second.
//!
//! `LOCKHOUSE_TEST_CLIENTS=1000` and `LOCKHOUSE_TEST_BAD_REQUESTS=10000` for a long run.

use std::path::Path;
use std::time::{Duration, Instant};

use lockhouse::owner::{control_status, socket_path, watch};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::probe::Probe;
use crate::{PATIENCE, Store, count};

/// A good client, and how long it may take.
async fn is_answered(store: &Path, what: &str) {
    let begin = Instant::now();
    control_status(store, PATIENCE).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(1), "{what}: answered after {:?}", begin.elapsed());
}

/// A connection, as soon as there is room for one more that waits.
async fn connect(socket: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn many_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

#[tokio::test]
async fn clients_that_say_nothing_keep_nobody_out() {
    many_files();
    let store = Store::new();
    let _owner = Probe::owner("serving", &store.path());
    let socket = socket_path(store.path()).unwrap();
    let mut silent = Vec::new();
    for n in 0..count("LOCKHOUSE_TEST_CLIENTS", 300) {
        silent.push(connect(&socket).await);
        if n % 50 == 0 {
            is_answered(&store.path(), "beside the silent").await;
        }
    }
    is_answered(&store.path(), "beside all the silent").await;
    // Half a line is no more than nothing.
    for stream in &mut silent {
        let _ = stream.write_all(b"{\"protocol\":1,").await;
    }
    is_answered(&store.path(), "beside those that say half").await;
}

#[tokio::test]
async fn those_who_watch_keep_nobody_out_either() {
    many_files();
    let store = Store::new();
    let _owner = Probe::owner("serving", &store.path());
    let socket = socket_path(store.path()).unwrap();
    let mut watching = Vec::new();
    for _ in 0..256 {
        watching.push(watch(store.path()).await.unwrap());
    }
    is_answered(&store.path(), "beside the watchers").await;
    let mut one_more = connect(&socket).await;
    one_more.write_all(b"{\"protocol\":1,\"action\":\"watch\"}\n").await.unwrap();
    let mut answer = String::new();
    one_more.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("256 watch"), "{answer}");
    // A place is free as soon as somebody has gone.
    watching.pop();
    watching.push(watch(store.path()).await.unwrap());
    // Those who wait for batches have fewer places than there are for requests. This owner refuses at once, so this only
    // sees that refusals give their places back.
    for _ in 0..200 {
        let mut stream = connect(&socket).await;
        stream.write_all(b"{\"protocol\":1,\"action\":\"ingest\",\"ids\":[\"a\"],\"wait\":true}\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("ingests nothing"), "{answer}");
    }
}

#[tokio::test]
async fn garbage_and_slow_requests_do_no_harm() {
    many_files();
    let store = Store::new();
    let _owner = Probe::owner("serving", &store.path());
    let socket = socket_path(store.path()).unwrap();
    let huge = vec![b'x'; 300_000];
    let mut slow = Vec::new();
    for n in 0..count("LOCKHOUSE_TEST_BAD_REQUESTS", 1000) {
        let mut stream = connect(&socket).await;
        // Whoever is turned away while he speaks gets an error for it.
        let _ = match n % 5 {
            0 => stream.write_all(&[0xff; 700]).await,
            1 => tokio::time::timeout(Duration::from_secs(5), stream.write_all(&huge)).await.expect("it is not read"),
            2 => stream.write_all(b"{\"protocol\":1,\"action\":\"status\"}\n{\"protocol\":1,\"action\":\"sta").await,
            3 => stream.write_all(b"{\"protocol\":1,\"action\":\"ingest\",\"ids\":[[[[[[").await,
            _ => stream.write_all(b"{").await,
        };
        if n % 5 == 4 {
            slow.push(stream);
            slow.drain(..slow.len().saturating_sub(100));
        }
        if n % 100 == 0 {
            is_answered(&store.path(), "among the bad").await;
        }
    }
    for stream in &mut slow {
        let _ = stream.write_all(b" ").await;
    }
    is_answered(&store.path(), "after the bad").await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_said_to_be() {
    let store = Store::new();
    let _owner = Probe::owner("serving", &store.path());
    let socket = socket_path(store.path()).unwrap();
    let mut stream = connect(&socket).await;
    let _ = stream.write_all(&[b' '; 65_536]).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("65536 bytes"), "{answer}");
    // And one that only just fits is a request.
    let mut line = b"{\"protocol\":1,\"action\":\"status\"}".to_vec();
    line.resize(65_535, b' ');
    line.push(b'\n');
    let mut stream = connect(&socket).await;
    stream.write_all(&line).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("{\"ok\":true"), "{answer}");
}

#[tokio::test]
async fn one_that_never_finishes_is_turned_away_after_ten_seconds() {
    let store = Store::new();
    let _owner = Probe::owner("serving", &store.path());
    let mut stream = connect(&socket_path(store.path()).unwrap()).await;
    let begin = Instant::now();
    stream.write_all(b"{").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let took = begin.elapsed();
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(20), "{took:?}");
    assert!(answer.contains("in time"), "{answer}");
}
