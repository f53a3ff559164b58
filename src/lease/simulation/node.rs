//! One coordinator with its actor, polled by hand.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use tokio::task::LocalSet;

use crate::coordinator::Coordinator;
use crate::lease::simulation::link::SimLink;

pub(super) struct Node {
    /// `None` when it has crashed or come to its end.
    pub(super) tasks: Option<LocalSet>,
    awake: Arc<Flag>,
    pub(super) paused: bool,
    pub(super) cut: Rc<Cell<bool>>,
    pub(super) link: Rc<SimLink>,
    _coordinator: Coordinator,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Node {
    pub(super) fn new(tasks: LocalSet, link: Rc<SimLink>, coordinator: Coordinator) -> Node {
        let awake = Arc::new(Flag(AtomicBool::new(true)));
        let cut = link.cut.clone();
        Node { tasks: Some(tasks), awake, paused: false, cut, link, _coordinator: coordinator }
    }

    /// Whether something woke it, and it can do something about it.
    pub(super) fn is_ready(&self) -> bool {
        !self.paused && self.tasks.is_some() && self.awake.0.load(Ordering::Relaxed)
    }

    pub(super) fn poll(&mut self) {
        self.awake.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(self.awake.clone());
        if let Some(tasks) = &mut self.tasks
            && Pin::new(tasks).poll(&mut Context::from_waker(&waker)).is_ready()
        {
            self.tasks = None;
        }
    }
}
