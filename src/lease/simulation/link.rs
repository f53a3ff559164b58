//! The network between a node and the store: it delays, loses, and delivers late.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::backend::memory::{Link, Reply, Statement};
use crate::clock::{Clock, ManualClock, Moment};

/// What the world does next, and when.
pub(crate) type Agenda = Rc<RefCell<BTreeMap<(Moment, u64), Happening>>>;

/// Something that will happen.
pub(crate) enum Happening {
    /// A statement reaches the store.
    Arrive {
        node: usize,
        name: &'static str,
        statement: Statement,
    },
    /// A reply reaches its caller.
    Return(Reply),
    Crash(usize),
    Pause(usize, Duration),
    Resume(usize),
    Cut(usize, Duration),
    Mend(usize),
    /// Refreshes of a node get lost, and nothing else.
    Deafen(usize, Duration),
    Hear(usize),
    /// The server's clock steps by milliseconds.
    Jump(i64),
    /// The primary is lost, and what it had not handed on so long before is gone, unless it waited for a majority.
    FailOver(Duration),
}

/// How bad the network is, in parts per thousand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) lost_requests: u32,
    pub(crate) lost_replies: u32,
    pub(crate) slow: u32,
    pub(crate) late: u32,
    /// How long after it was sent a late statement arrives at the latest, in milliseconds.
    pub(crate) latest_ms: u64,
}

/// One node's link.
pub(crate) struct SimLink {
    pub(crate) node: usize,
    pub(crate) clock: ManualClock,
    pub(crate) agenda: Agenda,
    pub(crate) tickets: Rc<Cell<u64>>,
    pub(crate) rng: Rc<RefCell<fastrand::Rng>>,
    pub(crate) weather: Rc<Cell<Weather>>,
    pub(crate) cut: Rc<Cell<bool>>,
    pub(crate) deaf: Rc<Cell<bool>>,
    /// Replies of statements that this link has lost; the caller runs into its time limit.
    pub(crate) lost: Rc<RefCell<Vec<Statement>>>,
    pub(crate) lost_replies: Rc<RefCell<Vec<Reply>>>,
}

impl SimLink {
    fn at(&self, delay: Duration, happening: Happening) {
        self.tickets.set(self.tickets.get() + 1);
        let key = (self.clock.now() + delay, self.tickets.get());
        self.agenda.borrow_mut().insert(key, happening);
    }

    fn delay(&self) -> Duration {
        let mut rng = self.rng.borrow_mut();
        if rng.u32(..1000) < self.weather.get().slow {
            return Duration::from_millis(rng.u64(100..4_000));
        }
        Duration::from_micros(rng.u64(200..8_000))
    }

    /// Sends a reply on its way back.
    pub(crate) fn return_reply(&self, reply: Reply) {
        let lost = self.rng.borrow_mut().u32(..1000) < self.weather.get().lost_replies;
        if lost || self.cut.get() {
            self.lost_replies.borrow_mut().push(reply);
            return;
        }
        let delay = self.delay();
        self.at(delay, Happening::Return(reply));
    }
}

impl Link for SimLink {
    fn carry(&self, name: &'static str, statement: Statement) {
        let weather = self.weather.get();
        let dice = self.rng.borrow_mut().u32(..1000);
        let deaf = self.deaf.get() && name == "refresh";
        if deaf || self.cut.get() || dice < weather.lost_requests {
            // Kept, not dropped: dropping would tell the caller at once.
            self.lost.borrow_mut().push(statement);
            return;
        }
        let delay = if dice < weather.lost_requests + weather.late {
            Duration::from_millis(self.rng.borrow_mut().u64(2_000..weather.latest_ms))
        } else {
            self.delay()
        };
        self.at(delay, Happening::Arrive { node: self.node, name, statement });
    }
}
