//! The processes of the demo: this same program, as anybody would call it from a shell.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockhouse::LeaseInfo;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::super::args::Global;
use super::super::console::Console;
use super::super::exit::Failure;
use super::work::{nap, now};

/// How long a turn of each writer takes. The first one is slow, so that a drain has something to wait for.
const WRITERS: [Duration; 4] =
    [Duration::from_millis(1400), Duration::from_millis(500), Duration::from_millis(350), Duration::from_millis(250)];
/// Between two turns of a writer.
const REST: Duration = Duration::from_millis(150);
/// How long the writers have the store for themselves, before and after.
const UNDISTURBED: Duration = Duration::from_millis(2000);
/// How long each fsck works.
const EXCLUSIVE: Duration = Duration::from_millis(1200);
/// The second fsck asks while the first one drains.
const NEXT_FSCK: Duration = Duration::from_millis(300);
/// No part of the story may take longer.
const PATIENCE: &str = "20s";

/// What a process of the story is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Writer,
    Fsck,
}

/// One call of the program, as the story's teller saw it.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) asked: Duration,
    pub(super) ended: Duration,
    /// How it failed, if it did.
    pub(super) failed: Option<String>,
}

/// Everybody who takes part.
pub(super) struct Cast {
    program: PathBuf,
    store: OsString,
    collection: String,
    interval: Option<Duration>,
    multiplier: Option<u32>,
    notes: PathBuf,
    /// What the labels of this demo's leases begin with.
    mark: String,
    over: AtomicBool,
    /// The processes that were started and not reaped yet.
    running: Mutex<BTreeSet<i32>>,
    parts: Mutex<Vec<Part>>,
}

impl Cast {
    pub(super) fn new(global: &Global, store: &OsStr, notes: &Path) -> Result<Cast, Failure> {
        let program =
            std::env::current_exe().map_err(|error| Failure::system("the program does not find itself", error))?;
        Ok(Cast {
            program,
            store: store.to_owned(),
            collection: global.collection.clone().unwrap_or_default(),
            interval: global.refresh_interval,
            multiplier: global.stale_multiplier,
            notes: notes.to_owned(),
            mark: format!("demo {}: ", std::process::id()),
            over: AtomicBool::new(false),
            running: Mutex::new(BTreeSet::new()),
            parts: Mutex::new(Vec::new()),
        })
    }

    /// Plays the story to its end, and tells what everybody did. Blocks.
    pub(super) fn play(self: &Arc<Cast>, narrator: &Console) -> Vec<Part> {
        let say = |text: &str| narrator.say("demo", text);
        say(&format!("{} writers come and go, each turn under a lease of its own", WRITERS.len()));
        let writers: Vec<_> = WRITERS
            .iter()
            .enumerate()
            .map(|(n, length)| {
                let (cast, length) = (Arc::clone(self), *length);
                std::thread::spawn(move || cast.write(&format!("writer-{}", n + 1), length))
            })
            .collect();
        self.pause(UNDISTURBED);
        say("an fsck asks for the store: nobody new gets in, and it waits for those inside");
        let first = self.begin_fsck("fsck-1");
        self.pause(NEXT_FSCK);
        say("a second fsck asks, and waits for the first");
        let second = self.begin_fsck("fsck-2");
        let _ = first.join();
        let _ = second.join();
        say("both are done, and the writers go on");
        self.pause(UNDISTURBED);
        self.over.store(true, Ordering::Relaxed);
        for writer in writers {
            let _ = writer.join();
        }
        std::mem::take(&mut *lock(&self.parts))
    }

    /// Ends everybody. Their leases go with them.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
        for pid in lock(&self.running).iter() {
            // Not reaped yet, so the number is still theirs.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGTERM);
        }
    }

    /// Whether a lease is one of this demo's.
    pub(super) fn is_own(&self, lease: &LeaseInfo) -> bool {
        let label = lease.holder.as_ref().and_then(|holder| holder.label.as_ref());
        label.is_some_and(|label| label.starts_with(&self.mark))
    }

    fn write(&self, name: &str, length: Duration) {
        while !self.is_over() {
            self.call(Role::Writer, name, length);
            self.pause(REST);
        }
    }

    fn begin_fsck(self: &Arc<Cast>, name: &'static str) -> std::thread::JoinHandle<()> {
        let cast = Arc::clone(self);
        std::thread::spawn(move || {
            if !cast.is_over() {
                cast.call(Role::Fsck, name, EXCLUSIVE);
            }
        })
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// A pause of the story, which its end cuts short.
    fn pause(&self, length: Duration) {
        let end = now() + length;
        while now() < end && !self.is_over() {
            nap(Duration::from_millis(10).min(end.saturating_sub(now())));
        }
    }

    /// One call of the program, to its end.
    fn call(&self, role: Role, name: &str, length: Duration) {
        let asked = now();
        let failed = match self.run(role, name, length) {
            Ok(failed) => failed,
            Err(error) => Some(error.to_string()),
        };
        lock(&self.parts).push(Part { name: name.to_owned(), role, asked, ended: now(), failed });
    }

    fn run(&self, role: Role, name: &str, length: Duration) -> io::Result<Option<String>> {
        let mut command = Command::new(&self.program);
        command.args(match role {
            Role::Writer => ["run", "--wait", PATIENCE].as_slice(),
            Role::Fsck => &["fsck", "--reason", "demo", "--wait", PATIENCE, "--drain-budget", PATIENCE],
        });
        command
            .arg("--label")
            .arg(format!("{}{name}", self.mark))
            .arg("--")
            .arg(&self.program)
            .arg("demo-work")
            .arg(&self.notes)
            .args([name, &format!("{}ms", length.as_millis())])
            // By the environment, for a password must not show on a command line.
            .env("LOCKHOUSE_STORE", &self.store)
            .env("LOCKHOUSE_COLLECTION", &self.collection)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let interval = self.interval.map(|interval| format!("{}ms", interval.as_millis()));
        let multiplier = self.multiplier.map(|multiplier| multiplier.to_string());
        for (variable, value) in [("LOCKHOUSE_REFRESH_INTERVAL", interval), ("LOCKHOUSE_STALE_MULTIPLIER", multiplier)]
        {
            match value {
                Some(value) => command.env(variable, OsString::from(value)),
                None => command.env_remove(variable),
            };
        }
        let mut child = {
            let mut running = lock(&self.running);
            // Under the lock, so that nobody is started behind the back of `stop`.
            if self.is_over() {
                return Ok(None);
            }
            let child = command.spawn()?;
            running.insert(child.id().cast_signed());
            child
        };
        let mut said = Vec::new();
        if let Some(stderr) = &mut child.stderr {
            // It ends when the process does.
            let _ = stderr.read_to_end(&mut said);
        }
        let status = {
            let mut running = lock(&self.running);
            running.remove(&child.id().cast_signed());
            child.wait()?
        };
        if status.success() {
            return Ok(None);
        }
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().last().unwrap_or_default();
        Ok(Some(format!("{status}: {last}")))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
