//! What a test has asked the proxy for, and what the proxy has seen. Shared by the handle and all
//! connections; nothing here waits.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mongodb::bson::RawDocument;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::connection::Link;
use super::wire::{Message, command_name};

/// What becomes of one request that a test has picked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// The server executes it; the reply is swallowed and the connection stays open.
    DropReply,
    /// The server executes it; instead of the reply the client sees its connection reset.
    CutReply,
    /// It waits in the proxy until `release_held`.
    HoldRequest,
    /// It reaches the server so much later.
    Delay(Duration),
    /// Its reply reaches the client so much later.
    DelayReply(Duration),
    /// The connection is reset; the server never sees it.
    Cut,
}

/// What becomes of all traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Mode {
    #[default]
    Pass,
    Blackhole,
    DropReplies,
    HoldRequests,
}

/// The decision on one request.
pub(super) enum Verdict {
    Forward { message: Message, after: Duration, reply: Fate },
    Swallowed,
    Held,
    Reset,
}

/// The decision on the reply to one request.
pub(super) enum Fate {
    Deliver,
    Drop,
    Reset,
    Delay(Duration),
    /// Deliver it if the client is still there, and tell whoever released the request.
    Late(oneshot::Sender<()>),
}

/// A request that waits in the proxy.
pub(super) struct Held {
    pub(super) command: String,
    pub(super) message: Message,
    pub(super) link: Arc<Link>,
}

impl Held {
    /// Sends it to the server. The receiver hears when the server has answered, or fails when the
    /// server's side is closed.
    pub(super) fn release(self) -> oneshot::Receiver<()> {
        let (answered, wait) = oneshot::channel();
        self.link.release(self.message, answered);
        wait
    }
}

type Matcher = Box<dyn Fn(&RawDocument) -> bool + Send>;

struct Rule {
    matches: Matcher,
    action: Action,
    left: usize,
}

#[derive(Default)]
struct State {
    mode: Mode,
    delay_requests: Duration,
    delay_replies: Duration,
    rules: Vec<Rule>,
    commands: Vec<String>,
    held: Vec<Held>,
    dropped_replies: usize,
    /// Cancelled, and replaced, when the connections that are open are to be reset.
    open: CancellationToken,
}

#[derive(Default)]
pub(super) struct Controls(Mutex<State>);

impl fmt::Debug for Controls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Controls")
            .field("mode", &state.mode)
            .field("held", &state.held.len())
            .field("dropped_replies", &state.dropped_replies)
            .finish_non_exhaustive()
    }
}

impl Controls {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while the proxy's controls are locked")
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        self.state().mode = mode;
    }

    pub(super) fn set_delays(&self, requests: Duration, replies: Duration) {
        let mut state = self.state();
        (state.delay_requests, state.delay_replies) = (requests, replies);
    }

    pub(super) fn add_rule(&self, matches: Matcher, action: Action, times: usize) {
        let rule = Rule { matches, action, left: times };
        self.state().rules.push(rule);
    }

    pub(super) fn clear_rules(&self) {
        self.state().rules.clear();
    }

    pub(super) fn commands(&self) -> Vec<String> {
        self.state().commands.clone()
    }

    pub(super) fn forget_commands(&self) {
        self.state().commands.clear();
    }

    pub(super) fn held(&self) -> Vec<String> {
        self.state().held.iter().map(|held| held.command.clone()).collect()
    }

    pub(super) fn take_held(&self) -> Vec<Held> {
        std::mem::take(&mut self.state().held)
    }

    pub(super) fn dropped_replies(&self) -> usize {
        self.state().dropped_replies
    }

    pub(super) fn reset_connections(&self) {
        std::mem::take(&mut self.state().open).cancel();
    }

    /// What a new connection watches.
    pub(super) fn open(&self) -> CancellationToken {
        self.state().open.clone()
    }

    /// Notes a request and decides on it; one that is to be held is kept here.
    pub(super) fn on_request(&self, message: Message, link: &Arc<Link>) -> Verdict {
        let mut state = self.state();
        let body = message.command();
        let command = body.and_then(command_name).unwrap_or("(no command)").to_owned();
        let action = body.and_then(|body| state.rule_for(body));
        state.commands.push(command.clone());
        let (wait, reply) = match (state.mode, action) {
            (Mode::Blackhole, _) => return Verdict::Swallowed,
            (Mode::HoldRequests, _) | (_, Some(Action::HoldRequest)) => {
                link.note_held();
                let link = link.clone();
                state.held.push(Held { command, message, link });
                return Verdict::Held;
            }
            (_, Some(Action::Cut)) => return Verdict::Reset,
            (_, Some(Action::DropReply)) => (Duration::ZERO, Fate::Drop),
            (_, Some(Action::CutReply)) => (Duration::ZERO, Fate::Reset),
            (_, Some(Action::Delay(wait))) => (wait, Fate::Deliver),
            (_, Some(Action::DelayReply(wait))) => (Duration::ZERO, Fate::Delay(wait)),
            (Mode::Pass | Mode::DropReplies, None) => (Duration::ZERO, Fate::Deliver),
        };
        let after = state.delay_requests + wait;
        Verdict::Forward { message, after, reply }
    }

    /// Decides on a reply: how long it waits, or `None` to swallow it.
    pub(super) fn on_reply(&self, dropped: bool) -> Option<Duration> {
        let mut state = self.state();
        if dropped || matches!(state.mode, Mode::DropReplies | Mode::Blackhole) {
            state.dropped_replies += 1;
            return None;
        }
        Some(state.delay_replies)
    }
}

impl State {
    fn rule_for(&mut self, body: &RawDocument) -> Option<Action> {
        let rule = self.rules.iter_mut().find(|rule| rule.left > 0 && (rule.matches)(body))?;
        rule.left -= 1;
        Some(rule.action)
    }
}
