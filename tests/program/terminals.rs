//! What shows on a terminal.

use super::program::{FOR_LONG, Store, UNTIL_EOF};
use super::pty::Pty;

fn shell(store: &Store) -> Pty {
    Pty::shell(|command| {
        store.set(command);
        command.env("lockhouse", env!("CARGO_BIN_EXE_lockhouse"));
        command.env("TERM", "xterm").env_remove("NO_COLOR");
    })
}

#[test]
fn a_drain_has_a_live_line_and_ctrl_c_ends_it() {
    let store = Store::new();
    let writer = store.wrapped(&["run", "--label", "slow"], UNTIL_EOF);
    let mut terminal = shell(&store);
    terminal.line("$lockhouse fsck -- echo alone; echo code=$?");
    terminal.expect("\r\u{1b}[Kdraining for");
    terminal.expect("waiting for 1 writer");
    terminal.expect("\r\u{1b}[Kdraining for");
    terminal.send("\u{3}");
    terminal.expect("withdrawing");
    terminal.expect("code=130");
    writer.finish().assert(0);
}

#[test]
fn watching_redraws_the_screen_until_ctrl_c() {
    let store = Store::new();
    let mut terminal = shell(&store);
    terminal.line("$lockhouse status --watch; echo code=$?");
    terminal.expect("\u{1b}[H\u{1b}[2J");
    terminal.expect("0 writers");
    let _writer = store.wrapped(&["run"], FOR_LONG);
    terminal.expect("\u{1b}[H\u{1b}[2J");
    terminal.expect("1 writer");
    terminal.send("\u{3}");
    terminal.expect("code=0");
}

#[test]
fn colours_only_where_they_are_wanted() {
    let store = Store::new();
    let mut fsck = store.wrapped(&["fsck"], FOR_LONG);
    let mut terminal = shell(&store);
    terminal.line("$lockhouse status");
    terminal.expect("\u{1b}[33mexclusive\u{1b}[0m");
    terminal.expect("ready$ ");
    terminal.line("NO_COLOR=1 $lockhouse status");
    terminal.expect(": exclusive, ");
    terminal.expect("ready$ ");
    terminal.line("$lockhouse status | cat");
    terminal.expect(": exclusive, ");
    fsck.kill();
}

#[test]
fn a_job_that_was_stopped_past_its_deadline_goes_on_if_nobody_came_in_between() {
    let store = Store::new();
    let mut terminal = shell(&store);
    terminal.line("$lockhouse run --label sleeper -- bash -c 'echo st''arted; read x; echo got $x'");
    terminal.expect("started");
    terminal.send("\u{1a}");
    terminal.expect("Stopped");
    store.until("a stale writer", |status| status["writers"][0]["state"] == "stale");
    terminal.line("fg");
    store.until("a fresh writer", |status| status["writers"][0]["state"] == "fresh");
    terminal.line("there");
    terminal.expect("got there");
}

#[test]
fn a_job_that_was_stopped_and_cleared_ends_when_it_is_continued() {
    let store = Store::new();
    let mut terminal = shell(&store);
    terminal.line("$lockhouse run -- bash -c 'echo st''arted; read x; echo got $x'");
    terminal.expect("started");
    terminal.send("\u{1a}");
    terminal.expect("Stopped");
    store.until("a stale writer", |status| status["writers"][0]["state"] == "stale");
    store.run(["fsck", "--force", "--", "true"]).assert(0);
    terminal.line("fg; echo code=$?");
    terminal.expect("was lost");
    terminal.expect("code=80");
}
