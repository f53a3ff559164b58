//! Being the owner: from the election to the release, through the periods in which an fsck has the store.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::core::{Core, Job, Role};
use super::life::{Life, turn_away};
use super::opener::Opener;
use super::period::{Period, PeriodEnd};
use super::permit::{Permit, Permits};
use super::waiters::Waiters;
use crate::backend::local::layout::Layout;
use crate::backend::local::trouble::Trouble;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::owner::control::{ControlHandler, ControlServer, Ingested, StatusOnly, serve_control};
use crate::owner::ingest::Ingestor;
use crate::owner::lock::OwnerLock;
use crate::owner::state::{Phase, SpoolState, State};
use crate::records::Target;
use crate::spool::MANIFEST_VERSION;

/// How long a permit may take before it is said that an fsck is in the way.
const AT_ONCE: Duration = Duration::from_millis(50);

/// How being the owner ended.
pub(super) enum Ending {
    /// The store is closed.
    Close,
    /// The promotion failed, or the ownership or the lease was lost.
    Over(Error),
}

/// An elected owner. Below an enclosing fsck it may be one without the lock, which a paused owner has.
pub(super) struct Owning<'a, O: Opener> {
    pub(super) life: &'a mut Life<O>,
    permits: &'a Permits,
    pub(super) lock: Option<OwnerLock>,
    server: Option<ControlServer>,
    pub(super) ingestor: Ingestor,
    pub(super) waiters: Waiters,
}

impl<'a, O: Opener> Owning<'a, O> {
    pub(super) fn new(life: &'a mut Life<O>, permits: &'a Permits, lock: Option<OwnerLock>) -> Owning<'a, O> {
        let options = &life.core.options;
        let ingestor = Ingestor::new(&life.core.spool).formats(options.formats.clone()).on_poison(options.on_poison);
        Owning { life, permits, lock, server: None, ingestor, waiters: Waiters::default() }
    }

    pub(super) async fn run(mut self) -> Ending {
        self.announce();
        crate::crash::point("store-starting");
        let ending = loop {
            let permit = match self.permit().await {
                Ok(permit) => permit,
                Err(ending) => break ending,
            };
            match self.period(permit).await {
                PeriodEnd::FsckComes => self.phase(Phase::Waiting),
                PeriodEnd::Close => break Ending::Close,
                PeriodEnd::Over(error) => break Ending::Over(error),
            }
        };
        if let Ending::Over(error) = &ending {
            let why = error.to_string();
            self.update(|state| state.last_error = Some(why));
        }
        self.life.core.place(|position| (position.role, position.own) = (Role::Reader, None));
        // The socket before the lock: the next owner's must not be taken for this one's.
        drop(self.server.take());
        drop(self.lock.take());
        crate::crash::point("store-released");
        ending
    }

    /// Says who owns the store, and answers from now on.
    fn announce(&mut self) {
        let core = &self.life.core;
        core.place(|position| position.refused = None);
        // Until this attempt comes out better.
        let before = core.position.borrow().hindrance.as_ref().map(|hindrance| hindrance.to_string());
        let options = &core.options;
        let (file, version) = (options.opener.file(&core.path.path()), options.opener.catalog_version());
        let formats = options.formats.names();
        let spool = SpoolState {
            dir: core.spool.path().to_string_lossy().into_owned(),
            manifest_format: MANIFEST_VERSION,
            formats,
        };
        self.update(|state| {
            state.store = Some(file.to_string_lossy().into_owned());
            state.catalog_version = Some(version);
            state.spool = Some(spool);
            state.last_error = before;
        });
        let Some(lock) = &self.lock else { return };
        let handler = Handler { state: StatusOnly::of(lock), jobs: self.life.core.jobs.clone() };
        match serve_control(lock, handler) {
            Ok(server) => self.server = Some(server),
            // Nothing depends on it: who hands batches over waits for the next look at the spool.
            Err(error) => tracing::warn!(%error, "no control socket"),
        }
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut State)) {
        if let Some(lock) = &self.lock {
            lock.update(change);
        }
    }

    pub(super) fn phase(&self, phase: Phase) {
        self.update(|state| state.phase = phase);
        self.life.core.place(|position| {
            position.role = if phase == Phase::Ready { Role::Owner } else { Role::Reader };
            position.own = Some(phase);
            if matches!(phase, Phase::Ready | Phase::Waiting) {
                (position.settled, position.hindrance) = (true, None);
            }
        });
    }

    /// What this owner may write by. Waits while an fsck has the store.
    async fn permit(&mut self) -> Result<Permit, Ending> {
        let permits = self.permits;
        let mut entering = Box::pin(permits.enter());
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                entered = &mut entering => return entered.map_err(Ending::Over),
                error = lost(self.lock.as_ref()) => return Err(Ending::Over(error)),
                job = self.life.jobs.recv() => match job {
                    None | Some(Job::Close) => return Err(Ending::Close),
                    Some(Job::Ingest { ids, wait: true, reply }) => self.waiters.add(ids, reply),
                    Some(Job::Ingest { wait: false, reply, .. }) => {
                        let _ = reply.send(Ok(Ingested { more: true, ..Ingested::default() }));
                    }
                    Some(job) => turn_away(job),
                },
                () = SystemClock.sleep_until(SystemClock.now() + AT_ONCE), if !told => {
                    told = true;
                    self.phase(Phase::Waiting);
                }
            }
        }
    }

    /// One period under a permit: opens the file for writing, and closes it before the permit goes.
    async fn period(&mut self, permit: Permit) -> PeriodEnd {
        let opened = open(&self.life.core, &permit).await;
        let target = match opened {
            Ok(target) => target,
            Err(error) => return PeriodEnd::Over(error),
        };
        Period::new(self, target, permit).run().await
    }
}

/// Opens the file for writing: the connection that read becomes the one that writes, or another is made. What was open
/// of a file that somebody has replaced is closed before: what SQLite keeps beside it is known by its name.
pub(super) async fn open<O: Opener>(core: &Core<O>, permit: &Permit) -> Result<O::Target> {
    let path = core.path.layout();
    let layout = Layout::read(&core.path).trouble("reading", &path).map_err(|error| error.at(&core.name))?;
    let Some(layout) = layout else { return Err(core.unavailable("its layout was removed; try again")) };
    permit.check()?;
    let reading = core.reading.take().await;
    let target = match reading {
        Ok(Some(mut target)) => target.promote().map(|()| target),
        // An earlier build's file has to be opened for writing before anybody can read it.
        Ok(None) | Err(_) => {
            let opener = &core.options.opener;
            opener.open(&opener.file(&core.path.path()), &layout.store_id)
        }
    }?;
    crate::crash::point("store-opened");
    Ok(target)
}

/// Completes when the ownership is lost; never where there is none to lose.
pub(super) async fn lost(lock: Option<&OwnerLock>) -> Error {
    match lock {
        Some(lock) => lock.lost().await,
        None => std::future::pending().await,
    }
}

/// Answers control requests for the thread that owns the store.
struct Handler {
    state: StatusOnly,
    jobs: tokio::sync::mpsc::UnboundedSender<Job>,
}

impl ControlHandler for Handler {
    fn status(&self) -> State {
        self.state.status()
    }

    fn ingest(&self, ids: Vec<String>, wait: bool) -> BoxFuture<'_, Result<Ingested, String>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let gone = || "the owner is closing the store".to_owned();
            self.jobs.send(Job::Ingest { ids, wait, reply }).map_err(|_| gone())?;
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}
