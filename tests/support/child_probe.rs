//! The wrapper of the program around a lease that a test controls, for `tests/child`.
//!
//! `child_probe run [--on-lost term|kill|warn] -- CMD…`, with the lease described by variables:
//!
//! - `PROBE_WINDOW_MS`: how long a refresh makes the lease valid; without it there is no deadline.
//! - `PROBE_DEADLINE_FILE`: gets the first deadline, in seconds since boot as in `/proc/uptime`.
//! - `PROBE_REFRESH=1`: the lease is refreshed, by a thread of its own.
//! - `PROBE_LOST_FILE`: the lease is lost when this file appears.
//! - `PROBE_REVALIDATED_FILE`: gets a line for every revalidation.
//! - `PROBE_INHERIT_FILE`: a file whose descriptor the command inherits; `PROBE_FD` tells it the number.
//!
//! What the wrapper notes goes to stderr.

#[expect(dead_code, reason = "what only the program's own commands use")]
#[path = "../../src/cli/child/mod.rs"]
mod child;
#[expect(dead_code, reason = "what only the program's own commands use")]
#[path = "../../src/cli/signals.rs"]
mod signals;
#[path = "../../src/cli/terminal.rs"]
mod terminal;

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tokio::sync::watch;

use child::{Hold, OnLost, Spec};
use signals::Signals;

/// The time since boot.
fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// A lease that exists only here.
struct Lease {
    window: Option<Duration>,
    deadline: Arc<Mutex<Duration>>,
    lost: watch::Receiver<Option<String>>,
    lost_file: Option<PathBuf>,
    revalidated: Option<PathBuf>,
}

impl Lease {
    fn from_env() -> Lease {
        let window = env::var("PROBE_WINDOW_MS").ok().map(|ms| Duration::from_millis(ms.parse().unwrap()));
        let deadline = Arc::new(Mutex::new(now() + window.unwrap_or_default()));
        if let Some(file) = env::var_os("PROBE_DEADLINE_FILE") {
            fs::write(file, format!("{}\n", deadline.lock().unwrap().as_secs_f64())).unwrap();
        }
        let (tell, lost) = watch::channel(None);
        let lost_file = env::var_os("PROBE_LOST_FILE").map(PathBuf::from);
        let refreshing = env::var_os("PROBE_REFRESH").is_some();
        let (shared, awaited) = (Arc::clone(&deadline), lost_file.clone());
        thread::spawn(move || {
            loop {
                if awaited.as_ref().is_some_and(|file| file.exists()) {
                    tell.send_replace(Some("the lease was taken away".to_owned()));
                    return;
                }
                if let (true, Some(window)) = (refreshing, window) {
                    refresh(&shared, window);
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        Lease {
            window,
            deadline,
            lost,
            lost_file,
            revalidated: env::var_os("PROBE_REVALIDATED_FILE").map(PathBuf::from),
        }
    }
}

/// Moves the deadline, unless it has passed.
fn refresh(deadline: &Mutex<Duration>, window: Duration) -> bool {
    let mut deadline = deadline.lock().unwrap();
    let now = now();
    let valid = now < *deadline;
    if valid {
        *deadline = now + window;
    }
    valid
}

impl Hold for Lease {
    fn remaining(&self) -> Option<Duration> {
        self.window.map(|_| self.deadline.lock().unwrap().saturating_sub(now()))
    }

    fn check(&self) -> Result<(), String> {
        // The file itself, as a revalidation asks the store itself.
        if self.lost_file.as_ref().is_some_and(|file| file.exists()) {
            return Err("the lease was taken away".to_owned());
        }
        match self.remaining() {
            Some(Duration::ZERO) => Err("the deadline has passed".to_owned()),
            _ => Ok(()),
        }
    }

    fn lost(&self) -> LocalBoxFuture<'_, String> {
        let mut lost = self.lost.clone();
        async move { lost.wait_for(Option::is_some).await.unwrap().clone().unwrap() }.boxed_local()
    }

    fn revalidate(&self) -> LocalBoxFuture<'_, Result<(), String>> {
        async move {
            if let Some(file) = &self.revalidated {
                writeln!(OpenOptions::new().create(true).append(true).open(file).unwrap(), "asked").unwrap();
            }
            self.check()?;
            if let Some(window) = self.window {
                refresh(&self.deadline, window);
            }
            Ok(())
        }
        .boxed_local()
    }
}

/// The command line as it was typed.
fn spec() -> Spec {
    let mut args = env::args_os().skip(1);
    assert_eq!(args.next().unwrap(), "run");
    let mut on_lost = OnLost::Term;
    loop {
        match args.next().unwrap().to_str() {
            Some("--") => break,
            Some("--on-lost") => {
                on_lost = match args.next().unwrap().to_str() {
                    Some("term") => OnLost::Term,
                    Some("kill") => OnLost::Kill,
                    Some("warn") => OnLost::Warn,
                    other => panic!("unknown way: {other:?}"),
                }
            }
            other => panic!("unknown option: {other:?}"),
        }
    }
    let command = args.next().unwrap();
    let mut env = vec![(OsString::from("LOCKHOUSE_LEASE"), OsString::from("probe"))];
    let mut inherit_fds = Vec::new();
    if let Some(file) = env::var_os("PROBE_INHERIT_FILE") {
        let fd = File::open(file).unwrap().into_raw_fd();
        inherit_fds.push(fd);
        env.push((OsString::from("PROBE_FD"), OsString::from(fd.to_string())));
    }
    Spec { command, args: args.collect(), env, inherit_fds, on_lost }
}

fn main() -> io::Result<ExitCode> {
    let mut signals = Signals::install()?;
    let lease = Lease::from_env();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut log = |note: child::Note| eprintln!("probe: {note}");
    let end = runtime.block_on(child::run(spec(), &mut signals, &lease, &mut log))?;
    eprintln!("probe: {end:?}");
    Ok(ExitCode::from(u8::try_from(end.exit_code()).unwrap()))
}
