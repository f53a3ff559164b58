//! The roles of `mongodb-roles.json` on a server that asks for passwords.

use mongodb::Client;
use mongodb::bson::{Document, doc};
use nix::sys::signal::Signal;

use crate::program::{Running, program};
use crate::support::mongod::{Mongod, Options};
use crate::{address, deployed, until};

fn as_user(server: &Mongod, user: &str, words: &[&str]) -> Running {
    let url = format!("mongodb://{user}:s3cr3t-word@{}/shop?directConnection=true&authSource=shop", server.address());
    let mut command = program(words);
    command.env("LOCKHOUSE_STORE", url).env("LOCKHOUSE_REFRESH_INTERVAL", "500ms");
    Running::start(command)
}

#[test]
fn each_role_is_enough_and_no_more() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Mongod::start(Options { auth: true, ..Options::default() }));
    let roles: Vec<Document> = serde_json::from_str(&deployed("kubernetes/mongodb-roles.json")).unwrap();
    runtime.block_on(async {
        let shop = server.client().await.database("shop");
        for role in roles {
            shop.run_command(role).await.unwrap();
        }
        for (user, role) in [("looker", "lockhouseLooker"), ("writer", "lockhouseWriter")] {
            let user = doc! { "createUser": user, "pwd": "s3cr3t-word", "roles": [role] };
            shop.run_command(user).await.unwrap();
        }
        shop.collection("orders").insert_one(doc! { "secret": 1 }).await.unwrap();
    });

    as_user(&server, "looker", &["init"]).finish().assert(77);
    as_user(&server, "writer", &["init"]).finish().assert(0);
    as_user(&server, "looker", &["run", "--", "true"]).finish().assert(77);
    as_user(&server, "writer", &["run", "--", "true"]).finish().assert(0);
    as_user(&server, "writer", &["fsck", "--", "true"]).finish().assert(0);
    for words in [&["status"][..], &["history"], &["prune", "--dry-run"]] {
        as_user(&server, "looker", words).finish().assert(0);
    }
    let mut serve = as_user(&server, "looker", &["serve", "--listen", "127.0.0.1:0"]);
    let to = address(&mut serve);
    until(to, "/readyz", "to be ready", |answer| answer.code == 200);
    let told = until(to, "/metrics", "the generation", |answer| answer.body.contains("lockhouse_store_generation"));
    assert_eq!(told.metric("lockhouse_store_up"), 1.0, "{told:?}");
    serve.signal(Signal::SIGTERM);
    serve.finish().assert(0);

    runtime.block_on(async {
        let url = |user: &str| {
            format!("mongodb://{user}:s3cr3t-word@{}/?directConnection=true&authSource=shop", server.address())
        };
        let orders = |client: &Client| client.database("shop").collection::<Document>("orders");
        let looker = Client::with_uri_str(url("looker")).await.unwrap();
        orders(&looker).find_one(doc! {}).await.expect_err("the data is not the looker's to read");
        let writer = Client::with_uri_str(url("writer")).await.unwrap();
        orders(&writer).insert_one(doc! {}).await.unwrap();
        let elsewhere = writer.database("bank").collection::<Document>("accounts");
        elsewhere.insert_one(doc! {}).await.expect_err("another database is not the writer's");
    });
}
