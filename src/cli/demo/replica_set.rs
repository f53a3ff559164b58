//! A MongoDB server becomes a replica set of one member: the example in `docker-compose.yml` has no shell that could
//! say so. Not for a server that anybody relies on: it has no arbiter, no second member and no password.

use std::time::Duration;

use lockhouse::clock::{Clock, Moment, SystemClock};
use mongodb::Client;
use mongodb::bson::doc;
use mongodb::options::ClientOptions;

use super::super::args::DemoReplicaSet;
use super::super::console::Console;
use super::super::exit::Failure;

/// How long a server may take to start and to elect itself.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(250);
/// How long the driver may look for the server before it says what it sees.
const SELECTION: Duration = Duration::from_secs(5);

/// Initiates the set unless it is one, and returns when it takes writes.
///
/// # Cancellation
///
/// A set that was initiated stays; asking again goes on from there.
pub(crate) async fn initiate(args: DemoReplicaSet, console: Console) -> Result<i32, Failure> {
    let end = SystemClock.now() + PATIENCE;
    let options = ClientOptions::parse(format!("mongodb://{}/?directConnection=true", args.member)).await;
    let mut options = options.map_err(|error| Failure::Usage(format!("{}: {error}", args.member)))?;
    options.server_selection_timeout = Some(SELECTION);
    let client = Client::with_options(options).map_err(|error| Failure::Usage(error.to_string()))?;
    loop {
        let seen = match step(&client, &args).await {
            Ok(true) => {
                console.say("demo", &format!("{} is the primary of the replica set {}", args.member, args.name));
                return Ok(0);
            }
            Ok(false) => "it has not elected itself yet".to_owned(),
            Err(error) => error.to_string(),
        };
        if SystemClock.now() >= end {
            return Err(Failure::Demo(format!("{} takes no writes; last seen: {seen}", args.member)));
        }
        pause_until(SystemClock.now() + PAUSE).await;
    }
}

async fn pause_until(moment: Moment) {
    SystemClock.sleep_until(moment).await;
}

/// Whether the server takes writes. One that belongs to no set is told to be one.
async fn step(client: &Client, args: &DemoReplicaSet) -> mongodb::error::Result<bool> {
    let admin = client.database("admin");
    let hello = admin.run_command(doc! { "hello": 1 }).await?;
    if hello.get_bool("isWritablePrimary").unwrap_or(false) {
        return Ok(true);
    }
    if hello.get_str("setName").is_err() {
        let set = doc! { "_id": &args.name, "members": [{ "_id": 0, "host": &args.member }] };
        let told = admin.run_command(doc! { "replSetInitiate": set }).await;
        // A reply that was lost, and a second one who asks: the set is there.
        let there = told.as_ref().is_err_and(|error| error.to_string().contains("AlreadyInitialized"));
        if !there {
            told?;
        }
    }
    Ok(false)
}
