//! The last hour: what the store was in as a band, and how many wrote above it.

use std::fmt::Write;

use maud::{Markup, html};

use super::View;
use super::hero::{class, word};
use super::words::count;
use crate::describe::duration;
use crate::service::timeline::{Mark, SLOT, SLOTS, Slot};

/// The heights of the curve and of the band, in units of the drawing.
const CURVE: f64 = 40.0;
const BAND: usize = 12;
/// All that a slot can be in.
const MARKS: [Mark; 5] = [Mark::Open, Mark::Draining, Mark::Exclusive, Mark::Blocked, Mark::Away];

pub(super) fn last_hour(view: &View) -> Markup {
    let slots: Vec<Slot> = view.timeline.slots().copied().collect();
    let most = slots.iter().map(|slot| slot.writers).max().unwrap_or_default();
    let offset = SLOTS - slots.len();
    let height = CURVE as usize + BAND;
    let seen: Vec<(Mark, usize)> = MARKS
        .iter()
        .map(|mark| (*mark, slots.iter().filter(|slot| slot.mark == Some(*mark)).count()))
        .filter(|(_, slots)| *slots > 0)
        .collect();
    html! {
        section aria-labelledby="hour" {
            h2 #hour { "The last hour " span.tally { "at most " (count(most, "writer")) } }
            svg.hour viewBox=(format!("0 0 {SLOTS} {height}")) preserveAspectRatio="none" role="img"
                aria-label=(summary(&seen, most)) {
                rect.unseen-band x="0" y=(CURVE) width=(SLOTS) height=(BAND) {}
                path.curve d=(curve(&slots, offset, |slot| slot.writers, most)) {}
                path.stuck d=(curve(&slots, offset, |slot| slot.stuck, most)) {}
                @for (at, length, mark) in runs(&slots) {
                    rect class=(format!("band {}", class(Some(mark)))) x=(offset + at) y=(CURVE) width=(length)
                        height=(BAND) {}
                }
            }
            div.axis aria-hidden="true" { span { "an hour ago" } span { "30 min" } span { "now" } }
            ul.legend {
                @for (mark, slots) in seen {
                    li { span class=(format!("swatch {}", class(Some(mark)))) aria-hidden="true" {} (word(Some(mark))) " " (time(slots)) }
                }
            }
        }
    }
}

/// About how long so many slots are: each counts for the worst that was in it.
fn time(slots: usize) -> String {
    duration(SLOT * u32::try_from(slots).unwrap_or(u32::MAX))
}

fn summary(seen: &[(Mark, usize)], most: usize) -> String {
    let mut text = format!("In the last hour at most {}", count(most, "writer"));
    for (mark, slots) in seen {
        // Writing to a string cannot fail.
        let _ = write!(text, "; {} {}", word(Some(*mark)), time(*slots));
    }
    text
}

/// Equal slots side by side: where, how many, and what.
fn runs(slots: &[Slot]) -> Vec<(usize, usize, Mark)> {
    let mut runs: Vec<(usize, usize, Mark)> = Vec::new();
    for (at, slot) in slots.iter().enumerate() {
        let Some(mark) = slot.mark else { continue };
        match runs.last_mut() {
            Some((begin, length, last)) if *last == mark && *begin + *length == at => *length += 1,
            _ => runs.push((at, 1, mark)),
        }
    }
    runs
}

/// An area of steps, one a slot.
fn curve(slots: &[Slot], offset: usize, of: impl Fn(&Slot) -> usize, most: usize) -> String {
    let mut path = format!("M{offset} {CURVE}");
    let scale = (CURVE - 2.0) / most.max(1) as f64;
    for (at, slot) in slots.iter().enumerate() {
        let y = CURVE - of(slot) as f64 * scale;
        // Writing to a string cannot fail.
        let _ = write!(path, "V{y:.1}H{}", offset + at + 1);
    }
    path + &format!("V{CURVE}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_slots_are_one_run_and_a_gap_parts_them() {
        let slot = |mark| Slot { mark, writers: 0, stuck: 0 };
        let (open, none) = (Some(Mark::Open), None);
        let slots: Vec<Slot> = [open, open, none, open, Some(Mark::Away)].map(slot).into();
        assert_eq!(runs(&slots), [(0, 2, Mark::Open), (3, 1, Mark::Open), (4, 1, Mark::Away)]);
    }
}
