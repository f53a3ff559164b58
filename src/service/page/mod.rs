//! `/`: one page for people. All facts are in the HTML; with a script it is live, without one it loads itself anew.
//!
//! What it shows comes from outside: every text goes through [`maud`], which escapes it, after [`printable`] has taken
//! from it what breaks lines or turns the reading direction. The page loads nothing, and its policy forbids it to: a
//! text that got through nevertheless could not run.
//!
//! | file | what it has |
//! | --- | --- |
//! | `hero` | the phase in one word, and what that means |
//! | `leases` | who is in, who waits, what needs a person |
//! | `hour` | the last hour |
//! | `side` | the owner, this process, the audit trail |
//! | `words` | pieces of text |

mod hero;
mod hour;
mod leases;
mod side;
mod words;

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Deserialize;

use super::timeline::{Timeline, mark};
use super::watch::{Seen, Watched};
use crate::Measures;
use crate::describe::printable;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("live.js");
/// How often the page loads itself anew where no script keeps it live, in seconds.
const AGAIN: u32 = 5;

/// Everything that the page shows.
struct View {
    store: String,
    seen: Arc<Seen>,
    measures: Option<Arc<Measures>>,
    timeline: Timeline,
}

/// Which part of the page is asked for.
#[derive(Debug, Deserialize)]
pub(crate) struct Part {
    #[serde(default)]
    part: Option<String>,
}

/// The handler.
pub(crate) async fn page(State(watched): State<Arc<Watched>>, Query(part): Query<Part>) -> Response {
    let seen = watched.seen();
    // A store knows its own name better than whoever has not reached it yet.
    let store = seen.look.as_ref().map_or(&watched.store, |look| &look.status.store);
    let view = View {
        store: printable(store.as_str()),
        seen: seen.clone(),
        measures: watched.measures(),
        timeline: watched.timeline(),
    };
    // What the script exchanges is what the page was made with.
    if part.part.as_deref() == Some("live") {
        return ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], live(&view).into_string()).into_response();
    }
    let nonce = crate::entropy::unique().simple().to_string();
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let document = document(&view, &nonce).into_string();
    let mut response = ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], document).into_response();
    // It has nothing in it that a header could not carry.
    if let Ok(policy) = HeaderValue::try_from(policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

fn document(view: &View, nonce: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (hero::word(mark(&view.seen))) " · " (view.store) " · lockhouse" }
                link rel="icon" href="data:,";
                noscript { meta http-equiv="refresh" content=(AGAIN); }
                style nonce=(nonce) { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#leases" { "Skip to the leases" }
                div #live { (live(view)) }
                // Only a change of phase is read out, not each second's ages.
                p #said.unseen role="status" aria-live="polite" {}
                footer {
                    nav aria-label="The same for programs" {
                        a href="readyz" { "readyz" } a href="metrics" { "metrics" }
                        a href="v1/status" { "status" } a href="v1/events" { "events" }
                    }
                    p #link.link data-link="static" { "As of loading" }
                }
                script nonce=(nonce) { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

fn live(view: &View) -> Markup {
    html! {
        (hero::head(view))
        main {
            (leases::needs(view))
            div.columns {
                div { (hour::last_hour(view)) (leases::waiting(view)) (leases::inside(view)) }
                div { (side::owner(view)) (side::process(view)) (side::trail(view)) }
            }
        }
    }
}
