//! The life of an open store, on a thread of its own: following the owner, and being it.
//!
//! ```text
//! Reader ──(nobody owns the store)──▶ elected ──▶ under a permit, with the file open ──▶ Owner
//!    ▲                                   │ ▲                          │
//!    │                                   │ └──(the fsck has gone)── waiting ◀──(an fsck)──┤
//!    └──────(it failed, or was lost)─────┴────────────────────────────────────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::closing;
use super::core::{Core, Job, Position, Role, Written};
use super::opener::Opener;
use super::owning::{Ending, Owning};
use super::permit::{EnclosingFsck, Permits};
use crate::backend::local::layout::Layout;
use crate::backend::local::trouble::Trouble;
use crate::clock::{Clock, SystemClock, within};
use crate::coordinator::Coordinator;
use crate::error::{Error, Locked, Result};
use crate::lease::GateOptions;
use crate::owner::candidate::Candidate;
use crate::owner::exclusive;
use crate::owner::lock::OwnerLock;
use crate::owner::state::{self, Ownership, Phase};
use crate::owner::takeover::Takeover;

/// How often it is looked how far a starting owner is, and how far one is that was ready.
const LOOK_SOON: Duration = Duration::from_millis(10);
const LOOK_LATER: Duration = Duration::from_secs(1);
/// How long a look at the file may keep an election waiting.
const AT_ONCE: Duration = Duration::from_millis(20);
/// What `status` calls the owner's lease unless it is told.
const LABEL: &str = "store owner";

/// The thread's own half of an open store.
pub(super) struct Life<O: Opener> {
    pub(super) core: Arc<Core<O>>,
    pub(super) jobs: mpsc::UnboundedReceiver<Job>,
    pub(super) takeover: Takeover,
}

/// What following came to.
enum Followed {
    Elected(OwnerLock),
    Close,
}

impl<O: Opener> Life<O> {
    /// Starts the thread.
    pub(super) fn begin(core: Arc<Core<O>>, candidate: Candidate, jobs: mpsc::UnboundedReceiver<Job>) -> Result<()> {
        let life = Life { core, jobs, takeover: Takeover::of(candidate) };
        let run = move || {
            let core = life.core.clone();
            let _end = End(core.clone());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(life.live()),
                Err(error) => {
                    let error = Error::internal(format!("no runtime for an open store: {error}"));
                    core.place(|position| position.refused = Some(Arc::new(error)));
                }
            }
        };
        let started = std::thread::Builder::new().name("lockhouse-store".to_owned()).spawn(run);
        started.map(drop).map_err(|error| Error::internal(format!("no thread for an open store: {error}")))
    }

    async fn live(mut self) {
        let permits = match self.permits().await {
            Ok(permits) => permits,
            Err(error) => return self.refuse(error).await,
        };
        let enclosed = matches!(permits, Permits::Fsck(_));
        loop {
            // Below an fsck nobody else writes: an owner that waits for it to leave need not be waited for.
            let lock = match enclosed {
                true => self.takeover.candidate().elect().ok().flatten(),
                false => match self.follow().await {
                    Followed::Elected(lock) => Some(lock),
                    Followed::Close => break,
                },
            };
            let ending = Owning::new(&mut self, &permits, lock).run().await;
            match ending {
                Ending::Close => break,
                Ending::Over(error) => {
                    tracing::warn!(store = %self.core.name, %error, "no longer the owner of the store");
                    self.takeover.failed();
                    if enclosed {
                        return self.refuse(error).await;
                    }
                    let error = Arc::new(error);
                    self.core.place(|position| {
                        // What no waiting mends, nobody who opens has to wait for.
                        if !position.settled && !error.is_retryable() {
                            position.refused = Some(error.clone());
                        }
                        position.hindrance = Some(error);
                    });
                }
            }
        }
        self.core.place(|position| *position = Position { settled: true, ..Position::unsettled() });
        closing::ingest_the_rest(&self.core, self.takeover.candidate(), &permits).await;
        if let Permits::Gate(gate) = &permits {
            self.end(gate.coordinator()).await;
        }
    }

    /// Makes the store where there is none, and what its writes are allowed by.
    async fn permits(&self) -> Result<Permits> {
        let options = &self.core.options;
        let given = options.coordinator.as_ref();
        let coordinator = exclusive::connected(given, &options.path, &options.file_systems, &self.core.name).await?;
        let path = self.core.path.layout();
        let layout =
            Layout::read(&self.core.path).trouble("reading", &path).map_err(|error| error.at(&self.core.name))?;
        if layout.is_none() {
            exclusive::init(&coordinator).await?;
        }
        if let Some(owner) = &options.under {
            self.end(&coordinator).await;
            return Ok(Permits::Fsck(EnclosingFsck { store: self.core.path.clone(), owner: owner.clone() }));
        }
        let label = options.label.clone().unwrap_or_else(|| LABEL.to_owned());
        Ok(Permits::Gate(coordinator.gate(GateOptions { label: Some(label), ..GateOptions::default() })))
    }

    /// Waits until nothing is held any more. A coordinator that was given has other uses.
    async fn end(&self, coordinator: &Coordinator) {
        if self.core.options.coordinator.is_none() {
            coordinator.shutdown().await;
        }
    }

    /// There is no way to open the store; answers whoever asks until the last handle is gone.
    async fn refuse(&mut self, error: Error) {
        let error = Arc::new(error);
        self.core.place(|position| {
            position.role = Role::Reader;
            (position.refused, position.over) = (Some(error.clone()), Some(error));
        });
        while let Some(job) = self.jobs.recv().await {
            if matches!(job, Job::Close) {
                return;
            }
            turn_away(job);
        }
    }

    /// Follows the owner until this process is elected, or closes the store.
    async fn follow(&mut self) -> Followed {
        let core = self.core.clone();
        core.place(|position| (position.role, position.own) = (Role::Reader, None));
        let mut eligible = may_own_the_file(&core).await.unwrap_or(true);
        loop {
            let mut elected = Box::pin(self.takeover.elected());
            let mut settled = core.position.borrow().settled;
            loop {
                let pause = if settled { LOOK_LATER } else { LOOK_SOON };
                tokio::select! {
                    biased;
                    job = self.jobs.recv() => match job {
                        None | Some(Job::Close) => return Followed::Close,
                        Some(job) => turn_away(job),
                    },
                    lock = &mut elected, if eligible => match lock {
                        Ok(lock) => return Followed::Elected(lock),
                        Err(error) => {
                            tracing::warn!(store = %core.name, %error, "the store's lock cannot be tried");
                            core.place(|position| position.refused = Some(Arc::new(error)));
                            break;
                        }
                    },
                    () = SystemClock.sleep_until(SystemClock.now() + pause) => {
                        let owner = state::look(&core.path);
                        // An owner that is gone has left its catalog in the file.
                        eligible = !is_later(&owner, core.options.opener.catalog_version())
                            && may_own_the_file(&core).await.unwrap_or(eligible);
                        settled |= self::settles(&core, &owner);
                    }
                }
            }
            drop(elected);
            SystemClock.sleep_until(SystemClock.now() + LOOK_LATER).await;
        }
    }
}

/// Whether this build reads what is in the file: one that does not never becomes the owner. `None`: somebody reads, and
/// it cannot be told now.
async fn may_own_the_file<O: Opener>(core: &Core<O>) -> Option<bool> {
    let looking = core.reading.read(|_| Ok(()));
    match within(&SystemClock, AT_ONCE, looking).await {
        Some(Err(Error::CatalogVersion(version))) => {
            let eligible = version.owner <= version.build;
            if !eligible {
                let error = Arc::new(Error::CatalogVersion(version));
                core.place(|position| position.hindrance = Some(error));
            }
            Some(eligible)
        }
        Some(_) => Some(true),
        None => None,
    }
}

/// Tells whoever waits that the thread has ended, however that came.
struct End<O: Opener>(Arc<Core<O>>);

impl<O: Opener> Drop for End<O> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = Arc::new(Error::internal("the thread of an open store ended early; close it and open it anew"));
            self.0.place(|position| {
                *position = Position { refused: Some(error.clone()), over: Some(error), ..Position::unsettled() };
            });
        }
        self.0.ended.send_replace(true);
    }
}

/// Whether whoever opens need not wait any more, now that this one owns the store.
fn settles<O: Opener>(core: &Core<O>, owner: &Ownership) -> bool {
    let Ownership::Named(state) = owner else { return false };
    match state.phase {
        Phase::Ready | Phase::Waiting | Phase::Draining if state.spool.is_some() => {
            core.place(|position| (position.settled, position.refused, position.hindrance) = (true, None, None));
            true
        }
        // It holds the store for something that has no use for batches, nor for readers.
        Phase::Ready if state.spool.is_none() => {
            let owned = Error::locked(&core.name, Locked::Owned { state: owner.clone() });
            core.place(|position| {
                if !position.settled {
                    position.refused = Some(Arc::new(owned));
                }
            });
            false
        }
        _ => false,
    }
}

fn is_later(owner: &Ownership, version: u32) -> bool {
    owner.state().and_then(|state| state.catalog_version).is_some_and(|theirs| theirs > version)
}

/// Answers a job that only an owner can do.
pub(super) fn turn_away(job: Job) {
    match job {
        Job::Write { batch, reply } => drop(reply.send(Written::NotNow(batch))),
        Job::Ingest { reply, .. } => drop(reply.send(Err("this process no longer owns the store".to_owned()))),
        Job::GiveUp { reply, .. } => drop(reply.send(false)),
        Job::Close => {}
    }
}
