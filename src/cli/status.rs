//! `status`: who holds what. Takes no lease and writes nothing.

use std::io::IsTerminal;
use std::time::Duration;

use lockhouse::clock::{Clock, SystemClock};
use lockhouse::describe::{duration, printable};
use lockhouse::{ErrorKind, HistoryEntry, LeaseInfo, LeaseState, Status, StoreState};
use nix::sys::signal::Signal;

use super::args::StatusArgs;
use super::exit::{self, Failure};
use super::store::{self, Store};
use super::table::{self, Table, fit};
use super::{Context, output};

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(1);
/// The widest line.
const WIDTH: usize = 100;
/// How many leases are named below the table.
const NAMED: usize = 10;

/// Prints the status, once or every second.
pub(crate) async fn status(context: &mut Context, args: &StatusArgs) -> Result<i32, Failure> {
    let (global, console) = (context.global.clone(), context.console.clone());
    let looking = async {
        let store = store::open(&global, &console, None).await?;
        if args.watch {
            watch(view_of(&global), &global, &store).await
        } else {
            let view = view_of(&global);
            let status = look(&global, &store).await?;
            output::print(&show(&view, &store, &status).await)?;
            Ok(code(&status))
        }
    };
    tokio::select! {
        biased;
        signal = context.signals.interrupted() => match signal {
            // How one leaves it.
            Ok(Signal::SIGINT) if args.watch => Ok(0),
            signal => Err(Failure::interrupted(signal)),
        },
        result = looking => result,
    }
}

/// How to show it.
struct View {
    json: bool,
    colour: bool,
    ids: bool,
}

fn view_of(global: &super::args::Global) -> View {
    View { json: global.json, colour: output::stdout_has_colour(), ids: global.verbose > 0 }
}

/// What holds the store, its owner too.
async fn look(global: &super::args::Global, store: &Store) -> lockhouse::Result<Status> {
    #[cfg_attr(not(feature = "local"), expect(unused_mut, reason = "no store has an owner"))]
    let mut status = store.coordinator.status().await?;
    #[cfg(feature = "local")]
    {
        status.owner = super::owner::value(global);
        status.spool = super::owner::spool(global).map(|spool| serde_json::json!(spool));
    }
    #[cfg(not(feature = "local"))]
    let _ = global;
    Ok(status)
}

async fn watch(view: View, global: &super::args::Global, store: &Store) -> Result<i32, Failure> {
    let redraw = !view.json && std::io::stdout().is_terminal();
    let mut first = true;
    loop {
        let text = match look(global, store).await {
            Ok(status) => show(&view, store, &status).await,
            // It may answer again: whoever watches an outage wants to see its end.
            Err(error) if error.kind() == ErrorKind::Unavailable && !first => {
                let failure = Failure::from(error);
                if view.json {
                    let object = serde_json::json!({"schema": 1, "error": failure.json()});
                    output::json_line(&object) + "\n"
                } else {
                    fit(&failure.text(), 2 * WIDTH) + "\n"
                }
            }
            Err(error) => return Err(error.into()),
        };
        let text = match (redraw, first || view.json) {
            (true, _) => format!("\u{1b}[H\u{1b}[2J{text}"),
            (false, true) => text,
            (false, false) => format!("\n{text}"),
        };
        first = false;
        if !output::print_while_read(&text)? {
            return Ok(0);
        }
        SystemClock.sleep_until(SystemClock.now() + EVERY).await;
    }
}

/// The exit code: what needs a person goes first.
fn code(status: &Status) -> i32 {
    let needs_a_person = status.needing_a_person().next().is_some() || status.generation.is_none() || failed(status);
    match status.state {
        _ if needs_a_person => exit::NEEDS_A_PERSON,
        StoreState::Open => 0,
        StoreState::Draining | StoreState::Exclusive => exit::LOCKED,
        // Blocked, and what a later library may add.
        _ => exit::NEEDS_A_PERSON,
    }
}

/// Whether a batch could not be applied.
fn failed(status: &Status) -> bool {
    let failed = status.spool.as_ref().and_then(|spool| spool["failed"].as_u64());
    failed.is_some_and(|failed| failed > 0)
}

async fn show(view: &View, store: &Store, status: &Status) -> String {
    if view.json {
        return output::json_line(status) + "\n";
    }
    // The trail tells why an earlier job left the store as it is. Without it the rest is worth showing all the same.
    let history = store.coordinator.history().await.unwrap_or_default();
    text(view, status, &history)
}

fn text(view: &View, status: &Status, history: &[HistoryEntry]) -> String {
    let mut lines = vec![headline(view, status)];
    if status.fsck.is_some() || !status.writers.is_empty() {
        lines.push(String::new());
        lines.extend(leases(view, status));
    }
    #[cfg(feature = "local")]
    if let Some(owner) = &status.owner {
        lines.push(String::new());
        lines.push(fit(&super::owner::line(owner), WIDTH));
    }
    #[cfg(feature = "local")]
    if let Some(line) = status.spool.as_ref().and_then(super::owner::spool_value_line) {
        lines.push(String::new());
        lines.push(line);
    }
    let needs = needs(status);
    if !needs.is_empty() {
        lines.push(String::new());
        lines.extend(needs);
    }
    if let Some(line) = last_failure(history) {
        lines.push(String::new());
        lines.push(line);
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn headline(view: &View, status: &Status) -> String {
    let generation = match status.generation {
        Some(generation) => format!("generation {generation}"),
        None => "no layout".to_owned(),
    };
    let n = status.writers.len();
    let writers = format!("{n} writer{}", if n == 1 { "" } else { "s" });
    let state = status.state.to_string();
    let rest = format!(", {writers}, {generation}");
    // The name may be long; what it is about must not be cut.
    let room = WIDTH.saturating_sub("store : ".len() + state.len() + rest.len());
    let name = fit(&status.store.to_string(), room);
    let state = match status.state {
        StoreState::Open => state,
        StoreState::Blocked => paint(view, RED, &state),
        _ => paint(view, YELLOW, &state),
    };
    format!("store {name}: {state}{rest}")
}

fn leases(view: &View, status: &Status) -> Vec<String> {
    let mut table =
        Table::new(&[("kind", 6), ("holder", 34), ("for", 20), ("heartbeat", 11), ("since", 10), ("state", 9)]);
    let all: Vec<&LeaseInfo> = status.fsck.iter().chain(&status.writers).collect();
    for lease in &all {
        let of = lease.holder.as_ref();
        let what = match (&lease.reason, of.and_then(|of| of.label.as_ref())) {
            (Some(reason), Some(label)) => format!("{label}: {reason}"),
            (Some(text), None) | (None, Some(text)) => text.clone(),
            (None, None) => String::new(),
        };
        let day = "%Y-%m-%d";
        let since = lease.acquired.map(|at| {
            let today = at.strftime(day).to_string() == status.now.strftime(day).to_string();
            at.strftime(if today { "%H:%M:%SZ" } else { day }).to_string()
        });
        let state = match (lease.state, lease.phase) {
            (LeaseState::Fresh, Some(phase)) => phase.to_string(),
            (state, _) => state.to_string(),
        };
        table.row([
            lease.kind.to_string(),
            table::lease_holder(lease),
            printable(&what),
            lease.age.map(duration).unwrap_or_default(),
            since.unwrap_or_default(),
            state,
        ]);
    }
    let mut lines = table.lines().into_iter();
    let mut shown: Vec<String> = lines.next().into_iter().collect();
    for (line, lease) in lines.zip(all) {
        shown.push(match lease.state {
            LeaseState::Fresh => line,
            LeaseState::Stale => paint(view, YELLOW, &line),
            _ => paint(view, RED, &line),
        });
        if view.ids {
            shown.push(format!("  {}", printable(&lease.id)));
        }
    }
    shown
}

/// What needs a person, and what to type.
fn needs(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    if status.generation.is_none() {
        lines.push("it has no layout, so its name may be mistyped; if it is the right one: lockhouse init".to_owned());
    }
    let fsck = status.fsck.iter().filter(|lease| lease.state != LeaseState::Fresh);
    for lease in fsck {
        let peer = if lease.peer { " --peer-is-dead" } else { "" };
        let who = who(lease);
        lines
            .push(fit(&format!("the fsck lease is {} and keeps everybody out; if {who} is dead:", lease.state), WIDTH));
        lines.push(format!("  lockhouse clear{peer}"));
    }
    let stale: Vec<&LeaseInfo> = status.writers.iter().filter(|lease| lease.state != LeaseState::Fresh).collect();
    if !stale.is_empty() {
        let (subject, verb, owner) = match stale.len() {
            1 => ("1 writer".to_owned(), "refreshes", "its process is"),
            n => (format!("{n} writers"), "refresh", "their processes are"),
        };
        let peer = if stale.iter().any(|lease| lease.peer) { " --peer-is-dead" } else { "" };
        lines.push(format!("{subject} no longer {verb}, and the next fsck will not pass; if {owner} dead:"));
        lines.push(format!("  lockhouse prune{peer}"));
        for lease in stale.iter().take(NAMED) {
            lines.push(fit(&format!("  {}  {}", id(lease), who(lease)), WIDTH));
        }
        if stale.len() > NAMED {
            lines.push(format!("  and {} more", stale.len() - NAMED));
        }
    }
    for lease in status.fsck.iter().chain(&status.writers).filter(|lease| lease.inherited).take(NAMED) {
        lines.push(fit(&format!("{} is gone; what it started keeps its lease: {}", who(lease), id(lease)), WIDTH));
    }
    let behind = status.fsck.iter().chain(&status.writers).any(|lease| lease.clock_behind);
    if behind {
        lines.push("the server's clock was set back: some heartbeats lie in its future, and show the age 0".to_owned());
    }
    lines
}

fn id(lease: &LeaseInfo) -> String {
    printable(&lease.id)
}

/// The process of a lease in a sentence.
fn who(lease: &LeaseInfo) -> String {
    match &lease.holder {
        Some(holder) => printable(&format!("pid {} on {} ({})", holder.pid, holder.host, holder.program)),
        None if lease.peer => "the peer".to_owned(),
        None => "its process".to_owned(),
    }
}

/// Why the last fsck ended badly, if it did.
fn last_failure(history: &[HistoryEntry]) -> Option<String> {
    let of_fsck = |entry: &&HistoryEntry| matches!(entry.what.as_str(), "job-failed" | "drain-timeout" | "granted");
    let last = history.iter().rev().find(of_fsck)?;
    if last.what == "granted" {
        return None;
    }
    let at = last.at.strftime("%Y-%m-%d %H:%M:%SZ");
    let who = last.holder.as_ref().map(table::holder).unwrap_or_default();
    let reason = last.reason.as_deref().unwrap_or_default();
    let text = format!("the last fsck failed ({}) at {at}: {reason}; {who}", last.what);
    Some(fit(&printable(&text), WIDTH))
}

const YELLOW: &str = "\u{1b}[33m";
const RED: &str = "\u{1b}[31m";

fn paint(view: &View, colour: &str, text: &str) -> String {
    if view.colour { format!("{colour}{text}\u{1b}[0m") } else { text.to_owned() }
}
