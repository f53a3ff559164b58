//! What the demo's notes say: the bars, the sums, and whether anything overlapped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockhouse::describe::duration;
use serde_json::{Value, json};

use super::super::exit::millis;
use super::cast::{Part, Role};
use super::work::Span;

/// The width of the bars.
const COLUMNS: u32 = 84;

/// The whole story.
pub(super) struct Timeline {
    parts: Vec<Part>,
    spans: Vec<Span>,
    begin: Duration,
    end: Duration,
}

/// Two pieces of work that must not have met.
struct Overlap<'a> {
    exclusive: &'a str,
    other: &'a str,
}

impl Timeline {
    pub(super) fn new(parts: Vec<Part>, spans: Vec<Span>) -> Timeline {
        let begin = parts.iter().map(|part| part.asked).min().unwrap_or_default();
        let end = parts.iter().map(|part| part.ended).max().unwrap_or_default();
        Timeline { parts, spans, begin, end }
    }

    /// What went wrong.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self
            .parts
            .iter()
            .filter_map(|part| Some(format!("{} ended badly, {}", part.name, part.failed.as_ref()?)))
            .collect();
        let overlaps = self.overlaps();
        let pairs: BTreeSet<(&str, &str)> = overlaps.iter().map(|overlap| (overlap.exclusive, overlap.other)).collect();
        faults.extend(
            pairs.iter().map(|(exclusive, other)| format!("{other} worked while {exclusive} had the store alone")),
        );
        let names = self.names();
        if !names.values().any(|role| *role == Role::Fsck) {
            faults.push("no fsck took part".to_owned());
        }
        let phases = self.phases();
        let first = phases.iter().map(|(_, begin, _)| *begin).min();
        let last = phases.iter().map(|(_, _, end)| *end).max();
        for (name, role) in &names {
            let own = || self.spans.iter().filter(|span| span.name == *name);
            let did = match role {
                Role::Fsck => own().next().is_some(),
                Role::Writer => {
                    let before = own().any(|span| Some(span.begin) < first);
                    before && own().any(|span| Some(span.begin) > last)
                }
            };
            if !did {
                faults.push(format!("{name} did not do its part"));
            }
        }
        faults
    }

    /// Bars over time, and what they amount to.
    pub(super) fn text(&self) -> String {
        let names = self.names();
        let widest = names.keys().map(|name| name.len()).max().unwrap_or(0);
        let mut text = format!("{:widest$}  {}\n", "", self.scale());
        // Writers first: `BTreeMap` has the fscks before them.
        for role in [Role::Writer, Role::Fsck] {
            for (name, _) in names.iter().filter(|(_, of)| **of == role) {
                let bar = self.bar(name, role);
                text.push_str(&format!("{name:widest$}  {}\n", bar.trim_end()));
            }
        }
        text.push_str(&format!(
            "{:widest$}  = writes   . waits   ~ waits for those inside   # has the store alone\n\n",
            ""
        ));
        let writes = self.spans.iter().filter(|span| self.role(&span.name) == Some(Role::Writer)).count();
        let turns = self.parts.iter().filter(|part| part.role == Role::Writer).count();
        let phases = self.phases().len();
        let overlaps = self.overlaps().len();
        text.push_str(&format!(
            "{writes} writes under {turns} leases and {phases} exclusive phases in {}; overlaps: {overlaps}\n",
            duration(self.end.saturating_sub(self.begin))
        ));
        text
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        let processes: Vec<Value> = self
            .names()
            .iter()
            .map(|(name, role)| {
                let spans = self.spans.iter().filter(|span| span.name == *name).count();
                let parts = self.parts.iter().filter(|part| part.name == *name).count();
                let kind = match role {
                    Role::Writer => "writer",
                    Role::Fsck => "fsck",
                };
                json!({"name": name, "kind": kind, "leases": parts, "writes": spans})
            })
            .collect();
        json!({
            "length_ms": millis(self.end.saturating_sub(self.begin)),
            "processes": processes,
            "exclusive_phases": self.phases().len(),
            "overlaps": self.overlaps().len(),
        })
    }

    fn names(&self) -> BTreeMap<&str, Role> {
        self.parts.iter().map(|part| (part.name.as_str(), part.role)).collect()
    }

    fn role(&self, name: &str) -> Option<Role> {
        self.parts.iter().find(|part| part.name == name).map(|part| part.role)
    }

    /// From when to when each fsck had the store alone: from its first note to its last.
    fn phases(&self) -> Vec<(&str, Duration, Duration)> {
        let mut phases: BTreeMap<&str, (Duration, Duration)> = BTreeMap::new();
        for span in &self.spans {
            if self.role(&span.name) != Some(Role::Fsck) {
                continue;
            }
            let end = span.end.unwrap_or(Duration::MAX);
            let phase = phases.entry(&span.name).or_insert((span.begin, end));
            *phase = (phase.0.min(span.begin), phase.1.max(end));
        }
        phases.into_iter().map(|(name, (begin, end))| (name, begin, end)).collect()
    }

    fn overlaps(&self) -> Vec<Overlap<'_>> {
        let mut overlaps = Vec::new();
        for (exclusive, begin, end) in self.phases() {
            let others = self.spans.iter().filter(|span| span.name != exclusive);
            overlaps.extend(
                others
                    .filter(|span| span.begin < end && begin < span.end.unwrap_or(Duration::MAX))
                    .map(|span| Overlap { exclusive, other: &span.name }),
            );
        }
        overlaps
    }

    fn scale(&self) -> String {
        let mut scale = String::new();
        let length = self.end.saturating_sub(self.begin).as_secs();
        let step = (length / 10).max(1);
        for second in (0..=length).step_by(usize::try_from(step).unwrap_or(1)) {
            let column = self.column(self.begin + Duration::from_secs(second));
            let label = format!("{second}s");
            if column >= scale.len() && column + label.len() <= COLUMNS as usize {
                scale.push_str(&" ".repeat(column - scale.len()));
                scale.push_str(&label);
            }
        }
        scale
    }

    fn bar(&self, name: &str, role: Role) -> String {
        let mut bar = vec![' '; COLUMNS as usize];
        let mut paint = |from: Duration, to: Duration, with: char| {
            for cell in &mut bar[self.column(from)..=self.column(to)] {
                *cell = with;
            }
        };
        let (waits, works) = match role {
            Role::Writer => ('.', '='),
            Role::Fsck => ('~', '#'),
        };
        let own: Vec<&Span> = self.spans.iter().filter(|span| span.name == name).collect();
        for part in self.parts.iter().filter(|part| part.name == name) {
            let works = own.iter().map(|span| span.begin).filter(|begin| *begin >= part.asked);
            let until = works.min().unwrap_or(part.ended).min(part.ended);
            paint(part.asked, until, waits);
        }
        for span in own {
            paint(span.begin, span.end.unwrap_or(self.end), works);
        }
        bar.into_iter().collect()
    }

    fn column(&self, at: Duration) -> usize {
        let length = self.end.saturating_sub(self.begin).max(Duration::from_millis(1));
        let share = at.saturating_sub(self.begin).as_secs_f64() / length.as_secs_f64();
        let last = COLUMNS - 1;
        // Within the bar, whatever the clock said.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the last column")]
        let column = (share * f64::from(COLUMNS)).clamp(0.0, f64::from(last)) as usize;
        column
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, role: Role, asked: u64, ended: u64) -> Part {
        Part {
            name: name.to_owned(),
            role,
            asked: Duration::from_millis(asked),
            ended: Duration::from_millis(ended),
            failed: None,
        }
    }

    fn span(name: &str, begin: u64, end: u64) -> Span {
        Span { name: name.to_owned(), begin: Duration::from_millis(begin), end: Some(Duration::from_millis(end)) }
    }

    fn story(between: Span) -> Timeline {
        let parts = vec![part("w", Role::Writer, 0, 9000), part("f", Role::Fsck, 2000, 5000)];
        let spans =
            vec![span("w", 1000, 1500), span("f", 3000, 3020), span("f", 4000, 4020), between, span("w", 6000, 8000)];
        Timeline::new(parts, spans)
    }

    #[test]
    fn a_good_story_has_no_faults() {
        let story = story(span("w", 2900, 3000));
        assert_eq!(story.faults(), Vec::<String>::new());
        let text = story.text();
        assert!(text.contains("overlaps: 0"), "{text}");
        assert!(text.contains('~') && text.contains('#') && text.contains('='), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn a_write_between_two_notes_of_an_fsck_is_an_overlap() {
        let story = story(span("w", 3500, 3520));
        assert_eq!(story.faults(), ["w worked while f had the store alone"]);
    }

    #[test]
    fn an_unfinished_exclusive_phase_overlaps_all_that_follows() {
        let mut story = story(span("w", 2900, 3000));
        story.spans[2].end = None;
        assert!(story.faults()[0].contains("had the store alone"));
    }

    #[test]
    fn who_only_worked_before_did_not_do_its_part() {
        let mut story = story(span("w", 2900, 3000));
        story.spans.pop();
        assert_eq!(story.faults(), ["w did not do its part"]);
    }
}
