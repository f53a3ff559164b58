//! The process that the tests start: an owner that does what a program may do with it.

use std::future::IntoFuture;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockhouse::owner::{self, Candidate, ControlServer, Exclusive, OwnerLock, Phase, StatusOnly, serve_control};
use lockhouse::{Coordinator, ErrorKind, GateOptions};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use crate::support::probe::own_binary;
pub(crate) use crate::support::probe::{Probe, say};

const ROLE: &str = "LOCKHOUSE_OWNER_PROBE";
const STORE: &str = "LOCKHOUSE_OWNER_PROBE_STORE";

impl Probe {
    /// Starts one on a store. Roles: `owner`, `serving` (an owner with a control socket), `exclusive`, `race N`.
    pub(crate) fn start(role: &str, store: &Path) -> Probe {
        Probe::start_by(own_binary(), role, store)
    }

    /// The same, by a command that the probe's own command line is added to.
    pub(crate) fn start_by(mut command: Command, role: &str, store: &Path) -> Probe {
        command.env(ROLE, role).env(STORE, store);
        Probe::by(command)
    }

    /// Starts an owner and waits until it is one.
    pub(crate) fn owner(role: &str, store: &Path) -> Probe {
        let probe = Probe::start(role, store);
        assert_eq!(probe.answer(), "owner");
        probe
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.id().cast_signed())
    }
}

/// Not a test by itself: what a started probe does.
#[test]
fn probe() {
    let (Ok(role), Some(store)) = (std::env::var(ROLE), std::env::var_os(STORE)) else { return };
    let store = PathBuf::from(store);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let held = match role.split_once(' ') {
        Some(("race", rounds)) => return crate::racing::race(&store, rounds.parse().unwrap()),
        _ if role == "exclusive" => {
            let held = runtime.block_on(async { owner::exclusive(&store, "probe").await });
            held.map(|held| Held { guard: Guard::Exclusive(held), server: None })
        }
        _ => Candidate::new(&store, "probe").and_then(|candidate| candidate.elect()).map(|elected| {
            let Some(lock) = elected else {
                say("taken");
                std::process::exit(0);
            };
            let server = (role == "serving").then(|| serve_control(&lock, StatusOnly::of(&lock)).unwrap());
            lock.update(|state| state.phase = Phase::Ready);
            Held { guard: Guard::Lock(lock), server }
        }),
    };
    let mut held = match held {
        Ok(held) => Some(held),
        Err(error) => {
            say(error);
            std::process::exit(0);
        }
    };
    say("owner");
    for order in std::io::stdin().lines().map_while(Result::ok) {
        match order.as_str() {
            // Waits for nobody, as a killed one.
            "leave" => std::process::exit(0),
            "release" => {
                let Held { guard, server } = held.take().unwrap();
                drop(server);
                match guard {
                    Guard::Lock(lock) => lock.release(),
                    Guard::Exclusive(held) => runtime.block_on(held.release()).unwrap(),
                }
                say("released");
            }
            _ => held = obey(&order, &store, held.unwrap()),
        }
    }
}

struct Held {
    guard: Guard,
    server: Option<ControlServer>,
}

enum Guard {
    Lock(OwnerLock),
    Exclusive(Exclusive),
}

impl Guard {
    fn check(&self) -> lockhouse::Result<()> {
        match self {
            Guard::Lock(lock) => lock.check(),
            Guard::Exclusive(held) => held.check(),
        }
    }
}

fn obey(order: &str, store: &Path, held: Held) -> Option<Held> {
    let lock_file = {
        let mut name = store.as_os_str().to_owned();
        name.push(".lock");
        PathBuf::from(name)
    };
    match order {
        "check" => match held.guard.check() {
            Ok(()) => say("stands"),
            Err(error) => say(error),
        },
        "lost" => {
            let error = match &held.guard {
                Guard::Lock(lock) => futures::executor::block_on(lock.lost()),
                Guard::Exclusive(held) => futures::executor::block_on(held.lost()),
            };
            say(error);
        }
        // As a plug-in might.
        "touch" => {
            drop(std::fs::File::open(&lock_file).unwrap());
            drop(std::fs::OpenOptions::new().write(true).open(&lock_file).unwrap());
            say(format!("{:?}", owner::read_state(store).unwrap().state().is_some()));
        }
        "spawn" => say(Command::new("sleep").arg("300").stdout(Stdio::null()).spawn().unwrap().id()),
        "fork and exec" => match forked() {
            ForkResult::Parent { child } => say(child),
            ForkResult::Child => {
                let error = Command::new("sleep").arg("300").stdout(Stdio::null()).exec();
                panic!("{error}");
            }
        },
        "fork and drop" => match forked() {
            ForkResult::Parent { child } => {
                let ended = waitpid(child, None).unwrap();
                say(format!("{ended:?} {:?}", held.guard.check().is_ok()));
            }
            ForkResult::Child => {
                let stands = held.guard.check().is_ok();
                drop(held);
                leave(i32::from(stands));
            }
        },
        "fork and let go" => {
            let coordinator = futures::executor::block_on(Coordinator::connect(store.to_str().unwrap())).unwrap();
            let lease = futures::executor::block_on(coordinator.acquire_writer().into_future()).unwrap();
            let gate = coordinator.gate(GateOptions::default());
            match forked() {
                ForkResult::Parent { child } => {
                    let ended = waitpid(child, None).unwrap();
                    futures::executor::block_on(lease.release()).unwrap();
                    let still = futures::executor::block_on(coordinator.status()).unwrap().writers.len();
                    say(format!("{ended:?} {still}"));
                }
                ForkResult::Child => {
                    // One that waits for what never comes is ended by its alarm.
                    nix::unistd::alarm::set(10);
                    let begin = Instant::now();
                    let refused = [
                        futures::executor::block_on(coordinator.status()).map(drop),
                        futures::executor::block_on(lease.refresh_heartbeat(true)),
                        futures::executor::block_on(gate.enter()).map(drop),
                    ];
                    futures::executor::block_on(coordinator.shutdown());
                    drop((gate, lease, coordinator, held));
                    let invalid = refused
                        .iter()
                        .all(|refused| refused.as_ref().is_err_and(|error| error.kind() == ErrorKind::Invalid));
                    leave(i32::from(!invalid) + 2 * i32::from(begin.elapsed() > Duration::from_millis(500)));
                }
            }
        }
        "fork and stay" => match forked() {
            ForkResult::Parent { child } => say(child),
            ForkResult::Child => {
                drop(held);
                let _ = Command::new("sleep").arg("300").stdin(Stdio::null()).stdout(Stdio::null()).status();
                leave(0);
            }
        },
        other => panic!("unknown order: {other}"),
    }
    Some(held)
}

#[expect(unsafe_code, reason = "what is tested is a fork")]
fn forked() -> ForkResult {
    // SAFETY: the children here only make system calls, drop a guard, or execute something; the C library repairs its
    // allocator in the child.
    unsafe { fork() }.unwrap()
}

#[expect(unsafe_code, reason = "a forked child must not run the harness's exit handlers")]
fn leave(code: i32) -> ! {
    // SAFETY: ends the process without running anything.
    unsafe { nix::libc::_exit(code) }
}
