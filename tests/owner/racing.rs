//! Many elections in a row. `LOCKHOUSE_TEST_RACE_ROUNDS=10000` for a long run.

use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use lockhouse::owner::Candidate;

use crate::probe::{Probe, say};
use crate::{Store, count};

/// What a racing process does: becomes the owner so many times, and looks each time whether it is alone.
pub(crate) fn race(store: &Path, rounds: usize) {
    let candidate = Candidate::new(store, "racer").unwrap();
    let witness = store.with_extension("witness");
    for _ in 0..rounds {
        let owner = loop {
            match candidate.elect().unwrap() {
                Some(owner) => break owner,
                None => std::thread::yield_now(),
            }
        };
        // Nobody else may be between making and removing this file.
        if let Err(error) = OpenOptions::new().write(true).create_new(true).open(&witness) {
            say(format!("two owners: {error}"));
            std::process::exit(0);
        }
        owner.check().unwrap();
        std::fs::remove_file(&witness).unwrap();
        owner.release();
    }
    say("done");
}

#[test]
fn three_processes_race_and_there_are_never_two_owners() {
    let rounds = count("LOCKHOUSE_TEST_RACE_ROUNDS", 300);
    let store = Store::new();
    // So that the file exists before the race.
    Candidate::new(store.path(), "first").unwrap().elect().unwrap().unwrap().release();
    let inode = std::fs::metadata(store.beside(".lock")).unwrap().ino();
    let racers: Vec<Probe> = (0..3).map(|_| Probe::start(&format!("race {rounds}"), &store.path())).collect();
    for racer in &racers {
        assert_eq!(racer.answer_within(Duration::from_secs(20) * u32::try_from(rounds / 300 + 1).unwrap()), "done");
    }
    assert_eq!(std::fs::metadata(store.beside(".lock")).unwrap().ino(), inode, "P.lock was exchanged");
    let left: Vec<_> = std::fs::read_dir(store.directory()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "only P.lock and P.leases stay: {left:?}");
    assert_eq!(std::fs::read_dir(store.beside(".leases")).unwrap().count(), 0);
}

#[test]
fn owners_that_are_killed_are_followed_at_once() {
    let rounds = count("LOCKHOUSE_TEST_RACE_ROUNDS", 300).div_ceil(30);
    let store = Store::new();
    let mut owner = Probe::owner("owner", &store.path());
    let inode = std::fs::metadata(store.beside(".lock")).unwrap().ino();
    for _ in 0..rounds {
        // Kept waiting while the other lives.
        let taken = Probe::start("owner", &store.path());
        assert_eq!(taken.answer(), "taken");
        owner.kill();
        owner = Probe::owner("owner", &store.path());
    }
    assert_eq!(std::fs::metadata(store.beside(".lock")).unwrap().ino(), inode);
}
