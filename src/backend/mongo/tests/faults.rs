use super::*;
use std::fs::File;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Waits for the turn to switch the server's `failCommand` on: there is one for all its clients, and tests
/// run in several processes. The same file as that of `tests/support/failpoint.rs`.
async fn turn(uri: &str) -> File {
    let mut hash = DefaultHasher::new();
    first_host(uri).hash(&mut hash);
    let exe = std::env::current_exe().unwrap();
    let target = exe.ancestors().nth(3).unwrap().join("tmp");
    std::fs::create_dir_all(&target).unwrap();
    let file = File::create(target.join(format!("failcommand-{:016x}.lock", hash.finish()))).unwrap();
    for _ in 0..12_000 {
        if file.try_lock().is_ok() {
            return file;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("other tests had their fault switched on for two minutes");
}

fn first_host(uri: &str) -> &str {
    let hosts = uri.split_once("://").unwrap().1;
    let hosts = hosts.split(['/', '?']).next().unwrap();
    let hosts = hosts.split_once('@').map_or(hosts, |(_, hosts)| hosts);
    hosts.split(',').next().unwrap()
}

/// Runs `test` while the server fails this store's commands as `data` says, at most `times` times.
async fn failing<T>(store: &Store, times: i32, mut data: Document, test: impl Future<Output = T>) -> T {
    let _turn = turn(&store.server.uri()).await;
    let admin = store.database.client().database("admin");
    data.insert("appName", &store.app);
    let on = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
    admin.run_command(on).await.unwrap();
    let result = test.await;
    let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    admin.run_command(off).await.unwrap();
    result
}

async fn appears(store: &Store, id: &str) {
    for _ in 0..200 {
        if store.get(id).await.is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{id} did not appear within 2 s");
}

#[tokio::test]
async fn codes_of_elections_and_overload_are_never_certain_for_a_write_and_pass_for_a_read() {
    let store = Store::ready(Server::ReplicaSet).await;
    let mut session = store.session().await.unwrap();
    let lease = writer();
    for code in [91, 112, 117, 189, 10_107, 11_602, 16_500] {
        let data = doc! { "failCommands": ["update", "find", "aggregate"], "errorCode": code };
        // Often enough for the driver's own repetition to fail too.
        failing(&store, 6, data, async {
            let write = store.register(&mut session, &lease).await.unwrap_err();
            let expected: &[Fault] = match code {
                112 | 16_500 => &[Fault::Busy],
                // A server that says itself that nothing was written is believed.
                _ => &[Fault::Unknown, Fault::Busy],
            };
            assert!(expected.contains(&write.fault), "{code}: {write:?}");
            assert_eq!(store.peek().await.unwrap_err().fault, Fault::Busy, "{code}");
        })
        .await;
        store.register(&mut session, &lease).await.unwrap();
    }
    store.close().await;
}

#[tokio::test]
async fn a_write_concern_error_means_applied_and_not_confirmed() {
    let store = Store::ready(Server::ReplicaSet).await;
    let mut session = store.session().await.unwrap();
    let concern = |code: i32| doc! { "code": code, "errmsg": "told to" };
    for code in [50, 64, 11_602] {
        let lease = fsck();
        let data = doc! { "failCommands": ["findAndModify", "update"], "writeConcernError": concern(code) };
        failing(&store, 4, data, async {
            let error = store.install(&mut session, &lease).await.unwrap_err();
            assert_eq!(error.fault, Fault::Unknown, "{error:?}");
            // The server did not wait for the majority, so the document becomes visible a moment later.
            appears(&store, FSCK_ID).await;
            let error = store.refresh(std::slice::from_ref(&lease.key)).await.unwrap_err();
            assert_eq!(error.fault, Fault::Unknown, "{error:?}");
        })
        .await;
        assert!(store.release(&mut session, &lease.key).await.unwrap());
    }
    store.close().await;
}

#[tokio::test]
async fn a_lost_connection_is_made_good_by_the_driver_once_and_unknown_twice() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let mut session = store.session().await.unwrap();
        let lease = writer();
        let cut = doc! { "failCommands": ["update"], "closeConnection": true };
        let once = failing(&store, 1, cut.clone(), store.register(&mut session, &lease)).await;
        match server {
            Server::ReplicaSet => once.unwrap(),
            // No retryable writes there: one loss is enough.
            Server::Standalone => assert_eq!(once.unwrap_err().fault, Fault::Unknown),
        }
        let mut session = store.session().await.unwrap();
        let twice = failing(&store, 2, cut, store.register(&mut session, &lease)).await;
        assert_eq!(twice.unwrap_err().fault, Fault::Unknown);
        store.register(&mut session, &lease).await.unwrap();
        store.close().await;
    }
}

#[tokio::test]
async fn a_duplicate_key_is_exists_also_as_the_answer_of_a_command() {
    let store = Store::ready(Server::ReplicaSet).await;
    let mut session = store.session().await.unwrap();
    let data = doc! { "failCommands": ["findAndModify", "update"], "errorCode": 11_000,
    "errorExtraInfo": { "keyPattern": { "_id": 1 }, "keyValue": { "_id": FSCK_ID } } };
    failing(&store, 2, data, async {
        let error = store.install(&mut session, &fsck()).await.unwrap_err();
        assert_eq!(error.fault, Fault::Exists, "{error:?}");
        let error = store.register(&mut session, &writer()).await.unwrap_err();
        assert_eq!(error.fault, Fault::Exists);
    })
    .await;
    store.close().await;
}

#[tokio::test]
async fn a_missing_privilege_is_denied_by_name() {
    let store = Store::ready(Server::ReplicaSet).await;
    let mut session = store.session().await.unwrap();
    let data = doc! { "failCommands": ["update", "listCollections"], "errorCode": 13 };
    failing(&store, 2, data, async {
        let error = store.register(&mut session, &writer()).await.unwrap_err();
        assert_eq!(error.fault, Fault::Denied);
        assert!(error.message.contains(&format!("role readWrite on the database {}", store.app)));
        let error = store.ready(Access::Look).await.unwrap_err();
        assert!(error.fault == Fault::Denied && error.message.contains("role read on"));
    })
    .await;
    store.close().await;
}

/// Which generation the look before a grant has seen, so that the grant sends this command: it turns the phase by a command
/// of its own where the layout has moved.
fn looked(command: &str, generation: i64) -> i64 {
    if command == "findAndModify" { generation + 7 } else { generation }
}

#[tokio::test]
async fn a_transaction_that_fails_is_busy_and_one_whose_commit_is_lost_unknown() {
    let store = Store::ready(Server::ReplicaSet).await;
    let mut session = store.session().await.unwrap();
    let lease = fsck();
    store.install(&mut session, &lease).await.unwrap();
    for commands in [["findAndModify"], ["update"], ["commitTransaction"]] {
        let data =
            doc! { "failCommands": commands.to_vec(), "errorCode": 112, "errorLabels": ["TransientTransactionError"] };
        let grant = failing(&store, 1, data, store.grant(&mut session, &lease.key, looked(commands[0], 0), true)).await;
        assert_eq!(grant.unwrap_err().fault, Fault::Busy, "{commands:?}");
        let peek = store.peek().await.unwrap().unwrap();
        assert_eq!(peek.ours.unwrap().phase, Some(crate::lease::status::Phase::Draining));
    }
    for command in ["findAndModify", "update"] {
        let cut = doc! { "failCommands": [command], "closeConnection": true };
        let grant = failing(&store, 1, cut, store.grant(&mut session, &lease.key, looked(command, 0), true)).await;
        assert_eq!(grant.unwrap_err().fault, Fault::Busy, "{command}");
    }

    let concern = doc! { "code": 64, "errmsg": "told to" };
    let data = doc! { "failCommands": ["commitTransaction"], "writeConcernError": concern };
    let grant = failing(&store, 4, data, store.grant(&mut session, &lease.key, 0, true)).await;
    assert_eq!(grant.unwrap_err().fault, Fault::Unknown);
    // It was applied; asked again it answers the same and raises nothing.
    let grant = store.grant(&mut session, &lease.key, 0, true).await.unwrap();
    assert_eq!(grant, Grant::Granted(1));
    assert_eq!(store.refresh_look().await.unwrap().generation, Some(1));
    store.close().await;
}

/// Polls `call` until it has sent something and waits for the answer, then drops it.
async fn drop_midway(call: impl Future) {
    let mut call = Box::pin(call);
    let began = std::time::Instant::now();
    std::future::poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(_) => panic!("answered before it could be dropped"),
        Poll::Pending if began.elapsed() > Duration::from_millis(150) => Poll::Ready(()),
        Poll::Pending => {
            let waker = context.waker().clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                waker.wake();
            });
            Poll::Pending
        }
    })
    .await;
}

#[tokio::test]
async fn a_grant_that_was_dropped_midway_does_not_swallow_the_release() {
    let store = Store::ready(Server::ReplicaSet).await;
    for command in ["findAndModify", "update", "commitTransaction"] {
        let mut session = store.session().await.unwrap();
        let lease = fsck();
        store.install(&mut session, &lease).await.unwrap();
        let generation = store.refresh_look().await.unwrap().generation.unwrap();
        let block = doc! { "failCommands": [command], "blockConnection": true, "blockTimeMS": 400 };
        failing(&store, 1, block, async {
            drop_midway(store.grant(&mut session, &lease.key, looked(command, generation), true)).await;
            assert!(store.release(&mut session, &lease.key).await.unwrap(), "{command}");
        })
        .await;
        assert!(store.get(FSCK_ID).await.is_none(), "{command}");
        // Nothing of the dropped grant may come later.
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(store.get(FSCK_ID).await.is_none(), "{command}");
    }
    store.close().await;
}

/// Sends one command on a connection of its own, as a network would that delivers an old packet late.
async fn deliver(uri: &str, command: &Document) -> Document {
    let mut stream = TcpStream::connect(first_host(uri)).await.unwrap();
    let mut body = Vec::new();
    command.to_writer(&mut body).unwrap();
    const OP_MSG: i32 = 2013;
    let length = 16 + 4 + 1 + body.len();
    let mut message = Vec::new();
    for word in [length as i32, 1, 0, OP_MSG, 0] {
        message.extend(word.to_le_bytes());
    }
    message.push(0);
    message.extend(body);
    stream.write_all(&message).await.unwrap();
    let mut header = [0; 21];
    stream.read_exact(&mut header).await.unwrap();
    let length = i32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
    let mut body = vec![0; length - header.len()];
    stream.read_exact(&mut body).await.unwrap();
    Document::from_reader(body.as_slice()).unwrap()
}

#[tokio::test]
async fn an_earlier_statement_that_arrives_after_a_later_one_is_refused() {
    const TRANSACTION_TOO_OLD: i32 = 225;
    for server in BOTH {
        let store = Store::ready(server).await;
        let mut session = store.session().await.unwrap();
        let lease = writer();
        let late = |lsid: Document, number: i64| {
            let mut command = doc! {
                "update": store.collection.name(), "$db": store.database.name(),
                "updates": [{ "q": statements::id(&lease.key.id), "u": statements::register(&lease), "upsert": true }],
            };
            if server == Server::ReplicaSet {
                command.extend(doc! { "lsid": lsid, "txnNumber": number });
            }
            command
        };
        // The registration is under way somewhere; the lease is given up by a delete in the same session.
        assert!(!store.release(&mut session, &lease.key).await.unwrap());
        let id = session.settled().await.id().clone();
        let reply = deliver(&server.uri(), &late(id, 0)).await;
        let stands = store.get(&lease.key.id).await.is_some();
        match server {
            Server::ReplicaSet => {
                assert_eq!(reply.get_i32("code").ok(), Some(TRANSACTION_TOO_OLD), "{reply}");
                assert!(!stands);
                // The same packet in a session that saw nothing later is taken: the number made the difference.
                let fresh = store.session().await.unwrap().settled().await.id().clone();
                let reply = deliver(&server.uri(), &late(fresh, 0)).await;
                assert_eq!(reply.get_i32("n").ok(), Some(1), "{reply}");
            }
            // Where nothing refuses it the engine repeats the delete.
            Server::Standalone => assert!(stands, "{reply}"),
        }
        store.close().await;
    }
}

#[tokio::test]
async fn a_sweep_waits_for_an_open_fenced_transaction_only_so_long() {
    let store = Store::ready(Server::ReplicaSet).await;
    store.put(doc! { "_id": "fence/other/1", "n": 0 }).await;
    let mut users = store.database.client().start_session().await.unwrap();
    users.start_transaction().await.unwrap();
    store
        .documents()
        .update_one(doc! { "_id": "fence/other/1" }, doc! { "$inc": { "n": 1 } })
        .session(&mut users)
        .await
        .unwrap();
    let error = store.sweep_fences(&key(FSCK_ID)).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    users.commit_transaction().await.unwrap();
    store.sweep_fences(&key(FSCK_ID)).await.unwrap();
    assert!(store.get("fence/other/1").await.is_none());
    store.close().await;
}
