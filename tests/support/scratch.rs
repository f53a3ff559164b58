//! Directories that vanish. Test processes end by `exit`, by panic and by SIGKILL, so nothing here
//! relies on a destructor alone: whoever makes a scratch directory sweeps those of dead processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// One directory for this process, named by the pid and held by a file lock, which the kernel frees
/// however the process ends.
struct Home {
    path: PathBuf,
    _held: File,
}

static HOME: OnceLock<Home> = OnceLock::new();
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Where this package's tests put what only they read. Inside the target directory, so that
/// `cargo clean` removes it too.
pub(crate) fn tests_home() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn home() -> &'static Path {
    &HOME
        .get_or_init(|| {
            let all = tests_home().join("scratch");
            fs::create_dir_all(&all).expect("make the scratch directory");
            // One sweeper at a time, and none between another process's mkdir and its lock.
            let gate = File::create(all.join("sweep.lock")).expect("make the sweeper's lock");
            gate.lock().expect("take the sweeper's lock");
            sweep(&all);
            let path = all.join(std::process::id().to_string());
            fs::create_dir_all(&path).expect("make this process's scratch directory");
            let held = File::create(path.join("held")).expect("make the lock file");
            held.lock().expect("lock an own new file");
            Home { path, _held: held }
        })
        .path
}

fn sweep(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let Ok(held) = File::open(entry.path().join("held")) else {
            continue;
        };
        if held.try_lock().is_ok() {
            // Another process may still be using a file in it for a moment (a server that is being
            // killed); the next sweep takes what this one leaves.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A directory of one's own, removed when dropped, or by a later test process.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(what: &str) -> Self {
        let path = home().join(format!("{what}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).expect("make a scratch directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
