//! What a lease costs, beside the same calls by the bare driver on the same server in the same run.
//!
//! Both sides take turns sample by sample, so that noise meets both alike; what is compared are medians. A
//! benchmark library measures one thing after the other, hence the small table of our own.
//!
//! `scripts/bench` starts the servers and runs this. Arguments that are no options are filters: only rows whose
//! name contains one of them are measured.

#[path = "../../tests/support/mod.rs"]
mod support;

mod driver;
mod table;

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::try_join_all;
use lockhouse::{Coordinator, LeaseTiming};

use driver::Driver;
use support::database::TestDatabase;
use support::uri::Uri;
use table::{Aim, Row, compare, measure};

const SAMPLES: usize = 300;
const MANY: usize = 10_000;
/// Of what takes long by itself.
const FEW: usize = 30;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (server, variable) in
        [("replica set", "LOCKHOUSE_TEST_MONGODB_URI"), ("standalone", "LOCKHOUSE_TEST_STANDALONE_URI")]
    {
        let Ok(uri) = std::env::var(variable) else {
            eprintln!("{variable} is not set: run scripts/bench, which starts servers of its own");
            std::process::exit(2);
        };
        let bench = Bench { uri: Uri::parse(&uri), filters: filters.clone() };
        println!("\n{server}");
        table::head("driver");
        bench.leases().await;
        bench.fsck(server == "replica set").await;
        bench.drain(server == "replica set").await;
        bench.many().await;
    }
}

struct Bench {
    uri: Uri,
    filters: Vec<String>,
}

/// A fresh store, ours and the driver's hands on it, each on its own collection.
struct Ground {
    ours: Coordinator,
    driver: Driver,
    database: TestDatabase,
}

impl Bench {
    fn wanted(&self, names: &[&str]) -> bool {
        let wanted = |filter: &String| names.iter().any(|name| name.contains(filter.as_str()));
        self.filters.is_empty() || self.filters.iter().any(wanted)
    }

    async fn ground(&self, timing: LeaseTiming) -> Ground {
        let database = TestDatabase::on(&self.uri);
        let ours = Coordinator::builder(&database.uri()).unwrap().timing(timing).connect().await.unwrap();
        ours.init().await.unwrap();
        let driver = Driver::new(&database).await;
        Ground { ours, driver, database }
    }

    /// One writer lease: all of it, and its parts.
    async fn leases(&self) {
        let (whole, release, refresh) = ("acquire + release", "release", "refresh of one lease");
        if !self.wanted(&[whole, release, refresh]) {
            return;
        }
        let Ground { ours, driver, database } = self.ground(LeaseTiming::for_failover()).await;
        let mut released = (Vec::new(), Vec::new());
        compare(
            Row::of(whole).aim(Aim::Ratio(1.1)),
            SAMPLES,
            async || {
                let began = Instant::now();
                let lease = ours.acquire_writer().await.unwrap();
                let acquired = Instant::now();
                lease.release().await.unwrap();
                released.0.push(acquired.elapsed());
                began.elapsed()
            },
            async || {
                let began = Instant::now();
                let lease = driver.acquire_writer().await;
                let acquired = Instant::now();
                driver.release(lease).await;
                released.1.push(acquired.elapsed());
                began.elapsed()
            },
        )
        .await
        .print();
        Row::of(release).with(released.0, released.1).print();

        let lease = ours.acquire_writer().await.unwrap();
        let theirs = driver.acquire_writer().await;
        compare(
            Row::of(refresh),
            SAMPLES,
            async || {
                let began = Instant::now();
                lease.refresh_heartbeat(true).await.unwrap();
                began.elapsed()
            },
            async || {
                let began = Instant::now();
                driver.refresh(std::slice::from_ref(&theirs)).await;
                began.elapsed()
            },
        )
        .await
        .print();
        lease.release().await.unwrap();
        ours.shutdown().await;
        drop(database);
    }

    /// An fsck that waits for nobody.
    async fn fsck(&self, transactions: bool) {
        let (whole, granted) = ("fsck on an empty store", "fsck: install to grant");
        if !self.wanted(&[whole, granted]) {
            return;
        }
        let Ground { ours, driver, database } = self.ground(LeaseTiming::for_failover()).await;
        let mut grants = (Vec::new(), Vec::new());
        let mut lines = 0;
        let row = compare(
            Row::of(whole).aim(Aim::Ratio(1.1)),
            SAMPLES,
            async || {
                let began = Instant::now();
                let lease = ours.acquire_fsck().await.unwrap();
                grants.0.push(began.elapsed());
                lease.release().await.unwrap();
                let took = began.elapsed();
                // The history is written beside; the next sample should not meet it.
                lines += 2;
                driver.wait_for_history(lines).await;
                took
            },
            async || {
                let began = Instant::now();
                let lease = driver.acquire_fsck(transactions).await;
                grants.1.push(began.elapsed());
                driver.release(lease).await;
                began.elapsed()
            },
        )
        .await;
        Row::of(granted).with(grants.0, grants.1).print();
        row.print();
        ours.shutdown().await;
        drop(database);
    }

    /// How long an fsck waits on after the last writer has gone.
    async fn drain(&self, replica_set: bool) {
        let last = "last writer gone to fsck granted";
        if self.wanted(&[last]) {
            let aim = Duration::from_millis(if replica_set { 5 } else { 25 });
            let Ground { ours, driver, database } = self.ground(LeaseTiming::for_failover()).await;
            let other = Coordinator::connect(&database.uri()).await.unwrap();
            let mut row = Row::of(last).aim(Aim::Within(aim));
            for _ in 0..FEW {
                let writer = other.acquire_writer().await.unwrap();
                let mut request = ours.acquire_fsck();
                let mut progress = request.progress();
                let fsck = tokio::spawn(async move { (request.await.unwrap(), Instant::now()) });
                // Until the pauses between its looks are as long as they get.
                for _ in 0..6 {
                    progress.next().await.expect("it is waiting");
                }
                let key = driver::Key { id: writer.identifier().to_owned(), owner: writer.owner().to_owned() };
                driver.delete_ours(&key).await;
                let gone = Instant::now();
                let (fsck, granted) = fsck.await.unwrap();
                row.ours.push(granted.saturating_duration_since(gone));
                fsck.release().await.unwrap();
                writer.release().await.unwrap();
            }
            row.print();
            ours.shutdown().await;
        }
        let (look, status) = ("drain look over 10,000", "status of 10,000");
        if !self.wanted(&[look, status]) {
            return;
        }
        // So that what lies between two reports is the look, and next to nothing else.
        let at_once = Duration::from_millis(1);
        let timing = LeaseTiming { poll_initial: at_once, poll_max: at_once, ..LeaseTiming::for_failover() };
        let Ground { ours, driver, database } = self.ground(timing).await;
        driver.fill(MANY).await;
        let mut request = ours.acquire_fsck();
        let mut progress = request.progress();
        let fsck = tokio::spawn(request.into_future());
        for _ in 0..3 {
            assert_eq!(progress.next().await.expect("it drains").waiting_for.len(), MANY);
        }
        let mut row = Row::of(look).aim(Aim::Within(Duration::from_millis(25)));
        let mut last = Instant::now();
        for sample in 0..=FEW {
            progress.next().await.expect("it drains");
            let now = Instant::now();
            if sample > 0 {
                row.ours.push((now - last).saturating_sub(at_once));
            }
            last = now;
        }
        fsck.abort();
        drop(progress);
        // A drain does not stand still for the other's turn, so the driver comes after it.
        row.driver = measure(FEW, async || driver.timed_look().await).await;
        row.print();
        let mut row = Row::of(status);
        row.ours = measure(FEW, async || {
            let began = Instant::now();
            assert_eq!(ours.status().await.unwrap().writers.len(), MANY);
            began.elapsed()
        })
        .await;
        row.print();
        ours.shutdown().await;
        drop(database);
    }

    /// A process with many leases.
    async fn many(&self) {
        let name = "refresh of 10,000";
        if !self.wanted(&[name]) {
            return;
        }
        let timing = LeaseTiming::for_failover();
        let Ground { ours, driver, database } = self.ground(timing).await;
        let mut leases = Vec::with_capacity(MANY);
        while leases.len() < MANY {
            let some = (0..100).map(|_| ours.acquire_writer().into_future());
            leases.extend(try_join_all(some).await.unwrap());
        }
        // They are refreshed in the order of their ids, so the last one's confirmation ends a round that began
        // when the first one's was sent. Both are seen in what remains of a lease: it jumps back to its full
        // length less what has passed since sending.
        leases.sort_by(|a, b| a.identifier().cmp(b.identifier()));
        let (first, last) = (&leases[0], &leases[MANY - 1]);
        let mut row = Row::of(name).aim(Aim::Within(Duration::from_millis(250)));
        let keys: Vec<driver::Key> = leases
            .iter()
            .map(|lease| driver::Key { id: lease.identifier().to_owned(), owner: lease.owner().to_owned() })
            .collect();
        for _ in 0..10 {
            let sent = jump(first, timing).await;
            jump(last, timing).await;
            row.ours.push(sent.elapsed());
            // The rounds are half an interval apart: there is time for the driver's turn in between.
            row.driver.push(driver.timed_refresh(&keys).await);
        }
        row.print();
        drop(leases);
        ours.shutdown().await;
        drop(database);
    }
}

/// Waits for the lease to be confirmed again, and says when that refresh was sent.
async fn jump(lease: &lockhouse::Lease, timing: LeaseTiming) -> Instant {
    let mut before = lease.remaining();
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = lease.remaining();
        if now > before {
            return Instant::now() - (timing.valid_for() - now);
        }
        before = now;
    }
}
