use super::*;
use mongodb::IndexModel;
use mongodb::options::IndexOptions;

async fn refused(store: &Store, access: Access, says: &str) {
    let error = store.ready(access).await.unwrap_err();
    assert_eq!(error.fault, Fault::Invalid, "{error:?}");
    assert!(error.message.contains(says), "{}: {says}", error.message);
    assert!(error.message.contains("--collection"), "{}", error.message);
}

#[tokio::test]
async fn a_usable_store_is_taken_with_or_without_its_collection() {
    for server in BOTH {
        let store = Store::open(server, None).await;
        let error = store.ready(Access::Write).await.unwrap_err();
        assert!(error.fault == Fault::Invalid && error.message.contains("lockhouse init"), "{error:?}");
        for _ in 0..2 {
            store.ready(Access::Look).await.unwrap();
            store.ready(Access::Init).await.unwrap();
            store.init().await.unwrap();
            store.ready(Access::Write).await.unwrap();
        }
        let found = store.documents().count_documents(doc! {}).await.unwrap();
        assert_eq!(found, 1, "a check wrote something");
        store.close().await;
    }
}

#[tokio::test]
async fn collections_that_lose_leases_or_cannot_tell_ids_apart_are_refused() {
    for server in BOTH {
        for (options, says) in [
            (doc! { "viewOn": "other", "pipeline": [] }, "view"),
            (doc! { "capped": true, "size": 4096 }, "capped"),
            (doc! { "timeseries": { "timeField": "t" } }, "time-series"),
            (doc! { "collation": { "locale": "en", "strength": 2 } }, "collation"),
            (doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true }, "expireAfterSeconds": 60 }, "expires"),
        ] {
            let store = Store::open(server, None).await;
            let mut create = doc! { "create": connect::OWN_COLLECTION };
            create.extend(options);
            store.database.run_command(create).await.unwrap();
            for access in [Access::Look, Access::Write] {
                refused(&store, access, says).await;
            }
            store.close().await;
        }
    }
}

#[tokio::test]
async fn indexes_that_delete_or_forbid_leases_are_refused_before_a_write() {
    for server in BOTH {
        let seconds = IndexOptions::builder().expire_after(Duration::from_secs(1)).build();
        let unique = IndexOptions::builder().unique(true).build();
        for (options, says) in [(Some(seconds), "TTL"), (Some(unique), "unique"), (None, "")] {
            let store = Store::ready(server).await;
            let index = IndexModel::builder().keys(doc! { "heartbeat": 1 }).options(options).build();
            store.documents().create_index(index).await.unwrap();
            store.ready(Access::Look).await.unwrap();
            if says.is_empty() {
                store.ready(Access::Write).await.unwrap();
            } else {
                refused(&store, Access::Write, says).await;
            }
            store.close().await;
        }
    }
}

#[tokio::test]
async fn a_store_of_the_peer_is_not_guessed() {
    for server in BOTH {
        let store = Store::open(server, None).await;
        store.database.create_collection(PEER_COLLECTION).await.unwrap();
        for access in [Access::Look, Access::Write] {
            refused(&store, access, "--collection _httk_store_metadata").await;
        }
        let url = url(&server.uri(), &store.app, "");
        let own = Mongo::connect(&url, Some(connect::OWN_COLLECTION)).await.unwrap();
        own.ready(Access::Init).await.unwrap();
        let shared = Mongo::connect(&url, Some(PEER_COLLECTION)).await.unwrap();
        shared.ready(Access::Write).await.unwrap();
        let error = shared.init().await.unwrap_err();
        assert!(error.fault == Fault::Invalid && error.message.contains("httk-store first"));
        let peer = store.database.collection::<Document>(PEER_COLLECTION);
        assert_eq!(peer.count_documents(doc! {}).await.unwrap(), 0);
        peer.insert_one(doc! { "_id": "layout", "generation": 4, "version": 2 }).await.unwrap();
        assert_eq!(shared.init().await.unwrap(), Init::AlreadyThere);
        let mut session = shared.session().await.unwrap();
        let lease = fsck();
        shared.install(&mut session, &lease).await.unwrap();
        assert_eq!(shared.grant(&mut session, &lease.key, 4, true).await.unwrap(), Grant::Granted(5));
        let layout = peer.find_one(doc! { "_id": "layout" }).await.unwrap().unwrap();
        assert_eq!(layout, doc! { "_id": "layout", "generation": 5, "version": 2 });
        store.close().await;
    }
}

#[tokio::test]
async fn a_name_that_no_collection_can_have_never_reaches_the_server() {
    let url = url("mongodb://127.0.0.1:9", "shop", "serverSelectionTimeoutMS=60000");
    for name in ["", "a$b", "system.users", "a\0b"] {
        let error = Mongo::connect(&url, Some(name)).await.unwrap_err();
        assert!(matches!(error, crate::Error::Invalid(_)), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_unavailable_soon_and_no_secret_is_told() {
    let url = url("mongodb://joe:s3cr%2Ft@127.0.0.1:9", "shop", "serverSelectionTimeoutMS=200");
    let error = Mongo::connect(&url, None).await.unwrap_err();
    assert!(matches!(error, crate::Error::Unavailable(_)), "{error}");
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("mongodb://127.0.0.1:9/shop.lockhouse"), "{shown}");
    assert!(!shown.contains("s3cr") && !shown.contains("joe"), "{shown}");
}

#[tokio::test]
async fn a_connection_string_that_the_driver_refuses_is_invalid_and_tells_no_secret() {
    for option in ["replicaSet=", "w=-3", "authMechanism=s3cret", "tls=perhaps", "ssl=true&tls=false"] {
        let text = format!("mongodb://joe:s3cret@127.0.0.1:9/shop?{option}");
        let StoreUrl::Mongo(url) = text.parse().unwrap() else { panic!() };
        let Err(error) = tokio::time::timeout(Duration::from_secs(20), Mongo::connect(&url, None)).await.unwrap()
        else {
            panic!("{option} was taken")
        };
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("joe"), "{shown}");
    }
}

/// Needs a server that enforces access control: a user who may make users, in `LOCKHOUSE_TEST_AUTH_URI`.
#[tokio::test]
#[ignore = "needs a server with access control, LOCKHOUSE_TEST_AUTH_URI"]
async fn read_is_enough_to_look_and_read_write_for_everything() {
    let uri = std::env::var("LOCKHOUSE_TEST_AUTH_URI").unwrap();
    let name = unique();
    let admin = Mongo::connect(&url(&uri, &name, ""), None).await.unwrap();
    let hosts = uri.split_once("://").unwrap().1;
    let hosts = hosts.split_once('@').map_or(hosts, |(_, hosts)| hosts);
    let hosts = hosts.split(['/', '?']).next().unwrap();
    let mut stores = Vec::new();
    for role in ["read", "readWrite"] {
        let create = doc! { "createUser": role, "pwd": "p/w%1", "roles": [{ "role": role, "db": &name }] };
        admin.database.run_command(create).await.unwrap();
        let user = format!("mongodb://{role}:p%2Fw%251@{}", hosts);
        let url = url(&user, &name, &format!("authSource={name}"));
        stores.push(Mongo::connect(&url, None).await.unwrap());
    }
    let [reader, writer] = stores.try_into().unwrap();
    reader.ready(Access::Look).await.unwrap();
    writer.ready(Access::Init).await.unwrap();
    writer.init().await.unwrap();
    writer.ready(Access::Write).await.unwrap();
    let lease = super::fsck();
    let mut session = writer.session().await.unwrap();
    writer.install(&mut session, &lease).await.unwrap();
    writer.look_fsck(&mut session, &lease.key, Detail::Lean).await.unwrap();
    writer.sweep_fences(&lease.key).await.unwrap();
    assert_eq!(writer.grant(&mut session, &lease.key, 0, true).await.unwrap(), Grant::Granted(1));
    writer.refresh(std::slice::from_ref(&lease.key)).await.unwrap();
    let line = super::line("granted");
    Backend::record(&writer, &line).await.unwrap();

    assert_eq!(reader.look().await.unwrap().leases.len(), 1);
    assert_eq!(reader.history().await.unwrap().len(), 1);
    assert!(reader.peek().await.unwrap().is_some());
    let mut session = reader.session().await.unwrap();
    let denied = [
        reader.ready(Access::Write).await.unwrap_err(),
        reader.register(&mut session, &super::writer()).await.unwrap_err(),
        reader.install(&mut session, &super::fsck()).await.unwrap_err(),
        reader.grant(&mut session, &lease.key, 1, true).await.unwrap_err(),
        reader.release(&mut session, &lease.key).await.unwrap_err(),
        reader.refresh(std::slice::from_ref(&lease.key)).await.unwrap_err(),
        reader.sweep_fences(&lease.key).await.unwrap_err(),
        Backend::record(&reader, &line).await.unwrap_err(),
    ];
    for error in denied {
        assert_eq!(error.fault, Fault::Denied, "{error:?}");
        assert!(error.message.contains("role readWrite on the database"), "{}", error.message);
        assert!(!format!("{error:?}").contains("p/w%1"), "{error:?}");
    }
    let wrong = url(&format!("mongodb://read:wr0ng@{hosts}"), &name, &format!("authSource={name}"));
    let error = Mongo::connect(&wrong, None).await.unwrap_err();
    assert!(matches!(error, crate::Error::Denied(_)), "{error:?}");
    assert!(!format!("{error:?}").contains("wr0ng"));
    let nobody = url(&format!("mongodb://{hosts}"), &name, "");
    let nobody = Mongo::connect(&nobody, None).await.unwrap();
    assert_eq!(nobody.ready(Access::Look).await.unwrap_err().fault, Fault::Denied);
    admin.database.run_command(doc! { "dropAllUsersFromDatabase": 1 }).await.unwrap();
    admin.database.drop().await.unwrap();
}
