//! Many batches, many producers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use lockhouse::owner::Ingestor;
use lockhouse::spool::Listing;

use crate::full::with_mounts;
use crate::raw::Raw;
use crate::support::poll::eventually_blocking;
use crate::support::process::spawn_kept;
use crate::{PATIENCE, Store, assert_clean, notes, probe, round, rounds};

/// In memory: what takes minutes on a disk is its syncing, which the other tests have.
#[test]
fn ten_thousand_batches_that_are_there_at_once_are_all_applied() {
    let store = Store::new();
    let script = r#"
        mkdir "$D/memory"; mount -t tmpfs -o mode=700 none "$D/memory"
        probe many "$D/memory/p"
    "#;
    assert_eq!(probe::said(&with_mounts(script, &store)), ["done"]);
}

/// What the probe does that the test starts.
pub(crate) fn many(directory: &Path) {
    const MANY: u64 = 10_000;
    let store = Store::within(directory);
    let mut target = store.target();
    for seq in 1..=MANY / 4 {
        ["a", "b", "c", "d"].iter().for_each(|instance| drop(Raw::new(instance, seq).put(&store)));
    }
    let mut ingestor = Ingestor::new(&store.spool);
    let first = round(&mut ingestor, &mut target);
    assert!(first.more && first.applied.len() < 1000, "a round is bounded: {}", first.applied.len());
    assert_eq!(first.backlog, usize::try_from(MANY).unwrap() - first.applied.len());
    assert_clean(&rounds(&mut ingestor, &mut target));
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    for note in notes(&target) {
        let (instance, seq) = note.split_once('.').unwrap();
        let next = next.entry(instance.to_owned()).or_insert(1);
        assert_eq!(seq.parse::<u64>().unwrap(), *next, "{instance}");
        *next += 1;
    }
    assert_eq!(next.values().collect::<Vec<_>>(), [&(MANY / 4 + 1); 4]);
}

/// Leaves out what it is told to by a sequence that only looks random: another part of the directory each time.
#[derive(Debug)]
struct Forgetful {
    directory: std::path::PathBuf,
    turn: u64,
}

impl Listing for Forgetful {
    fn names(&mut self) -> std::io::Result<Vec<OsString>> {
        self.turn += 1;
        let mut names = Vec::new();
        for (index, entry) in std::fs::read_dir(&self.directory)?.enumerate() {
            let mixed = (index as u64 + 1).wrapping_mul(self.turn).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if mixed >> 62 != 0 {
                names.push(entry?.file_name());
            }
        }
        Ok(names)
    }
}

fn ingest_a_crowd(forgetful: bool) {
    const PRODUCERS: usize = 8;
    const EACH: usize = 40;
    let store = Store::new();
    let mut target = store.target();
    let mut children: Vec<_> = (0..PRODUCERS)
        .map(|_| {
            let mut command = probe::command(&format!("crowd {EACH}"), &store.path());
            command.stdout(Stdio::null());
            spawn_kept(command).unwrap()
        })
        .collect();
    let mut ingestor = Ingestor::new(&store.spool);
    if forgetful {
        ingestor = ingestor.listing(Forgetful { directory: store.incoming(), turn: 0 });
    }
    let mut applied = 0;
    eventually_blocking(PATIENCE, "all batches of all producers to be applied", || {
        let round = round(&mut ingestor, &mut target);
        assert!(round.failed.is_empty() && round.skipped.is_empty() && round.paused.is_none(), "{round:?}");
        applied += round.applied.len();
        if applied == PRODUCERS * EACH { Ok(()) } else { Err(applied) }
    });
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let mut next: BTreeMap<String, usize> = BTreeMap::new();
    for note in notes(&target) {
        let (instance, number) = note.split_once(':').unwrap();
        let next = next.entry(instance.to_owned()).or_insert(1);
        assert_eq!(number.parse::<usize>().unwrap(), *next, "{instance}");
        *next += 1;
    }
    assert_eq!(next.into_values().collect::<Vec<_>>(), [EACH + 1; PRODUCERS]);
    assert_eq!((store.list("incoming"), store.list("failed")), Default::default());
}

#[test]
fn eight_producers_are_applied_in_their_orders_while_they_publish() {
    ingest_a_crowd(false);
}

#[test]
fn eight_producers_are_applied_in_their_orders_by_listings_that_miss_a_quarter() {
    ingest_a_crowd(true);
}
