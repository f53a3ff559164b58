//! A process that is stopped in a fenced transaction while somebody says that it is dead: either its commit came
//! first, and the fsck waited for it, or there is no commit.

use std::future::IntoFuture;
use std::time::Duration;

use futures::StreamExt;
use lockhouse::FsckLease;

use crate::probe::Probe;
use crate::support::database::TestDatabase;
use crate::support::mongod::{Mongod, Options};
use crate::{BOUND, User, connect};

/// How long a server of ours lets a transaction live whose client says no more, in seconds; a minute by default.
const LIFETIME: u64 = 8;

async fn server() -> Mongod {
    let mut options = Options::replica_set();
    options.parameters.push(("transactionLifetimeLimitSeconds".to_owned(), LIFETIME.to_string()));
    Mongod::start(options).await
}

/// An fsck by force beside a probe that has done `steps` and is stopped.
struct Stopped {
    probe: Probe,
    database: TestDatabase,
    user: User,
    _server: Mongod,
}

impl Stopped {
    async fn after(steps: &[&str]) -> Stopped {
        let server = server().await;
        let database = server.database();
        let user = User::of(&database).await;
        connect(&database.uri(), "first").await.shutdown().await;
        let mut probe = Probe::start(&database.uri(), database.name());
        for step in steps {
            assert_eq!(probe.ask(step), "ok", "{step}");
        }
        probe.stop();
        Stopped { probe, database, user, _server: server }
    }

    async fn forced_fsck(&self) -> FsckLease {
        let checker = connect(&self.database.uri(), "checker").await;
        tokio::time::timeout(BOUND, checker.acquire_fsck().force(true).into_future()).await.unwrap().unwrap()
    }

    /// The whole: granted while the probe is stopped, then the probe goes on with `rest`.
    async fn commits_nothing(mut self, rest: &[&str]) {
        let fsck = self.forced_fsck().await;
        assert_eq!(self.user.written().await, 0, "when the exclusive phase begins");
        self.probe.go_on();
        let answers: Vec<String> = rest.iter().map(|step| self.probe.ask(step)).collect();
        assert!(answers.iter().any(|answer| answer != "ok"), "{answers:?}");
        assert_eq!(self.user.written().await, 0, "{answers:?}");
        fsck.check().unwrap();
        fsck.release().await.unwrap();
        assert_eq!((self.user.written().await, self.user.fences().await), (0, 0));
    }
}

#[tokio::test]
async fn before_its_fence_it_is_refused() {
    let stopped = Stopped::after(&["write"]).await;
    stopped.commits_nothing(&["fence", "commit"]).await;
}

#[tokio::test]
async fn after_its_fence_it_commits_nothing() {
    let stopped = Stopped::after(&["fence"]).await;
    stopped.commits_nothing(&["write", "commit"]).await;
}

#[tokio::test]
async fn after_its_last_write_it_commits_nothing() {
    let stopped = Stopped::after(&["fence", "write"]).await;
    stopped.commits_nothing(&["commit"]).await;
}

#[tokio::test]
async fn a_fence_as_the_last_statement_holds_too() {
    let stopped = Stopped::after(&["write", "fence"]).await;
    stopped.commits_nothing(&["commit"]).await;
}

#[tokio::test]
async fn one_that_goes_on_in_time_has_committed_before_the_fsck_is_granted() {
    let mut stopped = Stopped::after(&["fence", "write"]).await;
    let checker = connect(&stopped.database.uri(), "checker").await;
    let mut acquire = checker.acquire_fsck().force(true);
    let mut progress = acquire.progress();
    let acquiring = tokio::spawn(acquire.into_future());
    let waits = tokio::time::timeout(BOUND, async {
        while let Some(seen) = progress.next().await {
            if seen.waiting_for_fences {
                return true;
            }
        }
        false
    });
    assert!(waits.await.unwrap(), "the fsck was granted without waiting");
    assert!(!acquiring.is_finished());
    stopped.probe.go_on();
    let answer = stopped.probe.ask("commit");
    let fsck = tokio::time::timeout(BOUND, acquiring).await.unwrap().unwrap().unwrap();
    // The machine may have been so slow that the server gave the transaction up.
    let committed = u64::from(answer == "ok");
    assert_eq!(stopped.user.written().await, committed, "{answer}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(stopped.user.written().await, committed, "{answer}");
    fsck.release().await.unwrap();
}
