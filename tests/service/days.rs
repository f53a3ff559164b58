//! Bad days: servers that go away, ports that are taken, signals at the wrong moment, users who may only read.

use std::net::TcpListener;
use std::time::Duration;

use mongodb::bson::doc;
use nix::sys::signal::Signal;

use crate::client::{Listener, get, try_with};
use crate::program::{FOR_LONG, Running, Store, UNTIL_EOF, program};
use crate::served::{address, listening, serve_on, until};
use crate::support::mongod::{Mongod, Options};

fn command(server: &Mongod, user: &str) -> std::process::Command {
    let mut command = program(["serve"]);
    command.env("LOCKHOUSE_STORE", format!("mongodb://{user}{}/shop?authSource=admin", server.address()));
    command.env("LOCKHOUSE_REFRESH_INTERVAL", "500ms");
    command
}

#[test]
fn a_server_that_goes_and_comes_back_is_told_and_the_process_stays() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut server = runtime.block_on(Mongod::start(Options::default()));
    let mut init = command(&server, "");
    init = {
        let mut other = program(["init"]);
        for (name, value) in init.get_envs() {
            if let Some(value) = value {
                other.env(name, value);
            }
        }
        other
    };
    Running::start(init).finish().assert(0);
    let (mut serve, address) = listening(command(&server, ""));
    until(address, "/readyz", "to be ready", |answer| answer.code == 200);
    let pid = serve.pid();
    let mut listener = Listener::start(address, "/v1/events", None);
    server.kill();
    let answer = until(address, "/readyz", "the outage", |answer| answer.code == 503);
    assert!(answer.body.contains("store_unreachable"), "{answer:?}");
    listener.until("unreachable");
    assert_eq!(get(address, "/healthz").code, 200);
    assert!(get(address, "/").body.contains("data-phase=\"unreachable\""));
    runtime.block_on(server.restart());
    until(address, "/readyz", "to be ready again", |answer| answer.code == 200);
    assert!(listener.until("reachable").data["away_ms"].is_u64());
    assert!(serve.is_running() && serve.pid() == pid);
    assert!(serve.err().contains("does not answer"), "{}", serve.err());
    serve.signal(Signal::SIGTERM);
    serve.finish().assert(0);
}

#[test]
fn a_server_that_is_not_there_yet_is_waited_for() {
    let (store, proxy) = Store::through_proxy();
    proxy.cut();
    let (serve, address) = serve_on(&store);
    assert_eq!(get(address, "/healthz").code, 200);
    let answer = get(address, "/readyz");
    assert_eq!(answer.code, 503, "{answer:?}");
    assert!(get(address, "/").body.contains("data-phase=\"looking\""));
    let answer = until(address, "/readyz", "the reason", |answer| answer.body.contains("store_unreachable"));
    assert!(answer.body.contains("mongodb://"), "{answer:?}");
    assert_eq!(get(address, "/v1/status").code, 503);
    assert_eq!(get(address, "/metrics").metric("lockhouse_store_up"), 0.0);
    proxy.pass();
    until(address, "/readyz", "to be ready", |answer| answer.code == 200);
    serve.signal(Signal::SIGINT);
    serve.finish().assert(0);
}

#[test]
fn a_user_who_may_only_read_may_serve_and_a_wrong_password_ends_it() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Mongod::start(Options { auth: true, ..Options::default() }));
    runtime.block_on(async {
        let admin = server.client().await.database("admin");
        let role = doc! { "role": "read", "db": "shop" };
        admin.run_command(doc! { "createUser": "reader", "pwd": "s3cr3t-word", "roles": [role] }).await.unwrap();
        let lockhouse = server.client().await.database("shop").collection("lockhouse");
        lockhouse.insert_one(doc! { "_id": "layout", "generation": 3 }).await.unwrap();
    });
    let before = runtime.block_on(content(&server));
    let (serve, address) = listening(command(&server, "reader:s3cr3t-word@"));
    let ready = until(address, "/readyz", "to be ready", |answer| answer.code == 200);
    assert!(!ready.body.contains("s3cr3t-word"));
    for path in ["/", "/metrics", "/v1/status"] {
        let answer = get(address, path);
        assert!(answer.code == 200 && !answer.body.contains("s3cr3t-word"), "{answer:?}");
    }
    assert_eq!(get(address, "/metrics").metric("lockhouse_store_generation"), 3.0);
    serve.signal(Signal::SIGTERM);
    serve.finish().assert(0);
    assert_eq!(runtime.block_on(content(&server)), before, "looking changes nothing");
    let ran = Running::start(command(&server, "reader:wrong@"));
    let ran = ran.finish().assert(77);
    assert!(!ran.err.contains("wrong@"), "{ran:?}");
}

async fn content(server: &Mongod) -> Vec<mongodb::bson::Document> {
    use futures::TryStreamExt;
    let lockhouse = server.client().await.database("shop").collection("lockhouse");
    lockhouse.find(doc! {}).await.unwrap().try_collect().await.unwrap()
}

#[test]
fn a_port_that_is_taken_is_said_before_anything_is_done() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let store = Store::new();
    for words in [
        vec!["serve", "--listen", &at],
        vec!["run", "--listen", &at, "--", "echo", "ran"],
        vec!["fsck", "--listen", &at, "--", "echo", "ran"],
    ] {
        let ran = store.run(&words).assert(70).says("already in use").says("--listen").says(&at);
        assert!(!ran.out.contains("ran"), "{ran:?}");
    }
}

#[test]
fn a_command_under_a_lease_has_a_service_beside_it() {
    let store = Store::new();
    let mut run =
        store.start(["run", "--listen", "127.0.0.1:0", "--label", "importer", "--", "sh", "-c", "echo started; cat"]);
    run.until_out("started");
    let address = address(&run);
    let held = |answer: &crate::client::Answer| answer.metric("lockhouse_leases_held{kind=\"writer\"}") == 1.0;
    let metrics = until(address, "/metrics", "the lease", held);
    assert!(metrics.metric("lockhouse_lease_remaining_seconds") > 0.0);
    let page = until(address, "/", "the lease", |page| page.body.contains("This process holds"));
    assert!(page.body.contains("importer"), "{page:?}");
    run.finish().assert(0);
    assert!(try_with(address, "/healthz", &[]).is_err());
    store.run(["run", "--token-file", "/nonexistent", "--", "true"]).assert(64).says("--listen");
}

#[test]
fn a_term_during_a_drain_is_answered_to_the_end() {
    let store = Store::new();
    let writer = store.wrapped(&["run"], UNTIL_EOF);
    let fsck = store.start(["fsck", "--listen", "127.0.0.1:0", "--label", "checker", "--", "true"]);
    let mut fsck = fsck;
    fsck.until_err("listening on");
    let address = address(&fsck);
    until(address, "/metrics", "the drain", |answer| answer.metric("lockhouse_drain_waiting_writers") == 1.0);
    let page = until(address, "/", "the drain", |page| page.body.contains("This process drains"));
    assert!(page.body.contains("left of 10 min"), "{page:?}");
    let mut listener = Listener::start(address, "/v1/events", None);
    fsck.signal(Signal::SIGTERM);
    // The stream ends, and not in the middle of an event.
    while listener.next().is_some() {}
    fsck.finish().assert(143);
    let status = store.until("nothing of the fsck", |status| status["fsck"].is_null());
    assert_eq!(status["state"], "open");
    writer.finish().assert(0);
}

#[test]
fn a_term_to_a_writer_that_is_drained_ends_both() {
    let store = Store::new();
    let mut run = store.start([&["run", "--settle", "0", "--listen", "127.0.0.1:0", "--"][..], &FOR_LONG].concat());
    run.until_out("started");
    let address = address(&run);
    let fsck = store.start(["fsck", "--", "true"]);
    until(address, "/v1/status", "the drain", |answer| answer.code == 200 && answer.json()["state"] == "draining");
    assert_eq!(get(address, "/readyz").code, 200, "being drained is no trouble");
    run.signal(Signal::SIGTERM);
    run.finish().assert(143);
    fsck.finish().assert(0);
}

#[test]
fn a_writer_that_is_killed_is_seen_within_its_stale_age() {
    let store = Store::new();
    let (_serve, address) = serve_on(&store);
    until(address, "/readyz", "to be ready", |answer| answer.code == 200);
    let id = store.dead_writer("victim");
    let begin = std::time::Instant::now();
    let answer = until(address, "/readyz", "the stale writer", |answer| answer.code == 503);
    assert!(answer.body.contains("stale_writers"), "{answer:?}");
    // Its stale age, a look, and the patience that a busy machine needs.
    assert!(begin.elapsed() < crate::program::STALE + Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(get(address, "/").body.contains(&format!("lockhouse prune {id}")));
    store.run(["status"]).assert(81);
    // What the page says to type mends it.
    store.run(["prune", &id]).assert(0);
    until(address, "/readyz", "to be ready again", |answer| answer.code == 200);
}
