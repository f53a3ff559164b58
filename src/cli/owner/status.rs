//! `owner status`: who owns the store, and how it is.

use std::time::Duration;

use lockhouse::StoreName;
use lockhouse::describe::{duration, printable};
use lockhouse::owner::{Ownership, Phase, State, control_status, left_state, read_state, store_name};
use lockhouse::spool::SpoolStatus;
use serde_json::{Value, json};

use super::super::args::Global;
use super::super::exit::{self, Failure};
use super::super::output;

/// How long the owner may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// An owner says every five seconds that it lives.
const SILENCE: Duration = Duration::from_secs(15);

/// How an owner was found.
struct Found {
    owner: Ownership,
    /// It answered by itself just now. `None`: it has no socket to ask at.
    answers: Option<bool>,
    /// What lies in the store's spool.
    spool: Option<SpoolStatus>,
    /// What the last owner said, if it went with an error and nobody came.
    left: Option<State>,
}

/// Prints who owns the store.
pub(super) async fn status(global: Global) -> Result<i32, Failure> {
    let path = super::path(&global)?;
    let seen = read_state(&path)?;
    let store = store_name(&path)?;
    let spool = super::spool(&global);
    let found = match seen.state().and_then(|state| state.socket.as_ref()) {
        None => Found { owner: seen, answers: None, spool, left: left_state(&path)? },
        Some(_) => match control_status(&path, PATIENCE).await {
            Ok(state) => Found { owner: Ownership::Named(Box::new(state)), answers: Some(true), spool, left: None },
            // Whatever it is: the owner lives by its locks, and is not there to answer. Unless it has just gone.
            Err(_) => Found { owner: read_state(&path)?, answers: Some(false), spool, left: left_state(&path)? },
        },
    };
    let text = if global.json {
        let answers = if found.owner == Ownership::Nobody { None } else { found.answers };
        let mut object =
            json!({"schema": 1, "store": store, "owner": found.owner, "answers": answers, "spool": found.spool});
        if let Some(left) = &found.left {
            object["left"] = json!(left);
        }
        output::json_line(&object)
    } else {
        text(&store, &found)
    };
    output::print(&format!("{text}\n"))?;
    Ok(code(&found))
}

/// 0 with an owner that is ready, and with none. What needs a person goes first.
fn code(found: &Found) -> i32 {
    if found.spool.as_ref().is_some_and(|spool| spool.failed > 0) {
        return exit::NEEDS_A_PERSON;
    }
    match &found.owner {
        Ownership::Nobody => 0,
        Ownership::Named(state) if state.phase == Phase::Ready && found.answers != Some(false) && !is_silent(state) => {
            0
        }
        _ => exit::UNAVAILABLE,
    }
}

fn text(store: &StoreName, found: &Found) -> String {
    let batches = found.spool.as_ref().and_then(spool_line).map(|line| format!("  {line}"));
    let Some(state) = found.owner.state() else {
        let owner = match &found.owner {
            Ownership::Nobody => format!("store {store}: no owner"),
            owner => format!("store {store}: owned by {}", printable(&owner.to_string())),
        };
        let left = found.left.iter().filter_map(|left| {
            let at = left.heartbeat_at.strftime("%Y-%m-%d %H:%M:%SZ");
            let error = printable(left.last_error.as_deref()?);
            Some(format!("  the last one went at {at}: {error}"))
        });
        return std::iter::once(owner).chain(batches).chain(left).collect::<Vec<_>>().join("\n");
    };
    let mut lines = vec![format!("store {store}: owned by {}", summary(state))];
    if found.answers == Some(false) || (found.answers.is_none() && is_silent(state)) {
        lines.push(format!(
            "  it does not answer, and last said so {} ago: it may be stopped, or its process may be gone while one that it started keeps the store",
            duration(silence(state))
        ));
    }
    lines.extend(batches);
    if let Some(error) = &state.last_error {
        lines.push(format!("  last error: {}", printable(error)));
    }
    if let Some(remark) = &state.file_system {
        lines.push(format!("  file system: {}", printable(remark)));
    }
    lines.join("\n")
}

fn summary(state: &State) -> String {
    let since = state.started_at.strftime("%Y-%m-%d %H:%M:%SZ");
    printable(&format!("{state} since {since}"))
}

/// For how long the owner has said nothing, by the wall clock that it and this process go by.
#[expect(clippy::disallowed_methods, reason = "shown to people, by whose clock nothing is judged")]
fn silence(state: &State) -> Duration {
    let silence = jiff::Timestamp::now().duration_since(state.heartbeat_at);
    Duration::try_from(silence).unwrap_or_default()
}

fn is_silent(state: &State) -> bool {
    silence(state) > SILENCE
}

/// What is in a spool, and what to type, if anything is.
fn spool_line(spool: &SpoolStatus) -> Option<String> {
    batches(spool.backlog, spool.failed)
}

/// The same, of what `status` has.
pub(crate) fn spool_value_line(spool: &Value) -> Option<String> {
    batches(spool["backlog"].as_u64()?, spool["failed"].as_u64()?)
}

fn batches(backlog: u64, failed: u64) -> Option<String> {
    match (backlog, failed) {
        (0, 0) => None,
        (_, 0) => Some(format!("batches: {backlog} waiting, 0 failed")),
        _ => Some(format!("batches: {backlog} waiting, {failed} failed: lockhouse owner failed list")),
    }
}

/// One line for `status`.
pub(crate) fn line(owner: &Value) -> String {
    match serde_json::from_value::<State>(owner.clone()) {
        Ok(state) => format!("owner: {}", summary(&state)),
        Err(_) => {
            let word = |name: &str| owner.get(name).filter(|value| !value.is_null());
            match (word("pid"), word("host").and_then(Value::as_str)) {
                (Some(pid), Some(host)) => printable(&format!("owner: pid {pid} on {host}, which has said no more")),
                _ => "owner: one that has not said who it is".to_owned(),
            }
        }
    }
}
