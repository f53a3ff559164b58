//! Errors that servers give in passing, at each step of a lease's life: the verb succeeds once they pass,
//! or ends as unavailable; nothing is left behind either way.

use std::time::Duration;

use lockhouse::{Coordinator, Error, ErrorKind};
use mongodb::Collection;
use mongodb::bson::{Document, doc};

use crate::common::{PATIENT, beat, builder, collection, first, soon, until_none};
use crate::support::database::TestDatabase;
use crate::support::failpoint::FailCommand;
use crate::support::mongod::{Mongod, Options};
use crate::support::poll::eventually;

/// ShutdownInProgress, WriteConflict, InterruptedDueToReplStateChange, ConflictingOperationInProgress,
/// PrimarySteppedDown, NotWritablePrimary, InterruptedAtShutdown, and a compatible service's TooManyRequests.
const PASSING: [i32; 8] = [91, 112, 11_602, 117, 189, 10_107, 11_600, 16_500];
const AT_ALL_COMMANDS: usize = 2;
const COMMANDS: [&str; 6] = ["update", "find", "findAndModify", "aggregate", "delete", "commitTransaction"];
const DUPLICATE_KEY: i32 = 11_000;

/// The server wants to say which key it is.
fn duplicate_key(fault: FailCommand) -> FailCommand {
    let key = doc! { "_id": 1 };
    fault.error_code(DUPLICATE_KEY).extra_info(doc! { "keyPattern": &key, "keyValue": &key })
}

struct Place {
    database: TestDatabase,
    collection: Collection<Document>,
    coordinator: Coordinator,
}

impl Place {
    async fn on(server: &Mongod) -> Place {
        let database = server.database();
        first(&database.uri(), "admin").await;
        let coordinator = builder(&database.uri()).timing(PATIENT).label("one").connect().await.unwrap();
        let collection = collection(&database).await;
        Place { database, collection, coordinator }
    }

    /// Every verb once.
    async fn life(&self) -> Result<(), Error> {
        let one = &self.coordinator;
        let patience = Duration::from_secs(5);
        let writer = one.acquire_writer().wait(patience).await?;
        beat(&writer).await;
        writer.release().await?;
        let fsck = one.acquire_fsck().wait(patience).drain_budget(patience).await?;
        beat(&fsck).await;
        fsck.check()?;
        fsck.release().await?;
        one.prune_stale_writers().await?;
        one.clear_stale_lock().await?;
        one.status().await?;
        Ok(())
    }
}

/// Every command with every code would take minutes: the first codes at all commands, each other one at one.
async fn passes(server: &Mongod, what: &str, commands: &[&str], times: i32, write_concern: bool, codes: &[i32]) {
    let place = Place::on(server).await;
    place.life().await.unwrap();
    let (mut met, mut lives) = (0, 0);
    for (number, code) in codes.iter().enumerate() {
        let at = if number < AT_ALL_COMMANDS { commands } else { &commands[number % commands.len()..][..1] };
        lives += at.len();
        for command in at {
            let fault = place.database.fail_command().commands(&[command]).times(times);
            let fault = match (write_concern, *code) {
                (true, code) => fault.write_concern_error(code),
                (false, DUPLICATE_KEY) => duplicate_key(fault),
                (false, code) => fault.error_code(code),
            };
            let fault = fault.on().await;
            let life = soon(place.life()).await;
            met += fault.off().await;
            life.unwrap_or_else(|error| panic!("{what} {code} at {command}: {error:?}"));
            until_none(&place.collection).await;
            // The writers' turn, for which the next fsck would wait.
            place.collection.delete_one(doc! { "_id": "turn" }).await.unwrap();
        }
    }
    assert!(met >= lives as i64 * 2 / 3, "{what}: only {met} statements of {lives} lives met a fault");
}

#[tokio::test]
async fn passing_errors_pass_on_a_replica_set() {
    let server = Mongod::start(Options::replica_set()).await;
    // Twice: the driver repeats once by itself, and must not be the only one who does.
    passes(&server, "error", &COMMANDS, 2, false, &PASSING).await;
}

#[tokio::test]
async fn passing_errors_pass_on_a_standalone() {
    let server = Mongod::start(Options::default()).await;
    passes(&server, "error", &COMMANDS[..5], 2, false, &PASSING).await;
}

#[tokio::test]
async fn what_a_majority_did_not_confirm_may_have_been_applied() {
    let server = Mongod::start(Options::replica_set()).await;
    let writes = ["update", "findAndModify", "delete", "commitTransaction"];
    passes(&server, "write concern error", &writes, 2, true, &[64, 11_602, 91]).await;
}

#[tokio::test]
async fn a_duplicate_key_means_look_again_in_every_shape() {
    let server = Mongod::start(Options::replica_set()).await;
    passes(&server, "error", &["update", "findAndModify"], 2, false, &[DUPLICATE_KEY]).await;
    passes(&server, "write concern error", &["update", "findAndModify"], 2, true, &[DUPLICATE_KEY]).await;
    let standalone = Mongod::start(Options::default()).await;
    passes(&standalone, "error", &["update", "findAndModify"], 2, false, &[DUPLICATE_KEY]).await;
}

#[tokio::test]
async fn errors_that_do_not_pass_end_as_unavailable() {
    let server = Mongod::start(Options::replica_set()).await;
    let place = Place::on(&server).await;
    place.life().await.unwrap();
    for (code, commands) in [
        (91, ["update", "findAndModify"]),
        (112, ["findAndModify", "commitTransaction"]),
        (11_602, ["find", "update"]),
        (DUPLICATE_KEY, ["update", "findAndModify"]),
    ] {
        for command in commands {
            let what = format!("{code} at {command}");
            let fault = place.database.fail_command().commands(&[command]);
            let fault = if code == DUPLICATE_KEY { duplicate_key(fault) } else { fault.error_code(code) };
            let fault = fault.on().await;
            let writer = soon(place.coordinator.acquire_writer()).await;
            match (command, writer) {
                ("update" | "find", Err(error)) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}"),
                ("update" | "find", Ok(_)) => panic!("{what}: granted"),
                // Its release has to wait for the fault to end.
                (_, Ok(writer)) => drop(writer),
                (_, Err(error)) => panic!("{what}: {error:?}"),
            }
            if command == "commitTransaction" || command == "findAndModify" {
                let other = builder(&place.database.uri()).connect().await.unwrap();
                let fsck = soon(other.acquire_fsck().drain_budget(PATIENT.refresh_interval)).await;
                let error = fsck.map(drop).unwrap_err();
                let clean =
                    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::DrainTimeout | ErrorKind::LeaseLost);
                assert!(clean, "{what}: {error:?}");
            }
            assert!(fault.off().await > 0, "{what}");
            until_none(&place.collection).await;
        }
    }
    place.life().await.unwrap();
}

#[tokio::test]
async fn a_release_that_cannot_be_confirmed_says_so_and_goes_on() {
    let server = Mongod::start(Options::replica_set()).await;
    let place = Place::on(&server).await;
    let writer = place.coordinator.acquire_writer().await.unwrap();
    let fault = place.database.fail_command().commands(&["delete"]).error_code(91).on().await;
    let error = soon(writer.release()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("stale"), "{error}");
    assert_eq!(crate::common::leases(&place.collection).await.len(), 1);
    fault.off().await;
    until_none(&place.collection).await;
}

/// The lease document says when it would be called dead; a fault that lasts longer must not leave a holder
/// that believes in it.
#[tokio::test]
async fn a_heartbeat_that_is_refused_while_reads_pass_does_not_move_the_deadline() {
    let server = Mongod::start(Options::replica_set()).await;
    let place = Place::on(&server).await;
    let writer = place.coordinator.acquire_writer().await.unwrap();
    beat(&writer).await;
    let start = std::time::Instant::now();
    let fault = place.database.fail_command().commands(&["update"]).error_code(11_602).on().await;
    let before = writer.remaining();
    let error = soon(writer.lost()).await;
    let took = start.elapsed();
    assert!(took < PATIENT.stale_after(), "stopped only after {took:?}");
    assert!(error.is_retryable(), "{error}");
    assert!(before <= PATIENT.valid_for());
    place.coordinator.status().await.expect("reads pass");
    fault.off().await;
    eventually(crate::common::BOUND, "the lease to come back", || async { writer.check() }).await;
    assert_eq!(place.collection.count_documents(doc! { "_id": writer.identifier() }).await.unwrap(), 1);
}
