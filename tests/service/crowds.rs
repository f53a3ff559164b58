//! Clients that are slow, idle, huge or many, and the end of the service.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::{Router, routing};
use lockhouse::service::Limits;

use crate::client::{Listener, PATIENCE, connect, get, read};
use crate::served::{Served, memory, often, until};
use crate::support::poll::eventually_blocking;

/// Long enough that no connection of a test is ended for being slow.
const PATIENT: Duration = Duration::from_secs(60);

#[test]
fn a_hundred_idle_and_a_hundred_slow_clients_keep_no_probe_out() {
    let (_store, coordinator) = memory();
    let limits = Limits { connections: 64, head_time: PATIENT, ..Limits::default() };
    let served = Served::start(&coordinator, often(), limits);
    until(served.address, "/readyz", "to be ready", |answer| answer.code == 200);
    let idle: Vec<_> = (0..100).map(|_| connect(served.address)).collect();
    let mut slow: Vec<_> = (0..100).map(|_| connect(served.address)).collect();
    for (n, stream) in slow.iter_mut().enumerate() {
        // Those that had to give way are told by a reset.
        let _ = stream.write_all(&b"GET /healthz HTTP/1.1\r\nHost: loc"[..10 + n % 20]);
    }
    for _ in 0..20 {
        let begin = Instant::now();
        assert_eq!(get(served.address, "/healthz").code, 200);
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    }
    // No more than so many are kept, of all who came.
    let kept = idle.iter().chain(&slow).filter(|stream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert!(kept.count() <= 64);
}

#[test]
fn a_head_that_does_not_come_is_not_waited_for() {
    let (_store, coordinator) = memory();
    let limits = Limits { head_time: Duration::from_millis(300), ..Limits::default() };
    let served = Served::start(&coordinator, often(), limits);
    for begin in [&b""[..], b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"] {
        let mut stream = connect(served.address);
        stream.write_all(begin).unwrap();
        let mut rest = Vec::new();
        // It ends: with nothing, or with a word why. A read that waits for more than that is one that was let wait.
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest));
    }
}

#[test]
fn ten_megabytes_of_a_head_are_answered_with_431() {
    let (_store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let stream = connect(served.address);
    let mut writing = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let _ = write!(writing, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ");
        // Refused on the way.
        for _ in 0..160 {
            if writing.write_all(&[b'x'; 1 << 16]).is_err() {
                return;
            }
        }
    });
    match read(stream) {
        Ok(answer) => assert_eq!(answer.code, 431, "{answer:?}"),
        // A reset may come over the answer: what was sent after it is not read.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    writer.join().unwrap();
    // One that is just too long, and waits for its answer.
    let mut stream = connect(served.address);
    write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: {}", "x".repeat(17 << 10)).unwrap();
    assert_eq!(read(stream).unwrap().code, 431);
    assert_eq!(get(served.address, "/healthz").code, 200);
}

#[test]
fn a_body_is_not_taken() {
    let (_store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    for (method, length, code) in [("POST", 10, 405), ("GET", 1_000_000_000_u64, 413)] {
        let mut stream = connect(served.address);
        let head = format!("{method} /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {length}\r\n\r\n").unwrap();
        let _ = stream.write_all(&[b'x'; 10]);
        assert_eq!(read(stream).unwrap().code, code, "{method}");
    }
}

#[test]
fn a_client_that_takes_nothing_is_let_go() {
    let (_store, coordinator) = memory();
    let leases: Vec<_> = (0..2000)
        .map(|_| {
            futures::executor::block_on(coordinator.acquire_writer().reason("x".repeat(2000)).into_future()).unwrap()
        })
        .collect();
    let limits = Limits { connections: 2, stall: Duration::from_millis(500), ..Limits::default() };
    let served = Served::start(&coordinator, often(), limits);
    until(served.address, "/v1/status", "the writers", |answer| answer.body.len() > 4 << 20);
    // Both places are taken by clients that are being answered, and read nothing.
    let greedy: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = connect(served.address);
            // More than the kernel keeps for a reader.
            let request = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(10);
            stream.write_all(request.as_bytes()).unwrap();
            // It is being answered, and reads no further.
            stream.peek(&mut [0]).unwrap();
            stream
        })
        .collect();
    until(served.address, "/healthz", "a place", |answer| answer.code == 200);
    drop((greedy, leases));
}

#[test]
fn the_end_lets_answers_out_and_ends_streams() {
    let (_store, coordinator) = memory();
    let mut served = Served::ready(&coordinator);
    let mut listener = Listener::start(served.address, "/v1/events", None);
    let idle = connect(served.address);
    // A request that is half said when the end begins is answered.
    let mut late = connect(served.address);
    write!(late, "GET /healthz HTTP/1.1\r\nHost: loc").unwrap();
    // Both are known to the service once a third one was answered.
    assert_eq!(get(served.address, "/healthz").code, 200);
    let begin = Instant::now();
    served.end();
    assert!(listener.next().is_none());
    write!(late, "alhost\r\n\r\n").unwrap();
    assert_eq!(read(late).unwrap().code, 200);
    served.ended();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    drop(idle);
}

#[test]
fn only_so_many_listen_at_a_time() {
    let (_store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let mut all: Vec<_> = (0..64).map(|_| Listener::start(served.address, "/v1/events", None)).collect();
    let refused = Listener::try_start(served.address, "/v1/events", None).err();
    assert!(refused.as_ref().is_some_and(|line| line.contains(" 503 ")), "{refused:?}");
    assert_eq!(get(served.address, "/healthz").code, 200);
    drop(all.pop());
    eventually_blocking(PATIENCE, "a place", || Listener::try_start(served.address, "/v1/events", None).map(drop));
}

/// What a program mounts beside the service is within the same limits.
fn slow_and_greedy() -> Router {
    let hang = || async { std::future::pending::<&'static str>().await };
    let length = |body: Bytes| async move { body.len().to_string() };
    Router::new().route("/hang", routing::get(hang)).route("/length", routing::post(length))
}

#[test]
fn an_answer_that_does_not_come_is_not_waited_for() {
    let limits = Limits { answer_time: Duration::from_millis(300), ..Limits::default() };
    let served = Served::own(slow_and_greedy, limits);
    let answer = get(served.address, "/hang");
    assert_eq!((answer.code, answer.body.as_str()), (503, "no answer in time\n"));
}

#[test]
fn the_end_waits_only_so_long_for_an_answer_under_way() {
    let limits = Limits { answer_time: PATIENT, farewell: Duration::from_millis(300), ..Limits::default() };
    let mut served = Served::own(slow_and_greedy, limits);
    let mut asks = connect(served.address);
    write!(asks, "GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // It is known to the service once a later one was answered.
    assert_eq!(get(served.address, "/nothing").code, 404);
    served.end();
    served.ended();
}

#[test]
fn a_body_that_does_not_say_how_long_it_is_may_not_be_long() {
    let limits = Limits { body: 1000, ..Limits::default() };
    let served = Served::own(slow_and_greedy, limits);
    for (length, code) in [(900, 200), (1100, 413)] {
        let mut stream = connect(served.address);
        let head = "POST /length HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked";
        write!(stream, "{head}\r\n\r\n{length:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(length)).unwrap();
        assert_eq!(read(stream).unwrap().code, code, "{length}");
    }
}
