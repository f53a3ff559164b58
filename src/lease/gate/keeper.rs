//! The supervisor's half of a gate: a task that acquires for all who want in, and gives back when it must.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use futures::future::OptionFuture;
use tokio::sync::{mpsc, oneshot};

use super::word::Seen;
use super::{Entry, GateOptions, GateParts, OnFsck, Shared};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::lease::Hold;
use crate::lease::command::WriterRequest;
use crate::lease::events::Event;
use crate::lease::status::LeaseKind;
use crate::lease::supervisor::Supervisor;
use crate::lease::wait::held;

/// How long an acquisition for a gate waits at a time. It is begun anew as long as somebody wants in.
const PATIENCE: Duration = Duration::from_secs(3600);

impl<B: Backend> Supervisor<B> {
    /// Keeps a gate until its last handle is dropped.
    pub(crate) async fn keep_gate(self: Rc<Self>, parts: GateParts) {
        let GateParts { shared, options, mut entries } = parts;
        self.counts.borrow_mut().gate(&shared);
        let mut waiting: Vec<Entry> = Vec::new();
        loop {
            waiting.retain(|entry| !entry.reply.is_closed());
            if waiting.is_empty() {
                match entries.recv().await {
                    Some(entry) => {
                        self.counts.borrow_mut().gate_wait();
                        waiting.push(entry);
                    }
                    None => return self.counts.borrow_mut().count_entries(),
                }
                continue;
            }
            match self.acquire_for(&options, &mut waiting, &mut entries).await {
                Some(Ok(hold)) => {
                    self.hold_open(&shared, &options, hold, std::mem::take(&mut waiting), &mut entries).await;
                }
                Some(Err(error)) => refuse(std::mem::take(&mut waiting), &error),
                // Nobody wants in any more.
                None => {}
            }
        }
    }

    /// Acquires a lease for all who wait, and for who comes meanwhile. `None` once nobody waits any more.
    async fn acquire_for(
        self: &Rc<Self>,
        options: &GateOptions,
        waiting: &mut Vec<Entry>,
        entries: &mut mpsc::UnboundedReceiver<Entry>,
    ) -> Option<Result<Hold>> {
        let wait = match options.on_fsck {
            OnFsck::Wait => PATIENCE,
            OnFsck::Fail => Duration::ZERO,
        };
        let (label, reason) = (options.label.clone(), options.reason.clone());
        let request = WriterRequest { wait, label, reason, gated: true };
        let mut acquiring = std::pin::pin!(self.measured(LeaseKind::Writer, self.acquire_writer(&request)));
        loop {
            tokio::select! {
                biased;
                acquired = &mut acquiring => return Some(acquired),
                () = all_gone(waiting) => return None,
                entry = entries.recv() => {
                    waiting.push(entry?);
                    self.counts.borrow_mut().gate_wait();
                }
            }
        }
    }

    /// An open gate, until it has to close, and its closing.
    async fn hold_open(
        self: &Rc<Self>,
        shared: &Shared,
        options: &GateOptions,
        hold: Hold,
        waiting: Vec<Entry>,
        entries: &mut mpsc::UnboundedReceiver<Entry>,
    ) {
        let cell = hold.cell.clone();
        let mut in_the_way = self.fsck_in_the_way.subscribe();
        shared.cell.store(Some(cell.clone()));
        shared.closing.send_replace(false);
        shared.word.open();
        self.tell(Event::GateOpened { id: cell.terms.key.id.clone() });
        admit(waiting);
        let mut seen = shared.word.seen();
        loop {
            let idle = OptionFuture::from(options.idle_release.map(|idle| self.sleep(idle)));
            tokio::select! {
                biased;
                _ = cell.lost() => break,
                _ = in_the_way.wait_for(|fsck| *fsck) => break,
                entry = entries.recv() => match entry {
                    Some(entry) => admit(vec![entry]),
                    None => break,
                },
                Some(()) = idle => {
                    let now = shared.word.seen();
                    if unused(seen, now) && shared.word.close_unused(now) {
                        break;
                    }
                    seen = now;
                }
            }
        }
        shared.word.close();
        shared.closing.send_replace(true);
        self.tell(Event::GateClosing { id: cell.terms.key.id.clone(), inside: shared.word.seen().inside() });
        while !shared.word.closed_for_all() {
            shared.drained.notified().await;
        }
        shared.cell.store(None);
        self.tell(Event::GateClosed { id: cell.terms.key.id.clone() });
        let (confirmed, released) = oneshot::channel();
        self.release(&hold.into_key(), Some(confirmed));
        // A release that takes long goes on by itself; a new lease has another name.
        let _ = released.await;
    }

    /// After a while, why a gate has not opened: the fsck in the way, if there is one.
    pub(crate) async fn why_closed(&self, after: Duration) -> Result<()> {
        self.sleep(after).await;
        match self.call(self.backend.peek()).await {
            Ok(Some(fsck)) => Err(held(self, self.info(&fsck))),
            Ok(None) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }
}

/// Nobody was inside at both looks, and nobody came in between.
fn unused(before: Seen, now: Seen) -> bool {
    before == now && now.inside() == 0
}

fn admit(entries: Vec<Entry>) {
    for entry in entries {
        let _ = entry.reply.send(Ok(()));
    }
}

fn refuse(entries: Vec<Entry>, error: &Error) {
    for entry in entries {
        let _ = entry.reply.send(Err(error.again()));
    }
}

/// Completes once none of the entries is waited for.
fn all_gone(waiting: &mut [Entry]) -> impl Future<Output = ()> + use<'_> {
    std::future::poll_fn(move |context| {
        let mut all = true;
        for entry in waiting.iter_mut() {
            all &= entry.reply.poll_closed(context).is_ready();
        }
        if all { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
}
