//! Who could act when, and whether that was ever two who must not; and who was refused because of himself.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::clock::Moment;

/// Something that ended or began being able to write the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at: Moment,
    pub(crate) what: What,
}

/// What the history records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    CanWrite {
        lease: String,
        node: usize,
    },
    CanFsck {
        lease: String,
        node: usize,
    },
    /// A transaction of an earlier writer became visible.
    Committed {
        node: usize,
    },
    CanNot {
        lease: String,
    },
    /// An acquisition was refused because of a lease that its own process was giving back.
    RefusedByOwn {
        lease: String,
        node: usize,
    },
    /// What a lease is for was refused, or stored as something else.
    Misread {
        reason: String,
        node: usize,
    },
    /// A peer took an fsck lease of ours for stale that was younger than any stale age.
    TakenYoung {
        node: usize,
    },
    Note(String),
}

/// What must never happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    Overlap {
        at: Moment,
        who: String,
        beside: String,
        trace: Vec<String>,
    },
    /// A holder could act although its document was gone.
    Removed {
        at: Moment,
        lease: String,
        trace: Vec<String>,
    },
    /// A document stands that no process believes in.
    Orphan {
        id: String,
        trace: Vec<String>,
    },
    /// Nobody is in the way of himself.
    InOwnWay {
        at: Moment,
        node: usize,
        trace: Vec<String>,
    },
    /// A holder's text was taken for something else than a text.
    Misread {
        at: Moment,
        reason: String,
        trace: Vec<String>,
    },
    /// A lease was cleared that nobody may call stale.
    TakenYoung {
        at: Moment,
        node: usize,
        trace: Vec<String>,
    },
    /// After everything healed, an acquisition or a release still did not end.
    Stuck {
        node: usize,
        trace: Vec<String>,
    },
}

impl Violation {
    pub(crate) fn is_overlap(&self) -> bool {
        matches!(self, Violation::Overlap { .. })
    }

    pub(crate) fn is_in_own_way(&self) -> bool {
        matches!(self, Violation::InOwnWay { .. })
    }

    pub(crate) fn is_misread(&self) -> bool {
        matches!(self, Violation::Misread { .. })
    }

    pub(crate) fn is_taken_young(&self) -> bool {
        matches!(self, Violation::TakenYoung { .. })
    }

    pub(crate) fn is_orphan(&self) -> bool {
        matches!(self, Violation::Orphan { .. })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace = match self {
            Violation::Overlap { at, who, beside, trace } => {
                writeln!(f, "at {:?} {who} could act beside {beside}", at.since(Moment::ORIGIN))?;
                trace
            }
            Violation::Removed { at, lease, trace } => {
                writeln!(f, "at {:?} {lease} could act without a document", at.since(Moment::ORIGIN))?;
                trace
            }
            Violation::Orphan { id, trace } => {
                writeln!(f, "{id} stands and nobody believes in it")?;
                trace
            }
            Violation::InOwnWay { at, node, trace } => {
                writeln!(f, "at {:?} node {node} was refused because of itself", at.since(Moment::ORIGIN))?;
                trace
            }
            Violation::Misread { at, reason, trace } => {
                writeln!(f, "at {:?} {reason:?} was not stored as it is", at.since(Moment::ORIGIN))?;
                trace
            }
            Violation::TakenYoung { at, node, trace } => {
                writeln!(f, "at {:?} node {node} cleared a young lease", at.since(Moment::ORIGIN))?;
                trace
            }
            Violation::Stuck { node, trace } => {
                writeln!(f, "node {node} did not come to an end")?;
                trace
            }
        };
        const SHOWN: usize = 60;
        for line in &trace[trace.len().saturating_sub(SHOWN)..] {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// What happened in a search: a search in which nothing happens proves nothing.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    pub(crate) schedules: u64,
    pub(crate) writers_granted: u64,
    pub(crate) fscks_granted: u64,
    pub(crate) leases_removed: u64,
    pub(crate) losses: u64,
    pub(crate) recoveries: u64,
    pub(crate) statements: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.schedules += other.schedules;
        self.writers_granted += other.writers_granted;
        self.fscks_granted += other.fscks_granted;
        self.leases_removed += other.leases_removed;
        self.losses += other.losses;
        self.recoveries += other.recoveries;
        self.statements += other.statements;
    }
}

/// Reads a history as it grows, each entry once.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    read: usize,
    writers: BTreeMap<String, usize>,
    fscks: BTreeMap<String, usize>,
}

impl Checker {
    /// Finds the first thing in the unread entries that must not happen.
    pub(crate) fn check(&mut self, history: &[Entry]) -> Result<(), Violation> {
        while let Some(entry) = history.get(self.read) {
            self.read += 1;
            self.step(entry, &history[..self.read])?;
        }
        Ok(())
    }

    fn step(&mut self, entry: &Entry, so_far: &[Entry]) -> Result<(), Violation> {
        let overlap =
            |who: String, beside: String| Err(Violation::Overlap { at: entry.at, who, beside, trace: trace(so_far) });
        match &entry.what {
            What::CanWrite { lease, node } => {
                if let Some((fsck, other)) = self.fscks.iter().next() {
                    return overlap(format!("writer {lease} of node {node}"), format!("fsck {fsck} of node {other}"));
                }
                self.writers.insert(lease.clone(), *node);
            }
            What::CanFsck { lease, node } => {
                let other = self.fscks.iter().next().or(self.writers.iter().next());
                if let Some((beside, other)) = other {
                    return overlap(format!("fsck {lease} of node {node}"), format!("{beside} of node {other}"));
                }
                self.fscks.insert(lease.clone(), *node);
            }
            What::Committed { node } => {
                if let Some((fsck, other)) = self.fscks.iter().next() {
                    return overlap(format!("a transaction of node {node}"), format!("fsck {fsck} of node {other}"));
                }
            }
            What::CanNot { lease } => {
                self.writers.remove(lease);
                self.fscks.remove(lease);
            }
            What::RefusedByOwn { node, .. } => {
                return Err(Violation::InOwnWay { at: entry.at, node: *node, trace: trace(so_far) });
            }
            What::Misread { reason, .. } => {
                return Err(Violation::Misread { at: entry.at, reason: reason.clone(), trace: trace(so_far) });
            }
            What::TakenYoung { node } => {
                return Err(Violation::TakenYoung { at: entry.at, node: *node, trace: trace(so_far) });
            }
            What::Note(_) => {}
        }
        Ok(())
    }
}

pub(crate) fn trace(history: &[Entry]) -> Vec<String> {
    let line = |entry: &Entry| {
        let at: Duration = entry.at.since(Moment::ORIGIN);
        format!("{:>9.3} {:?}", at.as_secs_f64(), entry.what)
    };
    history.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64, what: What) -> Entry {
        Entry { at: Moment::ORIGIN + Duration::from_millis(millis), what }
    }

    #[test]
    fn the_checker_sees_each_kind_of_overlap_and_nothing_else() {
        let writer = |t, lease: &str| at(t, What::CanWrite { lease: lease.to_owned(), node: 0 });
        let fsck = |t, lease: &str| at(t, What::CanFsck { lease: lease.to_owned(), node: 1 });
        let gone = |t, lease: &str| at(t, What::CanNot { lease: lease.to_owned() });
        let check = |history: &[Entry]| Checker::default().check(history);
        check(&[
            writer(1, "a"),
            writer(2, "b"),
            gone(3, "a"),
            gone(4, "b"),
            fsck(5, "f"),
            gone(6, "f"),
            writer(7, "c"),
        ])
        .unwrap();
        assert!(check(&[writer(1, "a"), fsck(2, "f")]).unwrap_err().is_overlap());
        assert!(check(&[fsck(1, "f"), writer(2, "a")]).unwrap_err().is_overlap());
        assert!(check(&[fsck(1, "f"), fsck(2, "g")]).unwrap_err().is_overlap());
        assert!(check(&[fsck(1, "f"), at(2, What::Committed { node: 0 })]).unwrap_err().is_overlap());
    }
}
