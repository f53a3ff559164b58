//! One schedule: nodes polled by hand, a network, a store, and what befalls them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::LocalSet;

use crate::backend::memory::{Memory, MemoryStore, State as Stored};
use crate::clock::{Clock, ManualClock, Moment};
use crate::connect::detached;
use crate::coordinator::Coordinator;
use crate::entropy::Entropy;
use crate::lease::rules::{Rule, Rules};
use crate::lease::simulation::actors::{self, Part};
use crate::lease::simulation::checker::{self, Checker, Entry, Tally, Violation, What};
use crate::lease::simulation::link::{Agenda, Happening, SimLink, Weather};
use crate::lease::simulation::node::Node;
use crate::lease::simulation::plan::{FAIR, Plan};
use crate::lease::state::{LeaseCell, State};
use crate::lease::status::LeaseKind;
use crate::timing::LeaseTiming;

/// What the actors tell the world.
#[derive(Default)]
pub(crate) struct Notebook {
    /// Leases in somebody's hand.
    pub(crate) held: BTreeMap<String, (usize, Arc<LeaseCell>)>,
    /// Peers' leases, which have no deadline.
    pub(crate) peers: BTreeMap<String, (usize, LeaseKind)>,
    pub(crate) history: Vec<Entry>,
    pub(crate) tally: Tally,
    /// Nodes whose part is over.
    pub(crate) finished: BTreeSet<usize>,
}

/// One run.
pub(crate) struct World {
    pub(crate) trace: bool,
    /// A holder without a document is a violation, before anybody overlaps with it.
    strict: bool,
    clock: ManualClock,
    store: MemoryStore,
    agenda: Agenda,
    tickets: Rc<Cell<u64>>,
    rng: Rc<RefCell<fastrand::Rng>>,
    weather: Rc<Cell<Weather>>,
    nodes: Vec<Node>,
    notebook: Rc<RefCell<Notebook>>,
    over: Rc<Cell<bool>>,
    troubled_until: Moment,
    checker: Checker,
    /// Who could act at the last step.
    able: BTreeMap<String, LeaseKind>,
    /// Who could act before and then could not.
    were_able: BTreeSet<String>,
    statements: u64,
    rules: Rules,
    /// What the store held lately, for a fail-over that takes back what was not handed on.
    snapshots: Vec<(Moment, Stored)>,
}

impl World {
    pub(crate) fn new(seed: u64, rules: Rules, plan: &Plan) -> World {
        let rng = Rc::new(RefCell::new(fastrand::Rng::with_seed(seed)));
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        store.lock().generation = Some(0);
        let mut world = World {
            trace: false,
            strict: rules.all_hold(),
            troubled_until: clock.now() + plan.troubled,
            clock,
            store,
            agenda: Agenda::default(),
            tickets: Rc::default(),
            rng,
            weather: Rc::new(Cell::new(plan.weather)),
            nodes: Vec::new(),
            notebook: Rc::default(),
            over: Rc::default(),
            checker: Checker::default(),
            able: BTreeMap::new(),
            were_able: BTreeSet::new(),
            statements: 0,
            rules,
            snapshots: Vec::new(),
        };
        let writers = world.draw(plan.writers.clone());
        let fscks = world.draw(plan.fscks.clone());
        let parts = [
            (Part::Writer, writers),
            (Part::Fsck, fscks),
            (Part::Clearer, plan.clearers),
            (Part::Peer, plan.peers),
            (Part::PeerFsck, plan.peer_fscks),
            (Part::PeerClearer, plan.peer_clearers),
            (Part::Stranger, plan.strangers),
        ];
        for (part, count) in parts {
            for _ in 0..count {
                world.add_node(part, rules, plan);
            }
        }
        world.plan_trouble(plan);
        world
    }

    fn draw(&self, range: std::ops::RangeInclusive<usize>) -> usize {
        self.rng.borrow_mut().usize(range)
    }

    fn add_node(&mut self, part: Part, rules: Rules, plan: &Plan) {
        let index = self.nodes.len();
        let link = Rc::new(SimLink {
            node: index,
            clock: self.clock.clone(),
            agenda: self.agenda.clone(),
            tickets: self.tickets.clone(),
            rng: self.rng.clone(),
            weather: self.weather.clone(),
            cut: Rc::default(),
            deaf: Rc::default(),
            lost: Rc::default(),
            lost_replies: Rc::default(),
        });
        let seed = self.rng.borrow_mut().u64(..);
        let builder = Coordinator::on_memory(&self.store).clock(self.clock.clone()).label(actors::label(index));
        let builder = match rules.hold(Rule::PeerStaleAge) {
            true => builder,
            false => builder.timing(LeaseTiming::for_failover()),
        };
        let backend = Memory::behind(self.store.clone(), link.clone(), !plan.standalone).under(rules);
        let (coordinator, supervising) =
            detached(backend, &builder, Entropy::seeded(seed), rules).expect("good options");
        let tasks = LocalSet::new();
        tasks.spawn_local(supervising);
        let stage = actors::Stage {
            node: index,
            coordinator: coordinator.clone(),
            clock: self.clock.clone(),
            store: self.store.clone(),
            link: link.clone(),
            rng: Rc::new(RefCell::new(fastrand::Rng::with_seed(seed ^ 0x5eed))),
            notebook: self.notebook.clone(),
            over: self.over.clone(),
            fences: plan.fences,
            crowd: plan.crowd,
        };
        tasks.spawn_local(actors::play(part, stage));
        self.nodes.push(Node::new(tasks, link, coordinator));
    }

    fn plan_trouble(&mut self, plan: &Plan) {
        let troubles = plan.troubles(&mut self.rng.borrow_mut(), self.nodes.len());
        for (at, trouble) in troubles {
            self.schedule(Moment::ORIGIN + at, trouble);
        }
    }

    fn schedule(&self, at: Moment, happening: Happening) {
        self.tickets.set(self.tickets.get() + 1);
        self.agenda.borrow_mut().insert((at, self.tickets.get()), happening);
    }

    /// Runs to the end and says what was found.
    pub(crate) fn run(mut self) -> Result<Tally, Violation> {
        self.play()?;
        let notebook = self.notebook.borrow();
        let mut tally = notebook.tally.clone();
        tally.schedules = 1;
        tally.statements = self.statements;
        Ok(tally)
    }

    pub(crate) fn run_to_history(mut self) -> Vec<Entry> {
        self.play().unwrap();
        self.notebook.borrow().history.clone()
    }

    fn play(&mut self) -> Result<(), Violation> {
        let patience = self.troubled_until + Duration::from_secs(240);
        loop {
            self.poll_nodes();
            self.observe()?;
            let now = self.clock.now();
            if !self.over.get() && now >= self.troubled_until {
                self.heal();
                continue;
            }
            if self.over.get() && self.is_everybody_done() {
                break;
            }
            let next = [
                self.agenda.borrow().keys().next().map(|key| key.0),
                self.clock.next_wake(),
                Some(self.troubled_until),
            ];
            let next = next.into_iter().flatten().filter(|next| *next > now || !self.over.get()).min();
            let Some(next) = next.filter(|next| *next < patience) else {
                let node = (0..self.nodes.len()).find(|node| self.is_busy(*node)).unwrap_or_default();
                return Err(Violation::Stuck { node, trace: checker::trace(&self.notebook.borrow().history) });
            };
            self.clock.advance_to(next);
            loop {
                let due = {
                    let mut agenda = self.agenda.borrow_mut();
                    match agenda.first_key_value() {
                        Some((key, _)) if key.0 <= next => agenda.pop_first(),
                        _ => None,
                    }
                };
                let Some((_, happening)) = due else { break };
                self.happen(happening);
                self.observe()?;
            }
        }
        self.look_for_orphans()
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive { node, name, statement } => {
                self.statements += 1;
                if self.trace {
                    self.note(format!("node {node}: {name} reaches the store"));
                }
                self.remember();
                let reply = statement();
                self.nodes[node].link.return_reply(reply);
            }
            Happening::Return(reply) => reply(),
            Happening::Crash(node) => {
                self.note(format!("node {node} crashes"));
                self.nodes[node].tasks = None;
                let mut notebook = self.notebook.borrow_mut();
                notebook.held.retain(|_, (holder, _)| *holder != node);
                notebook.peers.retain(|_, (holder, _)| *holder != node);
            }
            Happening::Pause(node, pause) => {
                self.note(format!("node {node} is stopped for {pause:?}"));
                self.nodes[node].paused = true;
                self.schedule(self.clock.now() + pause, Happening::Resume(node));
            }
            Happening::Resume(node) => {
                self.note(format!("node {node} goes on"));
                self.nodes[node].paused = false;
            }
            Happening::Cut(node, cut) => {
                self.note(format!("node {node} is cut off for {cut:?}"));
                self.nodes[node].cut.set(true);
                self.schedule(self.clock.now() + cut, Happening::Mend(node));
            }
            Happening::Mend(node) => {
                self.note(format!("node {node} is reachable again"));
                self.nodes[node].cut.set(false);
            }
            Happening::Deafen(node, deaf) => {
                self.note(format!("node {node}'s refreshes get lost for {deaf:?}"));
                self.nodes[node].link.deaf.set(true);
                self.schedule(self.clock.now() + deaf, Happening::Hear(node));
            }
            Happening::Hear(node) => self.nodes[node].link.deaf.set(false),
            Happening::FailOver(lag) => self.fail_over(lag),
            Happening::Jump(millis) => {
                self.note(format!("the server's clock jumps by {millis} ms"));
                self.store.shift_server_clock(millis);
            }
        }
    }

    /// Before each statement, if a fail-over could ever go back to it.
    fn remember(&mut self) {
        const LONGEST_LAG: Duration = Duration::from_secs(2);
        if self.rules.hold(Rule::Majority) {
            return;
        }
        let now = self.clock.now();
        self.snapshots.retain(|(at, _)| now.since(*at) <= LONGEST_LAG);
        self.snapshots.push((now, self.store.lock().clone()));
    }

    /// Whoever waits for a majority loses nothing that was confirmed.
    fn fail_over(&mut self, lag: Duration) {
        self.note(format!("the primary is lost, {lag:?} ahead of the next"));
        let now = self.clock.now();
        if let Some((_, then)) = self.snapshots.iter().find(|(at, _)| now.since(*at) <= lag) {
            self.store.lock().fall_back_to(then.clone());
        }
    }

    /// No more trouble: everybody comes to an end.
    fn heal(&mut self) {
        self.note("everything heals".to_owned());
        self.weather.set(FAIR);
        for node in &mut self.nodes {
            node.paused = false;
            node.cut.set(false);
            node.link.deaf.set(false);
        }
        self.agenda
            .borrow_mut()
            .retain(|_, happening| matches!(happening, Happening::Arrive { .. } | Happening::Return(_)));
        self.over.set(true);
    }

    fn is_busy(&self, node: usize) -> bool {
        self.nodes[node].tasks.is_some() && !self.notebook.borrow().finished.contains(&node)
    }

    fn is_everybody_done(&self) -> bool {
        let still_under_way =
            self.agenda.borrow().values().any(|happening| matches!(happening, Happening::Arrive { .. }));
        !still_under_way && (0..self.nodes.len()).all(|node| !self.is_busy(node))
    }

    /// Polls whoever was woken, in a random order, until nobody has anything to do.
    fn poll_nodes(&mut self) {
        loop {
            let ready: Vec<usize> = (0..self.nodes.len()).filter(|index| self.nodes[*index].is_ready()).collect();
            if ready.is_empty() {
                return;
            }
            let chosen = ready[self.rng.borrow_mut().usize(..ready.len())];
            self.nodes[chosen].poll();
        }
    }

    /// Notes who can act now, and checks what that means.
    fn observe(&mut self) -> Result<(), Violation> {
        let now = self.clock.now();
        let mut able = BTreeMap::new();
        {
            let notebook = self.notebook.borrow();
            for (lease, (node, cell)) in &notebook.held {
                if cell.check().is_ok() {
                    able.insert(lease.clone(), (*node, cell.terms.kind));
                }
            }
            able.extend(notebook.peers.iter().map(|(lease, holder)| (lease.clone(), *holder)));
            self.checker.check(&notebook.history)?;
            if able.iter().map(|(lease, (_, kind))| (lease, kind)).eq(&self.able) {
                return self.documents_stand(&notebook, now);
            }
        }
        let mut notebook = self.notebook.borrow_mut();
        for lease in self.able.keys().filter(|lease| !able.contains_key(*lease)) {
            let expired = notebook.held.get(lease).is_some_and(|(_, cell)| !matches!(cell.state(), State::Released));
            notebook.tally.losses += u64::from(expired);
            notebook.history.push(Entry { at: now, what: What::CanNot { lease: lease.clone() } });
            self.were_able.insert(lease.clone());
        }
        for (lease, (node, kind)) in &able {
            if self.able.contains_key(lease) {
                continue;
            }
            let (lease, node) = (lease.clone(), *node);
            notebook.tally.recoveries += u64::from(self.were_able.contains(&lease));
            let what = match kind {
                LeaseKind::Writer => What::CanWrite { lease, node },
                LeaseKind::Fsck => What::CanFsck { lease, node },
            };
            notebook.history.push(Entry { at: now, what });
        }
        self.able = able.into_iter().map(|(lease, (_, kind))| (lease, kind)).collect();
        self.checker.check(&notebook.history)?;
        self.documents_stand(&notebook, now)
    }

    /// A holder that can act has a document.
    fn documents_stand(&self, notebook: &Notebook, now: Moment) -> Result<(), Violation> {
        if !self.strict {
            return Ok(());
        }
        let state = self.store.lock();
        for (_, cell) in notebook.held.values() {
            let key = &cell.terms.key;
            let stands = state.leases.get(&key.id).is_some_and(|doc| doc.owner.as_ref() == Some(&key.owner));
            if !stands && cell.check().is_ok() {
                let trace = checker::trace(&notebook.history);
                return Err(Violation::Removed { at: now, lease: key.id.clone(), trace });
            }
        }
        Ok(())
    }

    /// What stands now belongs to those that crashed.
    fn look_for_orphans(&self) -> Result<(), Violation> {
        let crashed = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(index, node)| node.tasks.is_none() && !self.notebook.borrow().finished.contains(index));
        if crashed.count() > 0 {
            return Ok(());
        }
        match self.store.lock().leases.keys().next() {
            Some(id) => {
                Err(Violation::Orphan { id: id.clone(), trace: checker::trace(&self.notebook.borrow().history) })
            }
            None => Ok(()),
        }
    }

    fn note(&self, what: String) {
        let entry = Entry { at: self.clock.now(), what: What::Note(what) };
        if self.trace {
            println!("{}", checker::trace(std::slice::from_ref(&entry))[0]);
        }
        self.notebook.borrow_mut().history.push(entry);
    }
}
