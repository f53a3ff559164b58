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
mod peer;
#[path = "../support/table.rs"]
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod table;

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::try_join_all;
use lockhouse::{Coordinator, LeaseTiming, Watch};

use driver::Driver;
use support::database::TestDatabase;
use support::uri::Uri;
use table::{Aim, Row, compare, measure};

const ROUND_TRIPS: &str = "round trips, each with the server's fsync of its journal";
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
        table::head(server, "driver");
        bench.leases().await;
        bench.fsck(server == "replica set").await;
        bench.drain(server == "replica set").await;
        bench.many().await;
        if server == "replica set" {
            bench.growth().await;
            bench.beside_the_peer().await;
        }
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
            Row::of(whole).aim(Aim::Ratio(1.1)).limited_by(ROUND_TRIPS),
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
        Row::of(release).limited_by(ROUND_TRIPS).with(released.0, released.1).print();

        let lease = ours.acquire_writer().await.unwrap();
        let theirs = driver.acquire_writer().await;
        compare(
            Row::of(refresh).limited_by(ROUND_TRIPS),
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
            Row::of(whole).aim(Aim::Ratio(1.1)).limited_by(ROUND_TRIPS),
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
                driver.release_fsck(lease).await;
                began.elapsed()
            },
        )
        .await;
        Row::of(granted).limited_by(ROUND_TRIPS).with(grants.0, grants.1).print();
        row.print();
        ours.shutdown().await;
        drop(database);
    }

    /// How long an fsck waits on after the last writer has gone.
    async fn drain(&self, replica_set: bool) {
        let last = "last writer gone to fsck granted";
        if self.wanted(&[last]) {
            let aim = Duration::from_millis(if replica_set { 5 } else { 25 });
            let limit = if replica_set { ROUND_TRIPS } else { "polling: a standalone tells nobody of anything" };
            let told = self.hand_over(Watch::Auto).await;
            let polled = self.hand_over(Watch::Never).await;
            Row::of(last).aim(Aim::Within(aim)).limited_by(limit).with(told.clone(), polled.clone()).print();
            if replica_set {
                for (name, samples) in [("told by a change stream", told), ("polling", polled)] {
                    let at = |share: usize| table::share(&samples, share).expect("samples").as_secs_f64() * 1e3;
                    let shares = (0..=100).step_by(5).map(|share| (share as f64, at(share)));
                    table::series("drain hand-over", name, &shares.collect::<Vec<_>>());
                }
            }
        }
        let (look, status) = ("drain look over 10,000", "status of 10,000");
        if !self.wanted(&[look, status]) {
            return;
        }
        let ground = self.ground(at_once()).await;
        ground.driver.fill(MANY).await;
        let mut row = Row::of(look)
            .aim(Aim::Within(Duration::from_millis(25)))
            .limited_by("CPU: the server's over its index, ours over the ids");
        row.ours = looks(&ground.ours, MANY).await;
        // A drain does not stand still for the other's turn, so the driver comes after it.
        row.driver = measure(FEW, async || ground.driver.timed_look().await).await;
        row.print();
        let Ground { ours, driver: _, database } = ground;
        let mut row = Row::of(status).limited_by("CPU: the server's and ours, over whole documents");
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
        let mut row = Row::of(name)
            .aim(Aim::Within(Duration::from_millis(250)))
            .limited_by("CPU: the server's, over its documents and its log of operations");
        let keys: Vec<driver::Key> = leases
            .iter()
            .map(|lease| driver::Key { id: lease.identifier().to_owned(), owner: lease.owner().to_owned() })
            .collect();
        for _ in 0..10 {
            let sent = jump(first, timing).await;
            jump_after(last, timing, sent).await;
            row.ours.push(sent.elapsed());
            // The rounds are half an interval apart: there is time for the driver's turn in between.
            row.driver.push(driver.timed_refresh(&keys).await);
        }
        row.print();
        drop(leases);
        ours.shutdown().await;
        drop(database);
    }

    /// From the moment the last writer has gone to the fsck's grant, while the pauses between its looks are as long as
    /// they get.
    async fn hand_over(&self, watch: Watch) -> Vec<Duration> {
        let Ground { driver, database, ours: made } = self.ground(LeaseTiming::for_failover()).await;
        made.shutdown().await;
        let ours = Coordinator::builder(&database.uri()).unwrap().watch(watch).connect().await.unwrap();
        let other = Coordinator::connect(&database.uri()).await.unwrap();
        let mut samples = Vec::new();
        for _ in 0..FEW {
            let writer = other.acquire_writer().await.unwrap();
            let mut request = ours.acquire_fsck();
            let mut progress = request.progress();
            let fsck = tokio::spawn(async move { (request.await.unwrap(), Instant::now()) });
            for _ in 0..6 {
                progress.next().await.expect("it is waiting");
            }
            let key = driver::Key { id: writer.identifier().to_owned(), owner: writer.owner().to_owned() };
            // Not always at the same moment of a pause.
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..200_000))).await;
            driver.delete_ours(&key).await;
            let gone = Instant::now();
            let (fsck, granted) = fsck.await.unwrap();
            samples.push(granted.saturating_duration_since(gone));
            fsck.release().await.unwrap();
            writer.release().await.unwrap();
        }
        other.shutdown().await;
        ours.shutdown().await;
        samples
    }

    /// Beside httk-store, which cannot take turns with us in this process.
    async fn beside_the_peer(&self) {
        let name = "httk-store";
        if !self.wanted(&[name]) {
            return;
        }
        let theirs = TestDatabase::on(&self.uri);
        let Some(peer) = peer::measure(&theirs.uri(), theirs.name(), SAMPLES / 3, FEW) else {
            println!("no httk-store: LOCKHOUSE_TEST_PEER_PYTHON is not set");
            return;
        };
        table::head("beside httk-store, on the replica set", name);
        let Ground { ours, driver: _, database } = self.ground(LeaseTiming::default()).await;
        let writer = measure(SAMPLES / 3, async || {
            let began = Instant::now();
            ours.acquire_writer().await.unwrap().release().await.unwrap();
            began.elapsed()
        });
        Row::of("acquire + release").limited_by(ROUND_TRIPS).with(writer.await, peer.writer).print();
        let fsck = measure(SAMPLES / 3, async || {
            let began = Instant::now();
            ours.acquire_fsck().await.unwrap().release().await.unwrap();
            began.elapsed()
        });
        Row::of("fsck on an empty store").limited_by(ROUND_TRIPS).with(fsck.await, peer.fsck).print();
        let told = self.hand_over(Watch::Auto).await;
        Row::of("last writer gone to fsck granted").limited_by(ROUND_TRIPS).with(told, peer.hand_over).print();
        ours.shutdown().await;
        drop(database);
    }

    /// What grows with the number of leases, and how.
    async fn growth(&self) {
        let (leases, looks_at) = ("growth of leases", "growth of looks");
        if self.wanted(&[looks_at]) {
            let (mut ours, mut whole) = (Vec::new(), Vec::new());
            for count in GROWTH {
                let ground = self.ground(at_once()).await;
                ground.driver.fill(count).await;
                let look = looks(&ground.ours, count).await;
                ours.push((count as f64, millis(&look)));
                let look = measure(5, async || ground.driver.timed_look().await).await;
                whole.push((count as f64, millis(&look)));
                ground.ours.shutdown().await;
            }
            table::series("drain look", "lockhouse", &ours);
            table::series("drain look", "every document, by the driver", &whole);
        }
        if self.wanted(&[leases]) {
            // To refresh the largest count may take seconds, and what is acquired meanwhile waits for its answer.
            let timing = LeaseTiming { refresh_interval: Duration::from_secs(10), ..LeaseTiming::for_failover() };
            let Ground { ours, driver, database } = self.ground(timing).await;
            let (mut held, mut refreshed, mut bare) = (Vec::new(), Vec::new(), Vec::new());
            for count in GROWTH {
                while held.len() < count {
                    let some = (0..(count - held.len()).min(200)).map(|_| ours.acquire_writer().into_future());
                    held.extend(try_join_all(some).await.unwrap());
                }
                held.sort_by(|a, b| a.identifier().cmp(b.identifier()));
                let keys: Vec<driver::Key> = held
                    .iter()
                    .map(|lease| driver::Key { id: lease.identifier().to_owned(), owner: lease.owner().to_owned() })
                    .collect();
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                for _ in 0..5 {
                    let sent = jump(&held[0], timing).await;
                    jump_after(&held[count - 1], timing, sent).await;
                    ours.push(sent.elapsed());
                    theirs.push(driver.timed_refresh(&keys).await);
                }
                refreshed.push((count as f64, millis(&ours)));
                bare.push((count as f64, millis(&theirs)));
            }
            table::series("leases of one process", "refresh of all, lockhouse", &refreshed);
            table::series("leases of one process", "the same, one statement after the other, by the driver", &bare);
            drop(held);
            ours.shutdown().await;
            drop(database);
        }
    }
}

/// How many there are, in the plots.
const GROWTH: [usize; 6] = [1, 10, 100, 1_000, 10_000, 100_000];

/// So that what lies between two reports of a drain is the look, and next to nothing else.
fn at_once() -> LeaseTiming {
    LeaseTiming { poll_initial: PAUSE, poll_max: PAUSE, ..LeaseTiming::for_failover() }
}

const PAUSE: Duration = Duration::from_millis(1);

/// The looks of a drain that waits for so many writers.
async fn looks(ours: &Coordinator, count: usize) -> Vec<Duration> {
    let mut request = ours.acquire_fsck();
    let mut progress = request.progress();
    let fsck = tokio::spawn(request.into_future());
    for _ in 0..3 {
        assert_eq!(progress.next().await.expect("it drains").waiting_for.len(), count);
    }
    let mut samples = Vec::new();
    for _ in 0..FEW {
        let last = Instant::now();
        progress.next().await.expect("it drains");
        samples.push(last.elapsed().saturating_sub(PAUSE));
    }
    fsck.abort();
    // It withdraws.
    let _ = fsck.await;
    samples
}

fn millis(samples: &[Duration]) -> f64 {
    table::share(samples, 50).expect("samples").as_secs_f64() * 1e3
}

/// Waits for the lease to be confirmed by a refresh that was sent no earlier.
async fn jump_after(lease: &lockhouse::Lease, timing: LeaseTiming, sent: Instant) {
    while Instant::now() - (timing.valid_for().saturating_sub(lease.remaining())) + Duration::from_millis(2) < sent {
        tokio::time::sleep(Duration::from_millis(1)).await;
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
