//! What comes next: pure logic over the names that were listed and the seqs that were passed.
//!
//! Within an instance only the seq counts, never the time in the name: a clock that steps back would turn batches round.
//! Between instances the names decide, which is nearly the order of time; nothing is promised there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use super::name::BatchName;
use crate::clock::Moment;

/// How long an instance waits for a batch that is missing before it goes on without. Nothing but a hand, or a disk that
/// lost it, takes one away: its producer renamed it in before the next.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What is to be done with what was listed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// To be applied, in this order.
    pub(crate) ready: Vec<BatchName>,
    /// At or below the last seq of their instances: never applied.
    pub(crate) past: Vec<BatchName>,
    /// What is missing, one of each instance at most.
    pub(crate) gaps: Vec<Gap>,
}

/// Seqs of an instance that were not listed, although a later one was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gap {
    /// The instance.
    pub instance: String,
    /// The first seq that is missing.
    pub from: u64,
    /// The last one.
    pub to: u64,
}

/// Makes the plan. `last` has the last seq of each instance that was applied, failed or skipped; none is 0.
pub(crate) fn plan(listed: &[BatchName], last: &HashMap<String, u64>) -> Plan {
    let mut instances: BTreeMap<&str, Vec<&BatchName>> = BTreeMap::new();
    for name in listed {
        instances.entry(name.instance()).or_default().push(name);
    }
    let mut plan = Plan::default();
    let mut queues = Vec::with_capacity(instances.len());
    for (instance, mut names) in instances {
        names.sort_unstable_by_key(|name| (name.seq(), *name));
        let mut passed = last.get(instance).copied().unwrap_or(0);
        let mut queue = Vec::new();
        for name in names {
            if name.seq() <= last.get(instance).copied().unwrap_or(0) {
                plan.past.push(name.clone());
            } else if name.seq() == passed + 1 {
                passed += 1;
                queue.push(name);
            } else if name.seq() > passed + 1 {
                plan.gaps.push(Gap { instance: instance.to_owned(), from: passed + 1, to: name.seq() - 1 });
                break;
            }
            // Else it has the seq of the one before, and is past when that is applied.
        }
        queues.push(queue.into_iter());
    }
    let mut heads: BinaryHeap<Reverse<(&BatchName, usize)>> = BinaryHeap::new();
    for (index, queue) in queues.iter_mut().enumerate() {
        heads.extend(queue.next().map(|name| Reverse((name, index))));
    }
    while let Some(Reverse((name, index))) = heads.pop() {
        plan.ready.push(name.clone());
        heads.extend(queues[index].next().map(|name| Reverse((name, index))));
    }
    plan
}

/// Since when what is missing is waited for.
#[derive(Debug, Default)]
pub(crate) struct Gaps(HashMap<Gap, Moment>);

impl Gaps {
    /// Takes what is missing now, and gives until when each is waited for. What is no longer missing is forgotten.
    pub(crate) fn wait(&mut self, missing: &[Gap], now: Moment) -> Vec<(Gap, Moment)> {
        self.0.retain(|gap, _| missing.contains(gap));
        let since = |gap: &Gap| (gap.clone(), *self.0.entry(gap.clone()).or_insert(now) + PATIENCE);
        missing.iter().map(since).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(created: u64, instance: &str, seq: u64) -> BatchName {
        let id = format!("{instance}{seq}");
        BatchName::parse(format!("{created:020}-{instance}-{seq:012}-{id}").as_ref()).unwrap()
    }

    fn ids(names: &[BatchName]) -> Vec<&str> {
        names.iter().map(BatchName::id).collect()
    }

    fn passed(of: &[(&str, u64)]) -> HashMap<String, u64> {
        of.iter().map(|(instance, seq)| ((*instance).to_owned(), *seq)).collect()
    }

    #[test]
    fn an_instance_goes_by_its_seqs_and_never_by_its_clock() {
        let listed = [name(10, "a", 3), name(20, "b", 1), name(30, "a", 2), name(40, "a", 1), name(50, "b", 2)];
        assert_eq!(ids(&plan(&listed, &HashMap::new()).ready), ["b1", "a1", "a2", "a3", "b2"]);
    }

    #[test]
    fn a_gap_stops_its_instance_alone() {
        let listed = [name(1, "a", 1), name(2, "a", 3), name(3, "a", 4), name(4, "b", 1)];
        let plan = plan(&listed, &HashMap::new());
        assert_eq!(ids(&plan.ready), ["a1", "b1"]);
        assert_eq!(plan.gaps, [Gap { instance: "a".to_owned(), from: 2, to: 2 }]);
    }

    #[test]
    fn what_is_past_is_not_ready_whatever_its_time() {
        let listed = [name(9, "a", 1), name(8, "a", 2), name(7, "a", 3), name(7, "b", 5)];
        let plan = plan(&listed, &passed(&[("a", 2), ("b", 1)]));
        assert_eq!(ids(&plan.past), ["a1", "a2"]);
        assert_eq!(ids(&plan.ready), ["a3"]);
        assert_eq!(plan.gaps, [Gap { instance: "b".to_owned(), from: 2, to: 4 }]);
    }

    #[test]
    fn of_two_with_the_same_seq_one_waits_until_it_is_past() {
        let other = BatchName::parse("00000000000000000005-a-000000000001-other".as_ref()).unwrap();
        let listed = [name(1, "a", 1), other.clone(), name(6, "a", 2)];
        assert_eq!(ids(&plan(&listed, &HashMap::new()).ready), ["a1", "a2"]);
        assert_eq!(plan(&listed, &passed(&[("a", 1)])).past, [listed[0].clone(), other]);
    }

    #[test]
    fn a_gap_that_closes_is_forgotten_and_one_that_grows_is_another() {
        let gap = |to| Gap { instance: "a".to_owned(), from: 2, to };
        let (start, mut gaps) = (Moment::ORIGIN, Gaps::default());
        let second = Duration::from_secs(1);
        assert_eq!(gaps.wait(&[gap(2)], start), [(gap(2), start + PATIENCE)]);
        assert_eq!(gaps.wait(&[gap(2)], start + second), [(gap(2), start + PATIENCE)]);
        assert_eq!(gaps.wait(&[gap(3)], start + second), [(gap(3), start + second + PATIENCE)]);
        assert_eq!(gaps.wait(&[], start + second), []);
        assert_eq!(gaps.wait(&[gap(2)], start + second + second), [(gap(2), start + second + second + PATIENCE)]);
    }
}
