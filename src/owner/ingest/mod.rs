//! The owner's ingestion: every published batch applied once, in its instance's order, then trashed; one that cannot be
//! applied goes to `failed/` with the reason.
//!
//! # The order
//!
//! ```text
//! list ─▶ order ─▶ load ─▶ apply, with the outcome in the same transaction ─▶ trash/
//!                     └──────────▶ the failure in the ledger ─▶ failed/ ─▶ error.json
//! ```
//!
//! The ledger always knows first. Whoever is killed anywhere in between leaves a batch in `incoming/` whose seq is past;
//! the ledger then says where it belongs. So nothing is applied twice, and nothing that the ledger does not know is ever
//! thrown away.
//!
//! # Who waits for whom
//!
//! A batch that cannot be applied is in the way of its own instance alone, for as long as it is tried again. A store that
//! cannot take anything is in everybody's way: no batch fails for that, ingestion pauses instead, and says so. Nothing is
//! held in a pause. What cannot even be moved out of `incoming/` is passed over.
//!
//! # What it does not promise
//!
//! It runs when it is called, on the thread that calls it. It takes no lease and no lock: whether this process may write,
//! the store asks inside each transaction, through `standing`.

mod aging;
mod ahead;
mod giving_up;
mod pause;
mod report;
mod round;
mod tidy;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::aging::Aging;
use self::pause::Pause;
pub use self::report::{AppliedBatch, Cause, FailedBatch, Paused, Round, Stuck, Waiting};
use crate::clock::{Clock, Moment, SystemClock};
use crate::records::{BatchOutcome, Standing, Target};
use crate::spool::{Formats, Gaps, Listing, Reason, Spool};

/// What happens to a producer whose batch cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnPoison {
    /// The batch is given up, recorded, and moved to `failed/`; the next one is applied.
    #[default]
    Pass,
    /// Its producer is halted at it until somebody mends it, or gives it up by [`Ingestor::give_up`].
    Stop,
}

/// The most that a round takes on.
const BATCHES: usize = 256;
/// How long a round goes on taking batches.
const TIME: Duration = Duration::from_millis(250);

/// Takes batches out of a spool and into a store, round by round.
pub struct Ingestor {
    spool: Spool,
    formats: Formats,
    on_poison: OnPoison,
    clock: Arc<dyn Clock>,
    wall: Box<dyn FnMut() -> Timestamp + Send>,
    listing: Option<Box<dyn Listing>>,
    /// The last seq of each instance that has something in `incoming/`.
    last: HashMap<String, u64>,
    gaps: Gaps,
    /// The batch of an instance that could not be applied.
    troubled: HashMap<String, Troubled>,
    given_up: HashSet<String>,
    stuck: HashMap<OsString, (Moment, String)>,
    /// What lies in `failed/` without its reason, which could not be written.
    unexplained: Vec<(OsString, Reason)>,
    pause: Pause,
    aging: Aging,
    tidied: Option<Moment>,
    backlog: usize,
}

/// A batch that could not be applied.
#[derive(Debug)]
struct Troubled {
    id: String,
    seq: u64,
    since: Moment,
    attempts: u32,
    until: Moment,
    why: String,
    stopped: bool,
}

impl fmt::Debug for Ingestor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingestor").field("spool", &self.spool).field("backlog", &self.backlog).finish_non_exhaustive()
    }
}

impl Ingestor {
    /// An ingestor of a spool. Nothing is done before the first round.
    pub fn new(spool: &Spool) -> Ingestor {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let now = clock.now();
        Ingestor {
            spool: spool.clone(),
            formats: Formats::default(),
            on_poison: OnPoison::default(),
            clock,
            wall: Box::new(crate::clock::wall),
            listing: None,
            last: HashMap::new(),
            gaps: Gaps::default(),
            troubled: HashMap::new(),
            given_up: HashSet::new(),
            stuck: HashMap::new(),
            unexplained: Vec::new(),
            pause: Pause::default(),
            aging: Aging::new(now),
            tidied: None,
            backlog: 0,
        }
    }

    /// The formats that it reads.
    #[must_use]
    pub fn formats(mut self, formats: Formats) -> Ingestor {
        self.formats = formats;
        self
    }

    /// What happens to a producer whose batch cannot be applied.
    #[must_use]
    pub fn on_poison(mut self, on_poison: OnPoison) -> Ingestor {
        self.on_poison = on_poison;
        self
    }

    /// Measures waiting by another clock than the machine's. Its life as an ingestor begins anew.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Ingestor {
        self.aging = Aging::new(clock.now());
        self.clock = clock;
        self
    }

    /// Takes the times in the ledger from another wall clock than the machine's.
    #[must_use]
    pub fn wall(mut self, wall: impl FnMut() -> Timestamp + Send + 'static) -> Ingestor {
        self.wall = Box::new(wall);
        self
    }

    /// Takes the names in `incoming/` from somewhere else than the directory.
    #[must_use]
    pub fn listing(mut self, listing: impl Listing + 'static) -> Ingestor {
        self.listing = Some(Box::new(listing));
        self
    }

    /// Gives up a batch that halts its producer, or is tried again: with the next round it goes to `failed/`. `false`: no
    /// such batch does.
    pub fn give_up(&mut self, id: &str) -> bool {
        let known = self.troubled.values_mut().find(|troubled| troubled.id == id);
        if let Some(troubled) = known {
            troubled.until = Moment::ORIGIN;
            self.given_up.insert(id.to_owned());
            return true;
        }
        false
    }

    /// Tells of a batch that was applied without the spool, so that its row in the ledger gets as old as the others.
    pub fn wrote(&mut self, outcome: &BatchOutcome) {
        let (BatchOutcome::Applied { at, .. } | BatchOutcome::Failed { at, .. } | BatchOutcome::Skipped { at }) =
            outcome;
        self.aging.wrote(self.clock.now(), *at);
    }

    /// Does one bounded round: lists, and applies what can be applied, for a quarter of a second at most and whatever one
    /// batch takes beyond that. Says what it did and what is left; it never fails as a whole.
    ///
    /// `standing` is asked by the store inside each transaction whether this process may still write.
    pub fn round(&mut self, target: &mut dyn Target, standing: Standing<'_>) -> Round {
        self.run(target, standing)
    }
}
