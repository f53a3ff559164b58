//! `/healthz`: whether the supervisor and its watchdog go round. `/readyz`: whether the next fsck would pass, and this
//! process may write; else why not.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

use super::watch::{Health, Watched};
use crate::describe::duration;

/// Why something is not ready. The text names no holder: it is open to whoever reaches it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Reason {
    /// In one word, for programs.
    pub(crate) reason: &'static str,
    /// For people, with the next step.
    pub(crate) message: String,
}

/// Why the supervisor is not well.
fn illness(health: Health) -> Option<Reason> {
    let message = match health {
        Health::Well => return None,
        Health::Silent(silence) => {
            let silence = duration(silence);
            format!("the supervisor or its watchdog has shown no sign of life for {silence}; restart this process")
        }
        Health::Ended => "the supervisor has ended; restart this process".to_owned(),
    };
    Some(Reason { reason: "supervisor", message })
}

/// Everything that is not as it should be, the most pressing first.
pub(crate) fn reasons(watched: &Watched) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = illness(watched.health()).into_iter().collect();
    let mut say = |reason, message| reasons.push(Reason { reason, message });
    for lease in watched.measures().iter().flat_map(|measures| &measures.leases) {
        if lease.is_released() {
            continue;
        }
        if let Err(error) = lease.check() {
            say("lease_invalid", error.to_string());
        }
    }
    let seen = watched.seen();
    if let Some(trouble) = &seen.trouble {
        say("store_unreachable", trouble.message.clone());
    }
    let Some(look) = &seen.look else {
        if seen.trouble.is_none() {
            say("not_looked_yet", "the store has not answered yet".to_owned());
        }
        return reasons;
    };
    if look.is_old() && seen.trouble.is_none() {
        say("look_is_old", format!("the store was last looked at {} ago", duration(look.age())));
    }
    if look.status.generation.is_none() {
        say("no_layout", "the store has no layout; if its name is right, run: lockhouse init".to_owned());
    }
    let (fsck, writers) = seen.needing_a_person();
    if fsck {
        say(
            "stale_fsck",
            "a stale fsck lease keeps everybody out; if its process is dead, run: lockhouse clear".to_owned(),
        );
    }
    if writers > 0 {
        let (leases, verb) = if writers == 1 { ("lease", "is") } else { ("leases", "are") };
        say(
            "stale_writers",
            format!(
                "{writers} writer {leases} {verb} stale or malformed, and the next fsck will not pass; if dead, run: lockhouse prune"
            ),
        );
    }
    reasons
}

/// The handler of `/healthz`.
pub(crate) async fn healthz(State(watched): State<Arc<Watched>>, headers: HeaderMap) -> Response {
    answer(illness(watched.health()).into_iter().collect(), &headers)
}

/// The handler of `/readyz`.
pub(crate) async fn readyz(State(watched): State<Arc<Watched>>, headers: HeaderMap) -> Response {
    answer(reasons(&watched), &headers)
}

/// Lines for people and logs, JSON for who asks for it.
fn answer(reasons: Vec<Reason>, headers: &HeaderMap) -> Response {
    let code = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let mut response = if accepts.into_iter().any(|accept| accept.contains("application/json")) {
        (code, Json(json!({"schema": 1, "ok": reasons.is_empty(), "reasons": reasons}))).into_response()
    } else if reasons.is_empty() {
        (code, "ok\n").into_response()
    } else {
        let lines = reasons.iter().map(|reason| {
            let message = crate::describe::printable(&reason.message);
            format!("{}: {message}\n", reason.reason)
        });
        (code, lines.collect::<String>()).into_response()
    };
    response.headers_mut().insert(header::VARY, header::HeaderValue::from_static("accept"));
    response
}
