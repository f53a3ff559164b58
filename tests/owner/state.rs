//! What a look finds, whatever is in the files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use lockhouse::owner::{Ownership, read_state};
use nix::sys::stat::Mode;
use serde_json::{Value, json};

use crate::Store;
use crate::probe::Probe;

/// Puts something in a file's place.
fn put(store: &Store, suffix: &str, what: &dyn Fn(&std::path::Path)) {
    let path = store.beside(suffix);
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir(&path).unwrap();
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(&path).unwrap();
    }
    what(&path);
}

/// Looks, and sees that it takes no time.
fn look(store: &Store) -> Ownership {
    let begin = Instant::now();
    let seen = read_state(store.path()).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5), "it took {:?}", begin.elapsed());
    seen
}

/// A state that is right in everything but this.
fn state(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut state = json!({
        "instance": "0123456789abcdef", "pid": 1, "host": "h", "build": "b", "phase": "ready",
        "startedAt": "2026-01-02T03:04:05Z", "heartbeatAt": "2099-01-02T03:04:05Z", "backlog": 0, "failed": 0,
    });
    change(&mut state);
    serde_json::to_vec(&state).unwrap()
}

type Shape = (&'static str, Box<dyn Fn(&std::path::Path)>);

/// Everything that may be in the place of P.owner.json and is no word of the owner.
fn shapes() -> Vec<Shape> {
    let content =
        |name, content: Vec<u8>| -> Shape { (name, Box::new(move |path| fs::write(path, &content).unwrap())) };
    vec![
        ("nothing", Box::new(|_| ())),
        content("an empty file", Vec::new()),
        content("null", b"null".to_vec()),
        content("an array", b"[1, 2]".to_vec()),
        content("a number", b"7".to_vec()),
        content("half a state", state(|_| {})[..60].to_vec()),
        content("no text", vec![0xff; 300]),
        content("zeroes", vec![0; 4096]),
        content("a megabyte", vec![b' '; 1024 * 1024]),
        content("deep nesting", [b'['; 60_000].to_vec()),
        content("fields of other types", state(|state| state["pid"] = json!("one"))),
        content("a pid that is none", state(|state| state["pid"] = json!(-1))),
        content("a time that is none", state(|state| state["startedAt"] = json!("yesterday"))),
        content("a state of a later version", state(|state| state["version"] = json!(2))),
        content("another's, whose pid lives", state(|_| {})),
        content("an instance that names files", state(|state| state["instance"] = json!("../../etc/passwd"))),
        ("a directory", Box::new(|path| fs::create_dir(path).unwrap())),
        ("a fifo", Box::new(|path| nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap())),
        ("a socket", Box::new(|path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()))),
        ("a link to nothing", Box::new(|path| symlink("/nonexistent", path).unwrap())),
        ("a link to a device", Box::new(|path| symlink("/dev/zero", path).unwrap())),
        (
            "a file that nobody may read",
            Box::new(|path| {
                fs::write(path, state(|_| {})).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
            }),
        ),
    ]
}

#[test]
fn no_state_makes_an_owner() {
    let store = Store::new();
    fs::create_dir(store.beside(".leases")).unwrap();
    for (shape, make) in shapes() {
        put(&store, ".owner.json", &make);
        assert_eq!(look(&store), Ownership::Nobody, "{shape}");
    }
}

#[test]
fn no_state_but_its_own_speaks_for_an_owner() {
    let store = Store::new();
    let owner = Probe::owner("owner", &store.path());
    let own = fs::read(store.beside(".owner.json")).unwrap();
    // It replaces what is put there.
    owner.stop();
    for (shape, make) in shapes() {
        put(&store, ".owner.json", &make);
        let Ownership::Unnamed(Some(claim)) = look(&store) else { panic!("{shape}: {:?}", look(&store)) };
        assert_eq!(claim.holder.pid, owner.pid().as_raw().unsigned_abs(), "{shape}");
        let text = look(&store).to_string();
        assert!(text.contains("has said no more yet"), "{shape}: {text}");
    }
    put(&store, ".owner.json", &|path| fs::write(path, &own).unwrap());
    assert!(look(&store).state().is_some());
    // A field that a later build adds is no harm.
    let mut later: Value = serde_json::from_slice(&own).unwrap();
    later["mood"] = json!("good");
    later["phase"] = json!("dreaming");
    put(&store, ".owner.json", &|path| fs::write(path, later.to_string()).unwrap());
    assert_eq!(look(&store).state().unwrap().phase.to_string(), "unknown");
}

#[test]
fn a_presence_that_nobody_holds_is_no_owner() {
    let store = Store::new();
    fs::create_dir(store.beside(".leases")).unwrap();
    fs::write(store.beside(".owner.json"), state(|_| {})).unwrap();
    let of_the_dead = json!({"version": 1, "instance": "0123456789abcdef", "holder": {"host": "h", "pid": 1, "user": "u", "program": "p", "label": null, "boot_id": null}});
    for content in [of_the_dead.to_string().as_bytes(), b"", b"null", b"[]", &[0xff; 9]] {
        put(&store, ".leases/owner.json", &|path| fs::write(path, content).unwrap());
        assert_eq!(look(&store), Ownership::Nobody, "{}", String::from_utf8_lossy(content));
    }
    // What no owner can have made cannot be told: it counts as one that has not said who it is.
    put(&store, ".leases/owner.json", &|path| nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap());
    assert_eq!(look(&store), Ownership::Unnamed(None));
    assert_eq!(look(&store).to_string(), "an owner that has not said who it is");
    put(&store, ".leases/owner.json", &|path| symlink("/dev/zero", path).unwrap());
    assert_eq!(look(&store), Ownership::Unnamed(None));
}

#[test]
fn a_dead_owners_state_is_not_believed() {
    let store = Store::new();
    let mut owner = Probe::owner("owner", &store.path());
    owner.kill();
    assert!(store.beside(".owner.json").exists() && store.beside(".leases/owner.json").exists());
    assert_eq!(look(&store), Ownership::Nobody);
    // Nor is it taken for the next one's.
    let next = Probe::owner("owner", &store.path());
    assert_eq!(look(&store).state().unwrap().pid, next.pid().as_raw().unsigned_abs());
}

#[test]
fn looking_disturbs_no_election() {
    let store = Store::new();
    let path = store.path();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    read_state(&path).unwrap();
                }
            });
        }
        let candidate = lockhouse::owner::Candidate::new(&path, "b").unwrap();
        for round in 0..200 {
            let owner = candidate.elect().unwrap();
            assert!(owner.is_some(), "a look was in the way in round {round}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
