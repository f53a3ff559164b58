//! The head of the page: which store, what it is in, and what that means for whoever reads.

use maud::{Markup, html};

use super::View;
use super::words::{count, name};
use crate::describe::{brief, duration};
use crate::service::timeline::{Mark, mark};
use crate::service::watch::{Look, now};

/// The phase in one word.
pub(super) fn word(mark: Option<Mark>) -> &'static str {
    match mark {
        Some(Mark::Open) => "open",
        Some(Mark::Draining) => "draining",
        Some(Mark::Exclusive) => "exclusive",
        Some(Mark::Blocked) => "blocked",
        Some(Mark::Away) => "unreachable",
        None => "looking",
    }
}

/// The class that gives a phase its colours.
pub(super) fn class(mark: Option<Mark>) -> &'static str {
    match mark {
        Some(Mark::Away) | None => "away",
        mark => word(mark),
    }
}

pub(super) fn head(view: &View) -> Markup {
    let mark = mark(&view.seen);
    let look = view.seen.look.as_deref();
    html! {
        header class=(class(mark)) {
            div.store {
                p.brand { "lockhouse" }
                p.name { bdi { (view.store) } }
                @if let Some(look) = look {
                    p.facts {
                        span { (look.status.backend) }
                        @match look.status.generation {
                            Some(generation) => span { "generation " (generation) },
                            None => span { "no layout" },
                        }
                        span.age { "looked " (duration(look.age())) " ago" }
                    }
                }
            }
            div.phase {
                h1 #phase data-phase=(word(mark)) { (word(mark)) }
                p.meaning { (meaning(view, mark)) }
            }
            @if view.seen.trouble.is_some() || look.is_some_and(Look::is_old) {
                p.stale-look role="alert" {
                    @match look {
                        Some(look) => { "What is below is as it was " (duration(look.age())) " ago." },
                        None => { "Nothing has been seen of it yet." },
                    }
                }
            }
        }
    }
}

/// A sentence for the word.
fn meaning(view: &View, mark: Option<Mark>) -> String {
    if let Some(trouble) = &view.seen.trouble {
        let away = duration(now().since(trouble.since));
        return format!("The store has not answered for {away}: {}.", brief(trouble.message.trim_end_matches('.')));
    }
    let Some(look) = &view.seen.look else { return "The first look is under way.".to_owned() };
    let writers = look.status.writers.len();
    let fsck = look.status.fsck.as_ref().map(name).unwrap_or_default();
    match mark {
        Some(Mark::Draining) => {
            format!("{fsck} waits for {} to leave. New writers are kept out.", count(writers, "writer"))
        }
        Some(Mark::Exclusive) => format!("{fsck} has the store alone. Writers wait until it is done."),
        Some(Mark::Blocked) => "A stale fsck lease keeps everybody out until a person clears it.".to_owned(),
        _ if writers == 0 => "Nobody writes. Writers come and go as they like.".to_owned(),
        _ if writers == 1 => "1 writer in the store. The next fsck will wait for it.".to_owned(),
        _ => format!("{} in the store. The next fsck will wait for them.", count(writers, "writer")),
    }
}
