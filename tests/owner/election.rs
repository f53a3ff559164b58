//! Who becomes the owner, and how long it is one.

use std::fs;
use std::future::IntoFuture;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use lockhouse::owner::{Candidate, Ownership, Phase, exclusive, left_state, read_state};
use lockhouse::{Coordinator, Error, ErrorKind, Locked};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::probe::Probe;
use crate::support::overrun::{rests, stop_and_overrun};
use crate::support::poll::{eventually, eventually_blocking};
use crate::{PATIENCE, Store, is_lost};

fn candidate(store: &Store) -> Candidate {
    Candidate::new(store.path(), "b1").unwrap()
}

#[test]
fn one_is_elected_says_who_it_is_and_leaves_nothing_but_the_lock() {
    let store = Store::new();
    let (one, two) = (candidate(&store), candidate(&store));
    assert_eq!(read_state(store.path()).unwrap(), Ownership::Nobody);
    let owner = one.elect().unwrap().unwrap();
    assert!(two.elect().unwrap().is_none());
    assert!(one.elect().unwrap().is_none(), "by another lock of the same process neither");
    let seen = read_state(store.path()).unwrap();
    let state = seen.state().unwrap();
    assert_eq!((state.pid, state.build.as_str(), state.phase), (std::process::id(), "b1", Phase::Starting));
    assert_eq!(state.instance, one.instance());
    assert!(state.instance.chars().all(|c| c.is_ascii_alphanumeric()) && state.instance.len() <= 64);
    owner.update(|state| state.phase = Phase::Ready);
    assert_eq!(read_state(store.path()).unwrap().state().unwrap().phase, Phase::Ready);
    for file in [".lock", ".owner.json", ".leases/owner.json"] {
        assert_eq!(fs::metadata(store.beside(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
    owner.check().unwrap();
    owner.release();
    assert_eq!(read_state(store.path()).unwrap(), Ownership::Nobody);
    assert!(!store.beside(".owner.json").exists() && !store.beside(".leases/owner.json").exists());
    assert!(store.beside(".lock").exists(), "it is never removed");
    two.elect().unwrap().unwrap().release();
}

#[test]
fn opening_and_closing_the_lock_file_frees_nothing() {
    let store = Store::new();
    let mut owner = Probe::owner("owner", &store.path());
    assert_eq!(owner.ask("touch"), "true");
    assert_eq!(owner.ask("check"), "stands");
    assert!(candidate(&store).elect().unwrap().is_none());
}

#[test]
fn a_child_of_the_library_keeps_nothing() {
    for how in ["spawn", "fork and exec"] {
        let store = Store::new();
        let mut owner = Probe::owner("exclusive", &store.path());
        let child = Pid::from_raw(owner.ask(how).parse().unwrap());
        eventually_blocking(PATIENCE, "the execution", || {
            let command = fs::read_to_string(format!("/proc/{child}/comm")).unwrap();
            if command.trim() == "sleep" { Ok(()) } else { Err(command) }
        });
        for entry in fs::read_dir(format!("/proc/{child}/fd")).unwrap() {
            let target = fs::read_link(entry.unwrap().path()).unwrap();
            assert!(!target.starts_with(store.directory()), "{how}: it has {}", target.display());
        }
        owner.kill();
        let elected = candidate(&store).elect().unwrap();
        kill(child, Signal::SIGKILL).unwrap();
        elected.unwrap_or_else(|| panic!("{how}: the child kept the lock")).release();
    }
}

#[test]
fn a_forked_child_that_drops_the_guard_only_closes() {
    for role in ["owner", "serving", "exclusive"] {
        let store = Store::new();
        let mut owner = Probe::owner(role, &store.path());
        let answer = owner.ask("fork and drop");
        assert!(answer.contains(", 0) true"), "{role}: the check fails in the child and not in the parent: {answer}");
        assert_eq!(owner.ask("check"), "stands");
        assert!(candidate(&store).elect().unwrap().is_none(), "{role}");
        let seen = read_state(store.path()).unwrap();
        assert_eq!(seen.state().unwrap().pid, owner.pid().as_raw().unsigned_abs(), "{role}");
    }
}

/// The supervisor's thread is not in the child: it is neither asked nor waited for.
#[test]
fn a_forked_child_lets_go_of_a_coordinator_and_its_leases_at_once() {
    let store = Store::new();
    let mut owner = Probe::owner("exclusive", &store.path());
    // The exclusive holder's own lease is left of the two; the other went when the parent dropped it, not before.
    let answer = owner.ask("fork and let go");
    assert!(answer.ends_with(", 0) 1"), "1: something was not refused, 2: it waited: {answer}");
    assert_eq!(owner.ask("check"), "stands");
}

#[test]
fn a_forked_child_that_dropped_the_guard_keeps_nothing_when_the_owner_dies() {
    let store = Store::new();
    let mut owner = Probe::owner("owner", &store.path());
    let child = Pid::from_raw(owner.ask("fork and stay").parse().unwrap());
    eventually_blocking(PATIENCE, "the child to close", || {
        let held = fs::read_dir(format!("/proc/{child}/fd"))
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
            .filter(|target| target.starts_with(store.directory()))
            .count();
        if held == 0 { Ok(()) } else { Err(held) }
    });
    owner.kill();
    let elected = candidate(&store).elect().unwrap();
    kill(child, Signal::SIGKILL).unwrap();
    elected.expect("the lock is free").release();
}

/// What a user can do to the files of a living owner.
fn meddle(store: &Store, how: &str) {
    let (lock, leases) = (store.beside(".lock"), store.beside(".leases"));
    match how {
        "P.lock removed" => fs::remove_file(lock).unwrap(),
        "P.lock replaced" => {
            fs::write(store.beside(".new"), "").unwrap();
            fs::rename(store.beside(".new"), lock).unwrap();
        }
        "P.lock linked elsewhere" => {
            fs::rename(&lock, store.beside(".aside")).unwrap();
            symlink(store.beside(".aside"), lock).unwrap();
        }
        "P.leases removed" => fs::remove_dir_all(leases).unwrap(),
        "P.leases moved" => fs::rename(leases, store.beside(".aside")).unwrap(),
        "P.leases replaced" => {
            fs::rename(&leases, store.beside(".aside")).unwrap();
            fs::create_dir(leases).unwrap();
        }
        "the presence removed" => fs::remove_file(leases.join("owner.json")).unwrap(),
        "the presence replaced" => {
            fs::write(leases.join("new"), "{}").unwrap();
            fs::rename(leases.join("new"), leases.join("owner.json")).unwrap();
        }
        "the directory moved" => {
            let elsewhere = store.directory().with_extension("elsewhere");
            fs::rename(store.directory(), elsewhere).unwrap();
        }
        other => panic!("{other}"),
    }
}

const MEDDLING: [&str; 8] = [
    "P.lock removed",
    "P.lock replaced",
    "P.lock linked elsewhere",
    "P.leases removed",
    "P.leases moved",
    "P.leases replaced",
    "the presence removed",
    "the presence replaced",
];

#[tokio::test]
async fn an_owner_whose_files_are_meddled_with_is_told_at_once() {
    for how in MEDDLING {
        let store = Store::new();
        let owner = candidate(&store).elect().unwrap().unwrap();
        // The thread listens by then.
        eventually(PATIENCE, "the thread to watch", || async {
            let watched = fs::read_dir("/proc/self/fd").unwrap().flatten();
            let watched = watched.filter_map(|entry| fs::read_link(entry.path()).ok());
            if watched.into_iter().any(|target| target.as_os_str() == "anon_inode:inotify") { Ok(()) } else { Err(()) }
        })
        .await;
        meddle(&store, how);
        let begin = Instant::now();
        let error = tokio::time::timeout(PATIENCE, owner.lost()).await.unwrap();
        assert!(begin.elapsed() < Duration::from_secs(4), "{how}: told after {:?}", begin.elapsed());
        assert!(is_lost(&error) && error.to_string().contains("removed or replaced"), "{how}: {error}");
        // For good, even if somebody puts all of it back.
        assert!(is_lost(&owner.check().unwrap_err()), "{how}");
    }
}

/// The thread that watches is stopped, and what it would be told of is dropped. It takes nothing for a loss that is
/// none, notices what is one, and rests.
#[test]
fn an_owner_that_missed_events_loses_nothing_and_notices_everything() {
    let store = Store::new();
    let mut owner = Probe::owner("owner", &store.path());
    let missing_events = |owner: &Probe, meanwhile: &dyn Fn()| {
        stop_and_overrun(owner, &[store.directory(), &store.beside(".leases")]);
        meanwhile();
        owner.go_on();
    };
    missing_events(&owner, &|| {});
    rests(&owner);
    assert_eq!(owner.ask("check"), "stands");
    missing_events(&owner, &|| meddle(&store, "P.lock replaced"));
    let lost = owner.ask("lost");
    assert!(lost.contains("removed or replaced"), "{lost}");
    rests(&owner);
}

#[test]
fn a_check_notices_by_itself() {
    for how in MEDDLING {
        let store = Store::new();
        let mut owner = Probe::owner("owner", &store.path());
        meddle(&store, how);
        let answer = owner.ask("check");
        assert!(answer.contains("no longer owned") && answer.contains("stop writing"), "{how}: {answer}");
    }
}

#[tokio::test]
async fn a_directory_that_is_moved_away_takes_the_store_with_it() {
    let store = Store::new();
    let owner = candidate(&store).elect().unwrap().unwrap();
    meddle(&store, "the directory moved");
    assert!(is_lost(&tokio::time::timeout(PATIENCE, owner.lost()).await.unwrap()));
    drop(owner);
    fs::remove_dir_all(store.directory().with_extension("elsewhere")).unwrap();
}

#[test]
fn a_displaced_owner_takes_nothing_of_the_next_one_away() {
    let store = Store::new();
    let displaced = candidate(&store).elect().unwrap().unwrap();
    fs::remove_file(store.beside(".lock")).unwrap();
    let next = candidate(&store).elect().unwrap().unwrap();
    next.update(|state| state.phase = Phase::Ready);
    displaced.update(|state| state.last_error = Some("mine".to_owned()));
    assert!(is_lost(&displaced.check().unwrap_err()));
    drop(displaced);
    next.check().unwrap();
    let seen = read_state(store.path()).unwrap();
    let state = seen.state().unwrap();
    assert_eq!((state.instance.as_str(), state.last_error.as_deref()), (next.instance().as_str(), None));
}

#[test]
fn what_is_no_lock_file_is_refused_and_named() {
    let put = |what: &str| {
        let store = Store::new();
        let lock = store.beside(".lock");
        match what {
            "a link" => symlink("/nonexistent", lock).unwrap(),
            "a directory" => fs::create_dir(lock).unwrap(),
            "a fifo" => nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            _ => {
                fs::write(&lock, "").unwrap();
                fs::hard_link(&lock, store.beside(".other")).unwrap();
            }
        }
        let error = candidate(&store).elect().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Internal), "{what}: {error:?}");
        assert!(error.to_string().contains("p.lock"), "{what}: {error}");
        assert_eq!(read_state(store.path()).unwrap(), Ownership::Nobody);
    };
    for what in ["a link", "a directory", "a fifo", "two links"] {
        put(what);
    }
}

#[test]
fn a_state_that_cannot_be_written_stops_nobody() {
    let store = Store::new();
    fs::create_dir(store.beside(".owner.json")).unwrap();
    let owner = candidate(&store).elect().unwrap().unwrap();
    owner.check().unwrap();
    let Ownership::Unnamed(Some(claim)) = read_state(store.path()).unwrap() else { panic!("it said who it is") };
    assert_eq!((claim.instance, claim.holder.pid), (owner.instance(), std::process::id()));
    fs::remove_dir(store.beside(".owner.json")).unwrap();
    owner.update(|_| {});
    assert!(read_state(store.path()).unwrap().state().is_some());
}

#[tokio::test]
async fn the_state_is_refreshed() {
    let store = Store::new();
    let owner = candidate(&store).elect().unwrap().unwrap();
    let first = read_state(store.path()).unwrap().state().unwrap().heartbeat_at;
    let second = eventually(PATIENCE, "another heartbeat", || async {
        let beat = read_state(store.path()).unwrap().state().unwrap().heartbeat_at;
        if beat > first { Ok(beat) } else { Err(beat) }
    })
    .await;
    let pause = second.duration_since(first).as_secs_f64();
    assert!((4.5..8.0).contains(&pause), "{pause}");
    drop(owner);
}

#[tokio::test]
async fn an_exclusive_holder_has_both_and_gives_both_back() {
    let store = Store::new();
    let held = exclusive(store.path(), "b7").await.unwrap();
    held.check().unwrap();
    let looker = Coordinator::connect(store.path().to_str().unwrap()).await.unwrap();
    assert_eq!(looker.status().await.unwrap().writers.len(), 1);
    assert_eq!(held.state().phase, Phase::Ready);
    let refused = exclusive(store.path(), "b8").await.unwrap_err();
    assert!(refused.is_retryable() && refused.kind() == ErrorKind::StoreLocked);
    let text = refused.to_string();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let all = [format!("pid {} on {}", std::process::id(), host.trim()), "build b7".to_owned(), held.state().instance];
    for part in &all {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.ends_with("`lockhouse owner status`"), "{text}");
    let Error::StoreLocked(locked) = &refused else { panic!("{refused}") };
    assert!(matches!(&locked.cause, Locked::Owned { state: Ownership::Named(state) } if state.build == "b7"));
    held.release().await.unwrap();
    assert!(looker.status().await.unwrap().writers.is_empty());
    let held = exclusive(store.path(), "b8").await.unwrap();
    drop(held);
    exclusive(store.path(), "b9").wait(PATIENCE).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn one_that_waits_follows_as_soon_as_the_other_leaves() {
    let store = Store::new();
    let held = exclusive(store.path(), "b1").await.unwrap();
    let waiting = tokio::spawn(exclusive(store.path(), "b2").wait(PATIENCE).into_future());
    let refused = exclusive(store.path(), "b3").wait(Duration::from_millis(150)).await.unwrap_err();
    assert!(refused.to_string().contains("build b1"), "{refused}");
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_fsck_and_an_exclusive_holder_take_turns() {
    let store = Store::new();
    let coordinator = Coordinator::connect(store.path().to_str().unwrap()).await.unwrap();
    coordinator.init().await.unwrap();
    let fsck = coordinator.acquire_fsck().await.unwrap();
    let refused = exclusive(store.path(), "b1").await.unwrap_err();
    let Error::StoreLocked(locked) = &refused else { panic!("{refused}") };
    assert!(matches!(locked.cause, Locked::FsckHeld { .. }));
    assert_eq!(read_state(store.path()).unwrap(), Ownership::Nobody, "both are given back");
    let waiting = tokio::spawn(exclusive(store.path(), "b2").wait(PATIENCE).into_future());
    eventually(PATIENCE, "the owner to wait", || async {
        let seen = read_state(store.path()).unwrap();
        match seen.state() {
            Some(state) if state.phase == Phase::Waiting => Ok(()),
            _ => Err(seen),
        }
    })
    .await;
    fsck.release().await.unwrap();
    let held = waiting.await.unwrap().unwrap();
    let refused = coordinator.acquire_fsck().drain_budget(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DrainTimeout);
    held.release().await.unwrap();
}

#[test]
fn what_went_wrong_stays_to_be_read_until_somebody_owns_the_store() {
    let store = Store::new();
    let candidate = candidate(&store);
    let owner = candidate.elect().unwrap().expect("nobody owns it");
    owner.update(|state| state.last_error = Some("no room".to_owned()));
    assert_eq!(left_state(store.path()).unwrap(), None, "it is an owner's word still");
    owner.release();
    assert_eq!(read_state(store.path()).unwrap(), Ownership::Nobody);
    let left = left_state(store.path()).unwrap().expect("what it said last");
    assert_eq!(left.last_error.as_deref(), Some("no room"));
    let owner = candidate.elect().unwrap().expect("nobody owns it");
    assert_eq!(left_state(store.path()).unwrap(), None);
    owner.release();
    assert_eq!(left_state(store.path()).unwrap(), None, "it went in order");
}
