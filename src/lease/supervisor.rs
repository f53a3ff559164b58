//! One thread's worth of everything: the commands of a coordinator, the leases it holds, and the tasks that
//! keep them alive. All of it is single-threaded; a command that takes time is a task of its own.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::backend::{Access, Answer, Awaited, Backend, BackendError, Changes, Fault, HistoryLine, LeaseKey, NewLease};
use crate::clock::{Clock, Moment, within};
use crate::entropy::Entropy;
use crate::error::{Error, LossReason, Result};
use crate::holder::Holder;
use crate::lease::Hold;
use crate::lease::command::{Command, Reply};
use crate::lease::events::Event;
use crate::lease::measures::{Counts, Measures};
use crate::lease::release::GivenBack;
use crate::lease::rules::Rules;
use crate::lease::slots::Fencing;
use crate::lease::state::{LeaseCell, State};
use crate::lease::status::LeaseKind;
use crate::lease::watch::Watch;
use crate::timing::LeaseTiming;

/// How long connecting may take.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A lease that this supervisor keeps alive, with the session that carries its writes.
pub(crate) struct Kept<S> {
    pub(crate) cell: Arc<LeaseCell>,
    /// `None` while the acquisition still uses it.
    pub(crate) session: Option<S>,
    /// A write of the acquisition went unanswered: it may still be under way.
    pub(crate) unsure: bool,
}

/// The engine of one coordinator.
pub(crate) struct Supervisor<B: Backend> {
    pub(crate) backend: B,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Entropy,
    pub(crate) timing: LeaseTiming,
    pub(crate) rules: Rules,
    pub(crate) watch: Watch,
    holder: Holder,
    reason: Option<String>,
    events: broadcast::Sender<Event>,
    commands: mpsc::UnboundedSender<Command>,
    /// Ordered, so that a run with the same seed is the same run.
    pub(crate) leases: RefCell<BTreeMap<LeaseKey, Kept<B::Session>>>,
    /// Wakes the renewer and the watchdog when there is another lease to keep.
    pub(crate) added: Notify,
    pub(crate) added_to_watch: Notify,
    pub(crate) given_back: RefCell<GivenBack>,
    pub(crate) counts: RefCell<Counts>,
    /// Who wants a snapshot of the counts.
    pub(crate) to_measure: RefCell<Vec<Reply<Measures>>>,
    /// Deletes and history lines that the store has not confirmed, and commands that are being served.
    pub(crate) pending: Cell<usize>,
    pub(crate) settled: Notify,
    /// Somebody waits for the end, but not for long: what was to be repeated later is repeated now.
    pub(crate) hurry: Cell<bool>,
    pub(crate) hurried: Notify,
    pub(crate) fencing: Fencing<B::Session>,
    /// Whether the last look found an fsck, which gates have to close for.
    pub(crate) fsck_in_the_way: watch::Sender<bool>,
    /// What the store was checked for.
    ready_for: Cell<Access>,
    panicked: Cell<bool>,
    stop: Notify,
    /// The end has come for whatever is being served.
    closing: CancellationToken,
}

impl<B: Backend> Supervisor<B> {
    #[expect(clippy::too_many_arguments, reason = "one call; each is another thing")]
    pub(crate) fn new(
        backend: B,
        clock: Arc<dyn Clock>,
        entropy: Entropy,
        timing: LeaseTiming,
        watch: Watch,
        holder: Holder,
        reason: Option<String>,
        events: broadcast::Sender<Event>,
        commands: mpsc::UnboundedSender<Command>,
    ) -> Rc<Self> {
        Rc::new(Supervisor {
            backend,
            clock,
            entropy,
            timing,
            rules: Rules::default(),
            watch,
            holder,
            reason,
            events,
            commands,
            leases: RefCell::new(BTreeMap::new()),
            added: Notify::new(),
            added_to_watch: Notify::new(),
            given_back: RefCell::default(),
            counts: RefCell::default(),
            to_measure: RefCell::default(),
            pending: Cell::new(0),
            settled: Notify::new(),
            hurry: Cell::new(false),
            hurried: Notify::new(),
            fencing: Fencing::default(),
            fsck_in_the_way: watch::Sender::new(false),
            ready_for: Cell::new(Access::Look),
            panicked: Cell::new(false),
            stop: Notify::new(),
            closing: CancellationToken::new(),
        })
    }

    /// Whether the store answers and can be trusted; tried until [`CONNECT_LIMIT`] while it cannot be reached.
    pub(crate) async fn check_store(&self) -> Result<()> {
        let give_up = self.clock.now() + CONNECT_LIMIT;
        loop {
            let left = give_up.since(self.clock.now());
            let answer = within(&*self.clock, left, self.backend.ready(Access::Look)).await;
            match answer.unwrap_or_else(|| Err(no_answer(CONNECT_LIMIT))) {
                Ok(()) => return Ok(()),
                Err(error) if error.is_transient() && self.clock.now() < give_up => {
                    self.sleep(self.timing.poll_max).await;
                }
                Err(error) => return Err(error.at(self.backend.store())),
            }
        }
    }

    /// Serves commands until it is told to shut down or a task panics.
    pub(crate) async fn run(self: Rc<Self>, mut commands: mpsc::UnboundedReceiver<Command>) {
        self.spawn(Self::renew_all);
        self.spawn(Self::watch_deadlines);
        let told = loop {
            let command = tokio::select! {
                biased;
                () = self.stop.notified() => break None,
                command = commands.recv() => command,
            };
            match command {
                Some(Command::Shutdown { patience, reply }) => break Some((patience, reply)),
                Some(command) => self.serve(command),
                None => break None,
            }
        };
        // From here on nobody is answered; what was granted is given back, what is pending is waited for.
        commands.close();
        while commands.try_recv().is_ok() {}
        if let Some((patience, reply)) = told {
            self.closing.cancel();
            self.give_back_everything();
            self.settle(patience).await;
            if let Some(reply) = reply {
                let _ = reply.send(());
            }
        }
        self.lose_everything(LossReason::Supervisor);
    }

    fn serve(self: &Rc<Self>, command: Command) {
        match command {
            Command::Init(reply) => self.answer(reply, async |this| this.init().await),
            Command::Writer(request, reply) => {
                self.answer(reply, async move |this| {
                    this.measured(LeaseKind::Writer, this.acquire_writer(&request)).await
                });
            }
            Command::Fsck(request, reply) => {
                self.answer(reply, async move |this| this.measured(LeaseKind::Fsck, this.acquire_fsck(&request)).await)
            }
            Command::Clear(request, reply) => self.answer(reply, async move |this| this.clear(&request).await),
            Command::Prune(request, reply) => self.answer(reply, async move |this| this.prune(&request).await),
            Command::Status(reply) => self.answer(reply, async |this| this.status().await),
            Command::Measure(reply) => self.measure(reply),
            Command::History(reply) => self.answer(reply, async |this| this.history().await),
            Command::Record(line, reply) => {
                self.answer(reply, async move |this| {
                    this.ready(Access::Write, Duration::ZERO).await?;
                    this.record(this.timing.refresh_interval, &line).await
                });
            }
            Command::Refresh { key, force, reply } => {
                self.answer(reply, async move |this| this.refresh_one(&key, force).await);
            }
            Command::Gate(parts) => self.spawn(async move |this| this.keep_gate(parts).await),
            Command::WhyClosed { after, reply } => {
                self.answer(reply, async move |this| this.why_closed(after).await);
            }
            Command::Descriptors(key, reply) => {
                let _ = reply.send(self.backend.descriptors(&key).map_err(|error| self.fail(error)));
            }
            Command::Slots(key, reply) => self.make_slots(key, reply),
            Command::Release(key, reply) => self.release(&key, reply),
            Command::Shutdown { .. } => unreachable!("taken by the loop"),
        }
    }

    /// Runs `work` as a task and answers with what it returns. When nobody waits any more, or at the end,
    /// the work is dropped where it stands; whatever it may have left in the store withdraws itself then,
    /// and the end waits for that.
    fn answer<T: 'static, F>(self: &Rc<Self>, mut reply: Reply<T>, work: F)
    where
        F: AsyncFnOnce(Rc<Self>) -> Result<T> + 'static,
    {
        self.pending.set(self.pending.get() + 1);
        self.spawn(async move |this| {
            let result = tokio::select! {
                biased;
                // First: a lease granted after everything was given back would stay.
                () = this.closing.cancelled() => None,
                result = work(this.clone()) => Some(result),
                () = reply.closed() => None,
            };
            if let Some(result) = result {
                // A lease that finds nobody is released by being dropped here.
                drop(reply.send(result));
            }
            this.settle_one();
        });
    }

    /// Runs a task. A panic in any of them loses every lease, for nothing may be half kept.
    pub(crate) fn spawn<F>(self: &Rc<Self>, task: F)
    where
        F: AsyncFnOnce(Rc<Self>) + 'static,
    {
        let this = self.clone();
        tokio::task::spawn_local(async move {
            let guarded = AssertUnwindSafe(task(this.clone())).catch_unwind();
            if guarded.await.is_err() {
                this.panicked.set(true);
                tracing::error!(store = %this.backend.store(), "the supervisor panicked; every lease is lost");
                this.lose_everything(LossReason::Supervisor);
                this.stop.notify_one();
                this.settled.notify_one();
            }
        });
    }

    /// A call to the store within the limit that keeps it below the refresh interval.
    pub(crate) async fn call<T>(&self, call: impl Future<Output = Answer<T>>) -> Answer<T> {
        self.call_for(self.timing.call_limit(), call).await
    }

    pub(crate) async fn call_for<T>(&self, limit: Duration, call: impl Future<Output = Answer<T>>) -> Answer<T> {
        within(&*self.clock, limit, call).await.unwrap_or_else(|| Err(no_answer(limit)))
    }

    /// Checks, before the first verb that needs it, that the store can be used so. Trouble on the way is waited
    /// out like that of the verb itself.
    pub(crate) async fn ready(&self, access: Access, wait: Duration) -> Result<()> {
        if self.ready_for.get() < access {
            let patience = wait.max(self.timing.refresh_interval);
            self.retry(patience, async || self.backend.ready(access).await).await?;
            self.ready_for.set(access);
        }
        Ok(())
    }

    /// Repeats a call that changes nothing, or nothing twice, while it fails for a passing reason.
    pub(crate) async fn retry<T>(&self, patience: Duration, mut call: impl AsyncFnMut() -> Answer<T>) -> Result<T> {
        let give_up = self.clock.now() + patience;
        let mut pause = self.timing.poll_initial;
        loop {
            match self.call(call()).await {
                Ok(value) => return Ok(value),
                Err(error) if error.is_transient() && self.clock.now() < give_up => {
                    tracing::debug!(error = error.message, "trying again");
                    self.pause(&mut pause).await;
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    pub(crate) fn fail(&self, error: BackendError) -> Error {
        error.at(self.backend.store())
    }

    /// Sleeps for about `pause` and doubles it, up to the longest poll.
    pub(crate) async fn pause(&self, pause: &mut Duration) {
        let jittered = self.entropy.jitter(*pause, 0.5);
        *pause = (*pause * 2).min(self.timing.poll_max);
        self.sleep(jittered).await;
    }

    /// As [`Supervisor::pause`], at most until `at_most`. A lease that goes ends it and starts the doubling anew;
    /// being told of that begins with the first nap.
    pub(crate) async fn nap(&self, pause: &mut Duration, changes: &mut Option<Changes>, at_most: Moment) {
        let changes = changes.get_or_insert_with(|| match self.watch {
            Watch::Never => Changes::untold(),
            Watch::Auto | Watch::Always => self.backend.changes(Awaited::Departure),
        });
        let jittered = self.entropy.jitter(*pause, 0.5);
        tokio::select! {
            biased;
            () = changes.next() => *pause = self.timing.poll_initial,
            () = self.sleep_until((self.clock.now() + jittered).min(at_most)) => {
                *pause = (*pause * 2).min(self.timing.poll_max);
            }
        }
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.clock.now() + duration).await;
    }

    pub(crate) async fn sleep_until(&self, moment: Moment) {
        self.clock.sleep_until(moment).await;
    }

    pub(crate) fn tell(&self, event: Event) {
        self.counts.borrow_mut().event(&event);
        // Nobody has to listen.
        let _ = self.events.send(event);
    }

    /// A document for a new acquisition.
    pub(crate) fn new_lease(&self, kind: LeaseKind, label: Option<&String>, reason: Option<&String>) -> NewLease {
        let owner = self.entropy.name().to_string();
        let id = match kind {
            LeaseKind::Fsck => crate::backend::FSCK_ID.to_owned(),
            LeaseKind::Writer => format!("lease/{}", self.entropy.name()),
        };
        NewLease {
            key: LeaseKey { id, owner },
            refresh_interval: self.timing.refresh_interval,
            stale_after: self.timing.stale_after(),
            reason: reason.or(self.reason.as_ref()).cloned(),
            holder: self.holder(label),
        }
    }

    fn holder(&self, label: Option<&String>) -> Holder {
        Holder { label: label.or(self.holder.label.as_ref()).cloned(), ..self.holder.clone() }
    }

    /// Takes a lease into care. From now on it is refreshed.
    pub(crate) fn keep(&self, cell: Arc<LeaseCell>) {
        let kept = Kept { cell: cell.clone(), session: None, unsure: false };
        self.leases.borrow_mut().insert(cell.terms.key.clone(), kept);
        self.added.notify_one();
        self.added_to_watch.notify_one();
    }

    pub(crate) fn hold(&self, cell: Arc<LeaseCell>) -> Hold {
        Hold::new(cell, self.commands.clone())
    }

    /// A lease of this coordinator that a new one of `kind` would wait for for ever.
    pub(crate) fn own_lease_in_the_way(&self, kind: LeaseKind) -> Option<Error> {
        let leases = self.leases.borrow();
        let standing = |kept: &&Kept<B::Session>| {
            let over = matches!(kept.cell.state(), State::Lost(_) | State::Released);
            !over && !kept.cell.terms.gated
        };
        let conflicts = |kept: &&Kept<B::Session>| match kind {
            LeaseKind::Fsck => true,
            LeaseKind::Writer => kept.cell.terms.kind == LeaseKind::Fsck,
        };
        let own = leases.values().filter(standing).find(conflicts)?;
        Some(Error::invalid_at(
            self.backend.store(),
            format!(
                "this process would wait for itself: it holds the {} lease {}; release that first",
                own.cell.terms.kind, own.cell.terms.key.id
            ),
        ))
    }

    /// Writes a line of the audit trail behind the verb's back: it must never fail or delay the verb.
    pub(crate) fn chronicle(self: &Rc<Self>, what: &'static str, lease: &str, reason: Option<String>) {
        let (name, lease, holder) = (self.entropy.name(), Some(lease.to_owned()), self.holder.clone());
        let line = HistoryLine { name, what, lease, holder, reason };
        self.pending.set(self.pending.get() + 1);
        self.spawn(async move |this| {
            if let Err(error) = this.record(this.timing.stale_after(), &line).await {
                tracing::warn!(store = %this.backend.store(), %error, what, "the history could not be written");
            }
            this.settle_one();
        });
    }

    /// Writes the line once, however often it has to be sent.
    async fn record(&self, patience: Duration, line: &HistoryLine) -> Result<()> {
        self.retry(patience, async || self.backend.record(line).await).await
    }

    pub(crate) fn settle_one(&self) {
        self.pending.set(self.pending.get() - 1);
        self.settled.notify_one();
    }

    /// Waits until nothing is pending.
    async fn settle(&self, patience: Option<Duration>) {
        if patience.is_some() {
            self.hurry.set(true);
            self.hurried.notify_waiters();
        }
        let all = async {
            while self.pending.get() > 0 && !self.panicked.get() {
                self.settled.notified().await;
            }
        };
        match patience {
            Some(patience) => drop(within(&*self.clock, patience, all).await),
            None => all.await,
        }
    }

    fn give_back_everything(self: &Rc<Self>) {
        let keys: Vec<LeaseKey> = self.leases.borrow().keys().cloned().collect();
        for key in keys {
            if let Some(kept) = self.leases.borrow().get(&key) {
                kept.cell.lose(LossReason::Supervisor);
            }
            self.release(&key, None);
        }
    }

    fn lose_everything(&self, why: LossReason) {
        for kept in self.leases.borrow().values() {
            self.lose(&kept.cell, why);
        }
    }

    /// Cancels the token in the holder's hand first, then reports.
    pub(crate) fn lose(&self, cell: &LeaseCell, why: LossReason) {
        if cell.lose(why) {
            tracing::warn!(store = %cell.terms.store, lease = cell.terms.key.id, %why, "lease lost");
            self.tell(Event::Lost { id: cell.terms.key.id.clone(), kind: cell.terms.kind, why });
        }
    }
}

pub(crate) fn no_answer(limit: Duration) -> BackendError {
    BackendError::new(Fault::Unknown, format!("no answer within {}", crate::describe::duration(limit)))
}
