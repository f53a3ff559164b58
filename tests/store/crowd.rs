//! Eight processes that write one store, whose owner is killed again and again, and which an fsck has to itself now and
//! then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockhouse::owner::{Ownership, Phase};

use crate::checker::{Rebuild, check, rebuild};
use crate::probe::Probe;
use crate::support::poll::{eventually, eventually_blocking};
use crate::{Place, open, rows};

const PROCESSES: usize = 8;
/// Between two kills.
const KILL_EVERY: Duration = Duration::from_secs(2);
/// How long anything may take on a machine on which all of them write as fast as they can.
const PATIENCE: Duration = Duration::from_secs(60);

/// The writers, and what they said that they need not write again.
struct Crowd {
    store: PathBuf,
    living: BTreeMap<String, Probe>,
    /// By the name of a writer: how many of its rows were acknowledged.
    said: BTreeMap<String, u64>,
    kills: usize,
}

impl Crowd {
    fn new(store: &Path) -> Crowd {
        let mut crowd = Crowd { store: store.to_owned(), living: BTreeMap::new(), said: BTreeMap::new(), kills: 0 };
        for _ in 0..PROCESSES {
            crowd.join();
        }
        crowd
    }

    fn join(&mut self) {
        let by = format!("w{}", self.said.len() + self.living.len());
        let mut probe = Probe::launch(&self.store, None);
        probe.tell(&format!("write {by}"));
        self.living.insert(by, probe);
    }

    /// Kills the owner, and lets another process begin.
    fn kill_the_owner(&mut self) {
        let pid = eventually_blocking(PATIENCE, "an owner that is one of the writers", || {
            let owner = lockhouse::owner::read_state(&self.store).unwrap();
            match &owner {
                Ownership::Named(state) if self.living.values().any(|probe| probe.pid() == state.pid) => Ok(state.pid),
                _ => Err(owner),
            }
        });
        let by = self.living.iter().find(|(_, probe)| probe.pid() == pid).map(|(by, _)| by.clone()).unwrap();
        let mut probe = self.living.remove(&by).unwrap();
        probe.kill();
        self.hear(&by, &probe);
        self.kills += 1;
        self.join();
    }

    fn hear(&mut self, by: &str, probe: &Probe) {
        let numbers = probe.unheard().into_iter().filter_map(|line| match line.as_str() {
            "owner" | "reader" => None,
            line => Some(line.parse::<u64>().unwrap_or_else(|_| panic!("{by}: {line}"))),
        });
        let last = numbers.max().unwrap_or(0);
        let said = self.said.entry(by.to_owned()).or_default();
        *said = last.max(*said);
    }

    /// Lets all of them finish what they write, and close the store.
    fn stop(&mut self) {
        let mut living = std::mem::take(&mut self.living);
        for probe in living.values_mut() {
            probe.tell("stop");
        }
        for (by, probe) in &mut living {
            let wrote = loop {
                match probe.answer_within(PATIENCE).as_str() {
                    "owner" | "reader" => {}
                    answer => match answer.strip_prefix("wrote ") {
                        Some(number) => break number.parse().unwrap(),
                        None => drop(answer.parse::<u64>().unwrap_or_else(|_| panic!("{by}: {answer}"))),
                    },
                }
            };
            self.said.insert(by.clone(), wrote);
        }
        for (by, probe) in &mut living {
            probe.tell("close");
            assert_eq!(probe.answer_within(PATIENCE), "closed", "{by}");
        }
    }

    /// Whether everything that was acknowledged is there, once, and in order.
    async fn verify(&self, spool: &Path) {
        let store = open(&self.store).await;
        eventually(PATIENCE, "the spool to be empty", || async {
            match std::fs::read_dir(spool.join("incoming")).unwrap().count() {
                0 => Ok(()),
                left => Err(left),
            }
        })
        .await;
        let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for row in rows(&store, "s").await {
            found.entry(row["by"].as_str().unwrap().to_owned()).or_default().push(row["n"].as_u64().unwrap());
        }
        let mut total = 0;
        for (by, said) in &self.said {
            let rows = found.remove(by).unwrap_or_default();
            let all: Vec<u64> = (1..=rows.len() as u64).collect();
            assert_eq!(rows, all, "{by}: each row once, and in order");
            assert!(rows.len() as u64 >= *said, "{by}: {} rows of {said} are there", rows.len());
            total += rows.len();
        }
        assert!(found.is_empty(), "{found:?}");
        let failed = std::fs::read_dir(spool.join("failed")).unwrap().count();
        assert_eq!(failed, 0, "failed/ is empty");
        assert!(total > self.said.len(), "{total} rows of {} writers, {} kills", self.said.len(), self.kills);
        store.close().await.unwrap();
    }
}

/// The owner is killed every two seconds.
async fn kills(lasts: Duration) {
    let place = Place::new();
    let path = place.path();
    let crowd = tokio::task::spawn_blocking(move || {
        let end = Instant::now() + lasts;
        let mut crowd = Crowd::new(&path);
        while Instant::now() + KILL_EVERY < end {
            std::thread::sleep(KILL_EVERY);
            crowd.kill_the_owner();
        }
        crowd.stop();
        crowd
    })
    .await
    .unwrap();
    assert!(crowd.kills >= 2, "{}", crowd.kills);
    crowd.verify(&place.0.path().join("records.spool")).await;
}

/// The same, with an fsck every few seconds, one of which puts another file in the store's place.
async fn kills_and_fscks(lasts: Duration, every: Duration) {
    let place = Place::new();
    let path = place.path();
    let checking = tokio::task::spawn_blocking({
        let path = path.clone();
        move || {
            let end = Instant::now() + lasts;
            let mut fscks = 0;
            // There is a store as soon as somebody owns it.
            eventually_blocking(PATIENCE, "a store", || {
                let owner = lockhouse::owner::read_state(&path).unwrap();
                if owner.state().is_some_and(|state| state.phase == Phase::Ready) { Ok(()) } else { Err(owner) }
            });
            while Instant::now() < end {
                std::thread::sleep(every);
                match fscks {
                    1 => rebuild(&path, Rebuild::Compact),
                    _ => check(&path),
                }
                fscks += 1;
            }
            fscks
        }
    });
    let crowd = tokio::task::spawn_blocking({
        let path = path.clone();
        move || {
            let end = Instant::now() + lasts;
            let mut crowd = Crowd::new(&path);
            while Instant::now() + KILL_EVERY < end {
                std::thread::sleep(KILL_EVERY);
                crowd.kill_the_owner();
            }
            crowd
        }
    });
    let (fscks, crowd) = tokio::join!(checking, crowd);
    let mut crowd = crowd.unwrap();
    let fscks = fscks.unwrap();
    assert!(fscks >= 3 && crowd.kills >= 2, "{fscks} fscks, {} kills", crowd.kills);
    let crowd = tokio::task::spawn_blocking(move || {
        crowd.stop();
        crowd
    });
    let crowd = crowd.await.unwrap();
    tokio::task::spawn_blocking(move || check(&path)).await.unwrap();
    crowd.verify(&place.0.path().join("records.spool")).await;
}

#[tokio::test]
async fn eight_processes_write_while_the_owner_is_killed() {
    kills(Duration::from_secs(10)).await;
}

#[tokio::test]
#[ignore = "takes a minute; scripts/test runs it"]
async fn eight_processes_write_for_a_minute_while_the_owner_is_killed() {
    kills(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn nobody_writes_while_an_fsck_has_the_store_and_nothing_is_lost() {
    kills_and_fscks(Duration::from_secs(10), Duration::from_secs(1)).await;
}

#[tokio::test]
#[ignore = "takes a minute; scripts/test runs it"]
async fn nobody_writes_while_an_fsck_has_the_store_every_five_seconds_of_a_minute() {
    kills_and_fscks(Duration::from_secs(60), Duration::from_secs(5)).await;
}
