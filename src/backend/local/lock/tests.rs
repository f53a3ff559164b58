//! A test for every sentence about locks.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn held(elected: Elected) -> HeldLock {
    match elected {
        Elected::Held(lock) => lock,
        Elected::Taken => panic!("somebody else holds it"),
    }
}

fn is_taken(path: &Path) -> bool {
    matches!(elect(path).unwrap(), Elected::Taken)
}

#[test]
fn an_election_has_one_winner_and_its_file_stays() {
    let directory = directory();
    let path = directory.path().join("lock");
    let first = held(elect(&path).unwrap());
    let inode = std::fs::metadata(&path).unwrap().ino();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert!(is_taken(&path));
    drop(first);
    let second = held(elect(&path).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
    drop(second);
    assert!(path.exists());
}

#[test]
fn opening_and_closing_the_file_elsewhere_in_the_process_does_not_unlock() {
    let directory = directory();
    let path = directory.path().join("lock");
    let lock = held(elect(&path).unwrap());
    let mut text = String::new();
    File::open(&path).unwrap().read_to_string(&mut text).unwrap();
    drop(std::fs::OpenOptions::new().write(true).open(&path).unwrap());
    assert!(is_taken(&path) && lock.recheck().unwrap());
}

#[test]
fn a_descriptor_that_was_inherited_keeps_the_lock_of_a_dead_holder() {
    let directory = directory();
    let path = directory.path().join("lock");
    let mut lock = held(elect(&path).unwrap());
    let inherited = lock.duplicate().unwrap();
    assert!(rustix::io::fcntl_getfd(&inherited).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    // As by SIGKILL, or in a forked child: nothing is unlocked, only closed.
    lock.pid += 1;
    drop(lock);
    assert!(is_taken(&path));
    drop(inherited);
    drop(held(elect(&path).unwrap()));
}

#[test]
fn a_holder_unlocks_whoever_inherited_the_descriptor() {
    let directory = directory();
    let path = directory.path().join("lock");
    let lock = held(elect(&path).unwrap());
    let inherited = lock.duplicate().unwrap();
    drop(lock);
    drop(held(elect(&path).unwrap()));
    drop(inherited);
}

#[test]
fn a_recheck_notices_a_file_that_was_removed_or_replaced() {
    let directory = directory();
    let path = directory.path().join("lock");
    let lock = held(elect(&path).unwrap());
    assert!(lock.recheck().unwrap());
    std::fs::remove_file(&path).unwrap();
    assert!(!lock.recheck().unwrap());
    let other = held(elect(&path).unwrap());
    assert!(!lock.recheck().unwrap() && other.recheck().unwrap());
}

#[test]
fn a_recheck_notices_that_a_forked_child_unlocked_and_somebody_came() {
    let directory = directory();
    let path = directory.path().join("lock");
    let lock = held(elect(&path).unwrap());
    // The same open file, as a fork has it.
    let fork = File::from(lock.duplicate().unwrap());
    unlock(&fork).unwrap();
    assert!(lock.recheck().unwrap(), "nobody came: asking again takes it back");
    unlock(&fork).unwrap();
    let other = held(elect(&path).unwrap());
    assert!(!lock.recheck().unwrap() && other.recheck().unwrap());
}

#[test]
fn a_presence_is_found_living_then_dead_then_absent() {
    let directory = directory();
    let path = directory.path().join("one.json");
    assert!(matches!(look(&path), Looked::Absent));
    let lock = publish(&path, b"me").unwrap();
    match look(&path) {
        Looked::Living(found) => assert_eq!(found.content, b"me"),
        other => panic!("{other:?}"),
    }
    assert!(lock.recheck().unwrap(), "a look disturbs nobody");
    let mut dead = lock;
    dead.pid += 1;
    drop(dead);
    let Looked::Dead(found) = look(&path) else { panic!("its descriptor is closed") };
    assert_eq!(found.content, b"me");
    assert!(remove_dead(&path, &found).unwrap() && !remove_dead(&path, &found).unwrap());
    assert!(matches!(look(&path), Looked::Absent));
}

#[test]
fn a_withdrawal_removes_only_the_own_file() {
    let directory = directory();
    let path = directory.path().join("fsck.json");
    let old = publish(&path, b"old").unwrap();
    let new = publish(&path, b"new").unwrap();
    old.withdraw().unwrap();
    assert!(matches!(look(&path), Looked::Living(found) if found.content == b"new"));
    new.withdraw().unwrap();
    assert!(!path.exists());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no temporary file is left");
}

#[test]
fn what_no_holder_can_have_made_is_strange() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("directory")).unwrap();
    std::os::unix::fs::symlink("/dev/null", at("link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
    std::fs::write(at("linked"), "").unwrap();
    std::fs::hard_link(at("linked"), at("twice")).unwrap();
    std::fs::write(at("large"), vec![b' '; usize::try_from(LONGEST).unwrap() + 1]).unwrap();
    for name in ["directory", "link", "fifo", "socket", "twice", "large"] {
        assert!(matches!(look(&at(name)), Looked::Strange(_)), "{name}: {:?}", look(&at(name)));
        assert!(elect(&at(name)).is_err(), "{name}");
    }
}

#[test]
fn what_cannot_be_told_is_never_absence() {
    let directory = directory();
    // Searching below a file fails, whoever asks.
    let long = directory.path().join("x".repeat(300));
    assert!(matches!(look(&long), Looked::Unclear(_)));
    assert!(elect(&long).is_err());
}

/// Every look at a presence that is exchanged without end finds a living holder: at no moment is the file that is
/// there unlocked, or half written.
#[test]
fn whoever_finds_a_presence_finds_it_locked_and_complete() {
    let directory = directory();
    let path = directory.path().join("fsck.json");
    let content = vec![b'x'; 1000];
    let mut lock = publish(&path, &content).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                match look(&path) {
                    Looked::Living(found) => assert_eq!(found.content.len(), content.len()),
                    other => panic!("{other:?}"),
                }
                looks += 1;
            }
            looks
        });
        for _ in 0..2_000 {
            lock = publish(&path, &content).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        assert!(looks.join().unwrap() > 0);
    });
    assert!(lock.recheck().unwrap());
}

/// A cleaner takes temporary files for a dead one's before they are locked; the publication is tried again.
#[test]
fn a_cleaner_never_makes_a_publication_fail() {
    let directory = directory();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for entry in std::fs::read_dir(directory.path()).unwrap().flatten() {
                    let is_temporary = entry.file_name().to_str().is_some_and(files::is_temporary);
                    if is_temporary && let Looked::Dead(found) = look(&entry.path()) {
                        let _ = remove_dead(&entry.path(), &found);
                    }
                }
            }
        });
        for n in 0..2_000 {
            let lock = publish(&directory.path().join(format!("{n}.json")), b"x").unwrap();
            assert!(lock.recheck().unwrap());
            lock.withdraw().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Looks in a tight loop beside elections and presences: none fails because of a look. `LOCKHOUSE_TEST_ATTEMPTS` and
/// `LOCKHOUSE_TEST_LOOKS` for more of them.
#[test]
fn looks_never_make_an_attempt_fail() {
    let directory = directory();
    let (lock, presence) = (directory.path().join("fsck.lock"), directory.path().join("fsck.json"));
    let over = AtomicBool::new(false);
    let (attempts, wanted) = (count("LOCKHOUSE_TEST_ATTEMPTS", 2_000), count("LOCKHOUSE_TEST_LOOKS", 10_000) as u64);
    let seen = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert!(!matches!(look(&presence), Looked::Strange(_) | Looked::Unclear(_)));
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut done = 0;
        while done < attempts || seen.load(Ordering::Relaxed) < wanted {
            done += 1;
            let election = held(elect(&lock).unwrap());
            let published = publish(&presence, b"x").unwrap();
            assert!(matches!(look(&presence), Looked::Living(_)));
            published.withdraw().unwrap();
            assert!(matches!(look(&presence), Looked::Absent), "no dead holder is called alive");
            drop(election);
        }
        over.store(true, Ordering::Relaxed);
    });
}

fn count(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |count| count.parse().unwrap())
}
