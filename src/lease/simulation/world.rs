//! One schedule: nodes polled by hand, a network, a store, and what befalls them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::task::LocalSet;

use crate::backend::memory::{Memory, MemoryStore};
use crate::clock::{Clock, ManualClock, Moment};
use crate::connect::detached;
use crate::coordinator::Coordinator;
use crate::entropy::Entropy;
use crate::lease::rules::Rules;
use crate::lease::simulation::actors::{self, Part};
use crate::lease::simulation::checker::{self, Checker, Entry, Tally, Violation, What};
use crate::lease::simulation::link::{Agenda, Happening, SimLink, Weather};
use crate::lease::state::{LeaseCell, State};
use crate::lease::status::LeaseKind;

/// What a schedule is drawn from.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) writers: std::ops::RangeInclusive<usize>,
    pub(crate) fscks: std::ops::RangeInclusive<usize>,
    pub(crate) clearers: usize,
    pub(crate) peers: usize,
    /// Peers' fscks, whose force passes over stale writers and leaves their documents.
    pub(crate) peer_fscks: usize,
    pub(crate) fences: bool,
    /// Parts per thousand.
    pub(crate) weather: Weather,
    pub(crate) crashes: usize,
    pub(crate) pauses: usize,
    pub(crate) longest_pause: Duration,
    pub(crate) cuts: usize,
    pub(crate) jumps: usize,
    /// Times in which a node's refreshes get lost and nothing else.
    pub(crate) deaf: usize,
    /// Until when things go wrong.
    pub(crate) troubled: Duration,
    /// Writers poll this fast and hold for as long; `None`: they take their time.
    pub(crate) crowd: Option<Duration>,
    /// The store cannot refuse late statements of a session.
    pub(crate) standalone: bool,
}

const FAIR: Weather = Weather { lost_requests: 0, lost_replies: 0, slow: 0, late: 0, latest_ms: 0 };
const STORMY: Weather = Weather { late: 4, latest_ms: 25_000, ..FAIR };

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            writers: 1..=2,
            fscks: 1..=2,
            clearers: 1,
            peers: 0,
            peer_fscks: 0,
            fences: false,
            weather: Weather { lost_requests: 10, lost_replies: 10, slow: 20, ..STORMY },
            crashes: 1,
            pauses: 3,
            longest_pause: Duration::from_secs(20),
            cuts: 4,
            jumps: 1,
            deaf: 0,
            troubled: Duration::from_secs(45),
            crowd: None,
            standalone: false,
        }
    }
}

impl Plan {
    /// Answers that come after deadlines.
    pub(crate) fn slow() -> Plan {
        Plan { pauses: 6, cuts: 0, crashes: 0, ..Plan::default() }
    }

    /// Statements that arrive after their sender gave up.
    pub(crate) fn late() -> Plan {
        let weather = Weather { lost_requests: 5, lost_replies: 5, slow: 10, late: 60, ..STORMY };
        Plan { weather, crashes: 0, pauses: 0, cuts: 0, fscks: 2..=2, ..Plan::default() }
    }

    /// Fscks whose answers are slow or lost: what they give back meets what they try next.
    pub(crate) fn tardy() -> Plan {
        let weather = Weather { lost_replies: 200, slow: 400, ..FAIR };
        let calm = Plan { weather, crashes: 0, pauses: 0, cuts: 0, jumps: 0, ..Plan::default() };
        Plan { writers: 0..=0, fscks: 1..=1, clearers: 0, ..calm }
    }

    /// A server clock that steps under cut links.
    pub(crate) fn jumpy() -> Plan {
        let weather = Weather { slow: 40, ..FAIR };
        Plan { weather, jumps: 5, cuts: 5, pauses: 1, crashes: 0, ..Plan::default() }
    }

    /// Nodes that are stopped for long while answers are under way.
    pub(crate) fn frozen() -> Plan {
        let weather = Weather { slow: 300, ..FAIR };
        let calm = Plan { weather, crashes: 0, cuts: 0, jumps: 0, ..Plan::default() };
        let long = Duration::from_secs(60);
        Plan { writers: 1..=2, fscks: 1..=1, pauses: 12, longest_pause: long, troubled: 3 * long, ..calm }
    }

    /// Nodes whose refreshes alone get lost.
    pub(crate) fn deafened() -> Plan {
        Plan { weather: FAIR, deaf: 5, crashes: 0, cuts: 0, pauses: 0, jumps: 0, fscks: 2..=2, ..Plan::default() }
    }

    /// A peer whose force passes over stale writers. It judges by the server's clock alone, so that no clock
    /// may step.
    pub(crate) fn with_peer_fscks() -> Plan {
        let quiet = Plan { weather: FAIR, fscks: 0..=0, crashes: 0, cuts: 3, pauses: 6, jumps: 0, ..Plan::default() };
        Plan { peer_fscks: 1, clearers: 0, ..quiet }
    }

    /// Statements that arrive late, at a store that cannot refuse them, but within a stale age.
    pub(crate) fn standalone() -> Plan {
        let late = Plan::late();
        Plan { standalone: true, weather: Weather { latest_ms: 7_000, ..late.weather }, ..late }
    }

    /// Writers that never refresh, as a peer's may.
    pub(crate) fn with_peers() -> Plan {
        Plan { peers: 1, writers: 0..=1, ..Plan::default() }
    }

    /// Writers with open fenced transactions.
    pub(crate) fn with_fences() -> Plan {
        let weather = Weather { lost_requests: 100, lost_replies: 20, slow: 20, ..FAIR };
        Plan { fences: true, weather, writers: 1..=1, crashes: 0, cuts: 0, pauses: 8, ..Plan::default() }
    }

    /// Many writers that poll without pause, and nothing that goes wrong.
    pub(crate) fn crowd(writers: usize, pace: Duration) -> Plan {
        Plan {
            writers: writers..=writers,
            fscks: 1..=1,
            clearers: 0,
            weather: FAIR,
            crashes: 0,
            pauses: 0,
            cuts: 0,
            jumps: 0,
            troubled: Duration::from_secs(8),
            crowd: Some(pace),
            ..Plan::default()
        }
    }
}

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

struct Node {
    tasks: Option<LocalSet>,
    awake: Arc<Flag>,
    paused: bool,
    cut: Rc<Cell<bool>>,
    link: Rc<SimLink>,
    _coordinator: Coordinator,
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
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
        };
        let writers = world.draw(plan.writers.clone());
        let fscks = world.draw(plan.fscks.clone());
        let parts = [
            (Part::Writer, writers),
            (Part::Fsck, fscks),
            (Part::Clearer, plan.clearers),
            (Part::Peer, plan.peers),
            (Part::PeerFsck, plan.peer_fscks),
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
        let cut = Rc::new(Cell::new(false));
        let link = Rc::new(SimLink {
            node: index,
            clock: self.clock.clone(),
            agenda: self.agenda.clone(),
            tickets: self.tickets.clone(),
            rng: self.rng.clone(),
            weather: self.weather.clone(),
            cut: cut.clone(),
            deaf: Rc::default(),
            lost: Rc::default(),
            lost_replies: Rc::default(),
        });
        let seed = self.rng.borrow_mut().u64(..);
        let builder = Coordinator::on_memory(&self.store).clock(self.clock.clone()).label(actors::label(index));
        let backend = Memory::behind(self.store.clone(), link.clone(), !plan.standalone);
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
        let awake = Arc::new(Flag(AtomicBool::new(true)));
        self.nodes.push(Node { tasks: Some(tasks), awake, paused: false, cut, link, _coordinator: coordinator });
    }

    fn plan_trouble(&mut self, plan: &Plan) {
        let end = u64::try_from(plan.troubled.as_millis()).expect("short");
        let nodes = self.nodes.len();
        let longest_pause = u64::try_from(plan.longest_pause.as_millis()).expect("short");
        let mut troubles = Vec::new();
        {
            let mut rng = self.rng.borrow_mut();
            for _ in 0..rng.usize(0..=plan.crashes) {
                troubles.push((rng.u64(..end), Happening::Crash(rng.usize(..nodes))));
            }
            for _ in 0..rng.usize(0..=plan.pauses) {
                let pause = Duration::from_millis(rng.u64(500..longest_pause));
                troubles.push((rng.u64(..end), Happening::Pause(rng.usize(..nodes), pause)));
            }
            for _ in 0..rng.usize(0..=plan.cuts) {
                let cut = Duration::from_millis(rng.u64(500..15_000));
                troubles.push((rng.u64(..end), Happening::Cut(rng.usize(..nodes), cut)));
            }
            for _ in 0..rng.usize(0..=plan.deaf) {
                let deaf = Duration::from_millis(rng.u64(12_000..30_000));
                troubles.push((rng.u64(..end), Happening::Deafen(rng.usize(..nodes), deaf)));
            }
            for _ in 0..rng.usize(0..=plan.jumps) {
                let jump = [-3_600_000, -10_000, -5_000, 4_000, 6_000, 9_000, 12_000, 3_600_000];
                troubles.push((rng.u64(..end), Happening::Jump(jump[rng.usize(..jump.len())])));
            }
        }
        for (at, trouble) in troubles {
            self.schedule(Moment::ORIGIN + Duration::from_millis(at), trouble);
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
            Happening::Jump(millis) => {
                self.note(format!("the server's clock jumps by {millis} ms"));
                self.store.shift_server_clock(millis);
            }
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
            let ready: Vec<usize> = (0..self.nodes.len())
                .filter(|index| {
                    let node = &self.nodes[*index];
                    !node.paused && node.tasks.is_some() && node.awake.0.load(Ordering::Relaxed)
                })
                .collect();
            if ready.is_empty() {
                return;
            }
            let chosen = ready[self.rng.borrow_mut().usize(..ready.len())];
            let node = &mut self.nodes[chosen];
            node.awake.0.store(false, Ordering::Relaxed);
            let waker = Waker::from(node.awake.clone());
            if let Some(tasks) = &mut node.tasks
                && Pin::new(tasks).poll(&mut Context::from_waker(&waker)).is_ready()
            {
                node.tasks = None;
            }
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
