//! The control socket: its protocol, its address, its file.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use lockhouse::ErrorKind;
use lockhouse::owner::{
    Candidate, ControlHandler, Ingested, OwnerLock, Phase, State, StatusOnly, Watch, control_ingest, control_status,
    read_state, serve_control, socket_path, watch,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Notify;

use crate::probe::Probe;
use crate::support::poll::eventually;
use crate::{PATIENCE, Store};

fn elect(path: &Path) -> OwnerLock {
    Candidate::new(path, "b1").unwrap().elect().unwrap().unwrap()
}

/// Applies `fast` at once, `slow` when it is told to, `never` never.
struct Applying {
    state: State,
    told: std::sync::Arc<Notify>,
    dropped: std::sync::Arc<Mutex<u32>>,
}

struct Counted(std::sync::Arc<Mutex<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

impl ControlHandler for Applying {
    fn status(&self) -> State {
        self.state.clone()
    }

    fn ingest(&self, ids: Vec<String>, wait: bool) -> BoxFuture<'_, Result<Ingested, String>> {
        let counted = Counted(std::sync::Arc::clone(&self.dropped));
        Box::pin(async move {
            let _counted = counted;
            if ids.iter().any(|id| id == "bad") {
                return Err("the spool is on fire".to_owned());
            }
            if wait && ids.iter().any(|id| id == "slow") {
                self.told.notified().await;
            }
            if wait && ids.iter().any(|id| id == "never") {
                std::future::pending::<()>().await;
            }
            let mut done = Ingested::default();
            done.results = ids.iter().map(|id| (id.clone(), json!({"rows": 1}))).collect();
            done.ingested = ids;
            Ok(done)
        })
    }
}

fn applying(owner: &OwnerLock) -> (Applying, std::sync::Arc<Notify>, std::sync::Arc<Mutex<u32>>) {
    let (told, dropped) = (std::sync::Arc::new(Notify::new()), std::sync::Arc::new(Mutex::new(0)));
    let handler = Applying { state: owner.state(), told: told.clone(), dropped: dropped.clone() };
    (handler, told, dropped)
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// One line in, everything out.
async fn raw(path: &Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(line.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with('\n') && answer.matches('\n').count() == 1, "{answer:?}");
    serde_json::from_str(&answer).unwrap()
}

#[tokio::test]
async fn one_line_and_one_answer() {
    let store = Store::new();
    let owner = elect(&store.path());
    let server = serve_control(&owner, applying(&owner).0).unwrap();
    let socket = socket_path(store.path()).unwrap();
    assert_eq!(read_state(store.path()).unwrap().state().unwrap().socket.as_deref(), socket.to_str());
    let metadata = fs::metadata(&socket).unwrap();
    assert!(metadata.file_type().is_socket() && metadata.permissions().mode() & 0o777 == 0o600);

    let status = raw(&socket, "{\"protocol\":1,\"action\":\"status\"}\n").await;
    assert_eq!((&status["ok"], &status["state"]["build"]), (&json!(true), &json!("b1")));
    let ingest = raw(&socket, "{\"protocol\":1,\"action\":\"ingest\",\"ids\":[\"fast\"],\"wait\":true}\n").await;
    assert_eq!(ingest, json!({"ok": true, "ingested": ["fast"], "results": {"fast": {"rows": 1}}, "more": false}));
    for (line, says) in [
        ("{\"protocol\":2,\"action\":\"status\"}\n", "speaks protocol 1"),
        ("{\"protocol\":1,\"action\":\"dance\"}\n", "actions are status, ingest and watch"),
        ("{\"protocol\":1,\"action\":\"ingest\",\"ids\":[\"../x\"]}\n", "is no batch's id"),
        ("{\"protocol\":1,\"action\":\"ingest\",\"ids\":[\"bad\"]}\n", "on fire"),
        ("hello\n", "no request"),
        ("\n", "no request"),
    ] {
        let answer = raw(&socket, line).await;
        assert_eq!(answer["ok"], json!(false), "{line}");
        assert!(answer["error"].as_str().unwrap().contains(says), "{line}: {answer}");
    }

    assert_eq!(control_status(store.path(), PATIENCE).await.unwrap().instance, owner.instance());
    let done = control_ingest(store.path(), &ids(&["fast"]), false, PATIENCE).await.unwrap();
    assert_eq!((done.ingested, done.more), (ids(&["fast"]), false));
    let refused = control_ingest(store.path(), &ids(&["bad"]), false, PATIENCE).await.unwrap_err();
    assert!(refused.to_string().contains("refused: the spool is on fire"), "{refused}");
    let refused = control_ingest(store.path(), &ids(&["../x"]), false, PATIENCE).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let refused = control_ingest(store.path(), &vec!["x".repeat(64); 1000], false, PATIENCE).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains("fewer ids"), "{refused}");

    server.close();
    assert!(!socket.exists());
    let refused = control_status(store.path(), PATIENCE).await.unwrap_err();
    assert!(refused.to_string().contains("cannot be reached"), "{refused}");
    drop(owner);
    let refused = control_status(store.path(), PATIENCE).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("no owner"), "{refused}");
}

#[tokio::test]
async fn waiting_too_long_is_no_failure_and_a_client_that_leaves_frees_its_place() {
    let store = Store::new();
    let owner = elect(&store.path());
    let (handler, told, dropped) = applying(&owner);
    let server = serve_control(&owner, handler).unwrap();
    let path = store.path();
    let slow = tokio::spawn({
        let path = path.clone();
        async move { control_ingest(path, &ids(&["slow"]), true, PATIENCE).await }
    });
    let never = tokio::spawn({
        let path = path.clone();
        async move { (Instant::now(), control_ingest(path, &ids(&["never"]), true, PATIENCE).await, Instant::now()) }
    });
    let socket = socket_path(&path).unwrap();
    for _ in 0..100 {
        let mut gone = UnixStream::connect(&socket).await.unwrap();
        gone.write_all(b"{\"protocol\":1,\"action\":\"ingest\",\"ids\":[\"never\"],\"wait\":true}\n").await.unwrap();
    }
    // There are fewer places than that for those who wait.
    let done = control_ingest(&path, &ids(&["fast"]), true, Duration::from_secs(1)).await.unwrap();
    assert_eq!(done.ingested, ids(&["fast"]));
    eventually(Duration::from_secs(1), "those who have gone to be forgotten", || async {
        let dropped = *dropped.lock().unwrap();
        if dropped > 40 { Ok(()) } else { Err(dropped) }
    })
    .await;
    told.notify_one();
    let done = slow.await.unwrap().unwrap();
    assert_eq!((done.ingested, done.more), (ids(&["slow"]), false));
    let (begin, not_yet, end) = never.await.unwrap();
    let not_yet = not_yet.unwrap();
    assert!(not_yet.more && not_yet.ingested.is_empty());
    let took = end - begin;
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(16), "{took:?}");
    drop(server);
}

#[tokio::test]
async fn a_watch_lasts_until_the_owner_drains_goes_or_dies() {
    let store = Store::new();
    let owner = elect(&store.path());
    let server = serve_control(&owner, StatusOnly::of(&owner)).unwrap();
    let watched = async || {
        let mut watching = watch(store.path()).await.unwrap();
        assert_eq!(watching.state().instance, owner.instance());
        let lasts = tokio::time::timeout(Duration::from_millis(200), watching.ended()).await.is_err();
        assert!(lasts, "nothing has happened");
        watching
    };
    let ends = async |mut watching: Watch, how| tokio::time::timeout(PATIENCE, watching.ended()).await.expect(how);
    let watching = watched().await;
    server.drain();
    ends(watching, "drain").await;
    control_status(store.path(), PATIENCE).await.expect("it still answers");
    // One that comes while the owner drains, or whose server is closed, is told when the store is given back.
    let mut late = watched().await;
    server.close();
    assert!(tokio::time::timeout(Duration::from_millis(200), late.ended()).await.is_err(), "it is still owned");
    owner.release();
    ends(late, "release").await;
    let mut owner = Probe::owner("serving", &store.path());
    let watching = watch(store.path()).await.unwrap();
    owner.kill();
    ends(watching, "death").await;
}

#[tokio::test]
async fn a_stopped_owner_makes_nobody_wait_longer_than_he_said() {
    let store = Store::new();
    let owner = Probe::owner("serving", &store.path());
    owner.stop();
    let path = store.path();
    for limit in [Duration::from_millis(300), Duration::from_secs(1)] {
        let begin = Instant::now();
        let refused = control_status(&path, limit).await.unwrap_err();
        let took = begin.elapsed();
        assert!(took >= limit && took < limit + Duration::from_secs(4), "{took:?}");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        let text = refused.to_string();
        assert!(text.contains("did not answer within") && text.contains("stopped"), "{text}");
        assert!(text.contains(&format!("pid {}", owner.pid())), "{text}");
    }
    let begin = Instant::now();
    watch(&path).await.unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(9));
    // With a queue that is full, connecting itself would wait.
    let socket = socket_path(&path).unwrap();
    let mut waiting = Vec::new();
    for _ in 0..5000 {
        match tokio::time::timeout(Duration::from_millis(100), UnixStream::connect(&socket)).await {
            Ok(Ok(stream)) => waiting.push(stream),
            Ok(Err(_)) | Err(_) => break,
        }
    }
    let begin = Instant::now();
    let refused = control_status(&path, Duration::from_millis(300)).await.unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(5), "behind {} others", waiting.len());
    assert!(refused.to_string().contains("did not answer within"), "{refused}");
    drop(waiting);
    owner.go_on();
    control_status(&path, PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_dead_owners_socket_is_replaced_by_the_next_owner_alone() {
    let store = Store::new();
    let mut owner = Probe::owner("serving", &store.path());
    owner.kill();
    let socket = socket_path(store.path()).unwrap();
    let inode = || fs::symlink_metadata(&socket).unwrap().ino();
    let stale = inode();
    // Those who ask leave it alone, and so does a candidate that is not elected.
    let next = elect(&store.path());
    assert!(control_status(store.path(), PATIENCE).await.is_err());
    assert!(Candidate::new(store.path(), "b").unwrap().elect().unwrap().is_none());
    assert_eq!(inode(), stale);
    let server = serve_control(&next, StatusOnly::of(&next)).unwrap();
    assert_eq!(control_status(store.path(), PATIENCE).await.unwrap().instance, next.instance());
    // Giving the store back takes the socket with it, whatever becomes of the server.
    next.release();
    assert!(!socket.exists());
    drop(server);
}

#[tokio::test]
async fn a_later_owners_socket_is_never_unlinked() {
    let store = Store::new();
    let socket = socket_path(store.path()).unwrap();
    let displaced = elect(&store.path());
    let old = serve_control(&displaced, StatusOnly::of(&displaced)).unwrap();
    fs::remove_file(store.beside(".lock")).unwrap();
    let next = elect(&store.path());
    let server = serve_control(&next, StatusOnly::of(&next)).unwrap();
    let refused = serve_control(&displaced, StatusOnly::of(&displaced)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LeaseLost);
    drop(old);
    drop(displaced);
    assert!(socket.exists());
    assert_eq!(control_status(store.path(), PATIENCE).await.unwrap().instance, next.instance());
    server.close();
    assert!(!socket.exists());
    // The same without a meddler: a server that is dropped after its owner finds the next one's socket.
    drop(next);
    let one = elect(&store.path());
    let old = serve_control(&one, StatusOnly::of(&one)).unwrap();
    one.release();
    let two = elect(&store.path());
    let server = serve_control(&two, StatusOnly::of(&two)).unwrap();
    drop(old);
    assert_eq!(control_status(store.path(), PATIENCE).await.unwrap().instance, two.instance());
    drop(server);
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone_and_stops_no_owner() {
    let store = Store::new();
    let socket = socket_path(store.path()).unwrap();
    fs::write(&socket, "precious").unwrap();
    let owner = elect(&store.path());
    let refused = serve_control(&owner, StatusOnly::of(&owner)).unwrap_err();
    assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains("no socket"), "{refused}");
    owner.check().unwrap();
    drop(owner);
    assert_eq!(fs::read(&socket).unwrap(), b"precious");
}

#[tokio::test]
async fn answers_that_make_no_sense_are_no_answers() {
    let store = Store::new();
    let owner = elect(&store.path());
    let socket = socket_path(store.path()).unwrap();
    for answer in [&b"hello\n"[..], b"{\"ok\":true}\n", b"[]\n", &[b'x'; 100_000]] {
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let answering = std::thread::spawn(move || {
            use std::io::Write;
            let _ = listener.accept().unwrap().0.write_all(answer);
        });
        let refused = control_status(store.path(), PATIENCE).await.unwrap_err();
        answering.join().unwrap();
        assert!(refused.to_string().contains("makes no sense"), "{refused}");
    }
    owner.update(|state| state.phase = Phase::Ready);
    drop(owner);
}
