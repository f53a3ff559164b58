//! What a waiting acquisition tells: who is in the way, after two seconds and then at growing intervals.

use std::time::Duration;

use lockhouse::clock::{Clock, Moment, SystemClock};
use lockhouse::describe::duration;
use lockhouse::{DrainProgress, Event, LeaseInfo, LeaseState};
use serde_json::json;

use super::console::Console;
use super::exit::millis;
use super::table::fit;

/// When the first line is due.
const FIRST: Duration = Duration::from_secs(2);
/// The longest pause between two lines.
const LONGEST: Duration = Duration::from_secs(60);
/// Between two lines that bring news.
const NEWS: Duration = Duration::from_secs(1);
/// The widest line about one lease: a label may have thousands of characters.
const LINE: usize = 240;
/// How many of the writers are named.
const NAMED: usize = 5;

/// Tells about one acquisition.
pub(crate) struct Reporter<'a> {
    console: &'a Console,
    began: Moment,
    /// How long the acquisition waits for an fsck in the way.
    patience: Duration,
    stage: Stage,
    due: Option<Moment>,
    pause: Duration,
    last_line: Option<Moment>,
}

/// What is waited for.
enum Stage {
    Nothing,
    Behind { lease: Box<LeaseInfo>, seen: Moment },
    Draining { progress: Box<DrainProgress>, seen: Moment, told_stale: usize },
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(console: &'a Console, patience: Duration) -> Reporter<'a> {
        Reporter {
            console,
            began: SystemClock.now(),
            patience,
            stage: Stage::Nothing,
            due: None,
            pause: FIRST,
            last_line: None,
        }
    }

    /// Completes when the next line is due.
    pub(crate) async fn due(&self) {
        match self.due {
            Some(due) => SystemClock.sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Says the line that is due.
    pub(crate) fn tell(&mut self) {
        let now = SystemClock.now();
        self.last_line = Some(now);
        self.due = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST);
        match &mut self.stage {
            Stage::Nothing => self.due = None,
            Stage::Behind { lease, seen } => {
                let (waited, patience) = (now.since(self.began), self.patience);
                behind(self.console, lease, waited, patience, now.since(*seen));
            }
            Stage::Draining { progress, seen, told_stale } => {
                *told_stale = progress.stale;
                draining(self.console, progress, now.since(*seen));
            }
        }
    }

    /// The acquisition met somebody, or watches whether somebody lives.
    pub(crate) fn on_event(&mut self, event: Event) {
        let now = SystemClock.now();
        match event {
            Event::Waiting { behind } => {
                let stale = behind.state != LeaseState::Fresh;
                self.stage = Stage::Behind { lease: behind, seen: now };
                self.due.get_or_insert(self.began + FIRST);
                if stale {
                    // It will not go away by itself: nobody should have to wait to learn that.
                    self.tell();
                }
            }
            Event::Watching { leases, at_most } => watching(self.console, &leases, at_most),
            _ => {}
        }
    }

    /// The drain looked.
    pub(crate) fn on_progress(&mut self, progress: DrainProgress) {
        let now = SystemClock.now();
        self.console.live(&live(&progress));
        let told_stale = match &self.stage {
            Stage::Draining { told_stale, .. } => *told_stale,
            Stage::Nothing | Stage::Behind { .. } => {
                self.pause = FIRST;
                self.due = Some(now + FIRST);
                0
            }
        };
        let news = progress.stale > told_stale;
        let progress = Box::new(progress);
        self.stage = Stage::Draining { progress, seen: now, told_stale };
        if news && let Some(due) = self.due {
            let earliest = self.last_line.map_or(now, |last| last + NEWS);
            self.due = Some(due.min(earliest));
        }
    }
}

/// Says that leases are watched before they are taken for dead.
pub(crate) fn watching(console: &Console, leases: &[LeaseInfo], at_most: Duration) {
    let mut text = format!(
        "watching for {} whether {} alive:",
        duration(at_most),
        match leases.len() {
            1 => "it is".to_owned(),
            n => format!("any of {n} is"),
        }
    );
    text.push_str(&named(leases));
    console.event("watching", json!({"leases": leases, "for_ms": millis(at_most)}), &text);
}

fn behind(console: &Console, lease: &LeaseInfo, waited: Duration, patience: Duration, ago: Duration) {
    let mut lease = lease.clone();
    let stale = lease.state != LeaseState::Fresh;
    // The age is that of the sighting. A stale lease has been ageing since, a fresh one is refreshed.
    lease.age = lease.age.filter(|_| stale).map(|age| age + ago);
    let left = patience.saturating_sub(waited);
    let what = if stale { "a stale fsck lease is in the way" } else { "an fsck is in the way" };
    let mut text = format!("waiting for {}, for another {} at most: {what}: {lease}", duration(waited), duration(left));
    if stale {
        text.push_str("; it will not go away by itself: if its process is dead, type `lockhouse clear`");
    }
    console.event(
        "waiting",
        json!({"behind": lease, "stale": stale, "waited_ms": millis(waited), "left_ms": millis(left)}),
        &text,
    );
}

fn draining(console: &Console, progress: &DrainProgress, ago: Duration) {
    let mut progress = progress.clone();
    progress.elapsed += ago;
    let mut text = summary(&progress);
    text.push_str(&named(&progress.waiting_for));
    if progress.stale > 0 {
        text.push_str(
            "\nthe stale ones will not leave by themselves: if their processes are dead, type `lockhouse prune`",
        );
    }
    let fields = serde_json::to_value(&progress).unwrap_or_default();
    console.event("draining", fields, &text);
}

/// The first few leases, a line each.
fn named(leases: &[LeaseInfo]) -> String {
    let mut text = String::new();
    for lease in leases.iter().take(NAMED) {
        text.push_str(&format!("\n{}", fit(&lease.to_string(), LINE)));
    }
    if leases.len() > NAMED {
        text.push_str(&format!("\nand {} more", leases.len() - NAMED));
    }
    text
}

fn summary(progress: &DrainProgress) -> String {
    let mut text = format!("draining for {} of {}: ", duration(progress.elapsed), duration(progress.budget));
    if progress.waiting_for_fences {
        text.push_str("waiting for a fenced transaction to end");
    } else {
        let n = progress.waiting_for.len();
        let noun = if n == 1 { "writer" } else { "writers" };
        text.push_str(&format!("waiting for {n} {noun}"));
    }
    if progress.stale > 0 {
        text.push_str(&format!(", {} stale", progress.stale));
    }
    if progress.turned_away > 0 {
        text.push_str(&format!(", {} turned away", progress.turned_away));
    }
    text
}

fn live(progress: &DrainProgress) -> String {
    let mut text = summary(progress);
    if let Some(lease) = progress.waiting_for.first() {
        text.push_str(&format!(": {lease}"));
    }
    text
}
