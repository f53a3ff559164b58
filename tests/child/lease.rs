//! Deadlines and losses.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use crate::wrapper::{Running, Wrapper, lives, state, until, within};

const FOREVER: &str = "while :; do sleep 0.02; done";
const WINDOW: Duration = Duration::from_secs(3);
/// Appends the time since boot to a file for as long as the command lives: its own witness of when it ended, which does
/// not depend on how soon this test looks.
const BEAT: &str = "while :; do read up _ < /proc/uptime; echo $up >> beat; sleep 0.01; done";

/// A lease that nobody refreshes, and a note of its deadline.
fn doomed() -> Wrapper {
    let wrapper = Wrapper::new().window(WINDOW);
    let file = wrapper.path("deadline");
    wrapper.env("PROBE_DEADLINE_FILE", file)
}

/// The seconds in the last line of a file.
fn seconds(run: &Running, file: &str) -> f64 {
    let text = fs::read_to_string(run.path(file)).unwrap();
    text.lines().last().unwrap().parse().unwrap()
}

#[test]
fn a_command_that_ignores_term_is_dead_at_the_deadline() {
    let mut run = doomed().start(&format!(
        "trap 'read up _ < /proc/uptime; echo $up > term' TERM; \
         setsid sh -c 'trap \"\" TERM; echo $$ > other; {FOREVER}' & echo $$ > up; {BEAT}"
    ));
    let (child, other) = (run.number("up"), run.number("other"));
    assert_eq!(run.wait(), 80);
    assert!(!lives(child) && !lives(other));
    let (deadline, term, last) = (seconds(&run, "deadline"), seconds(&run, "term"), seconds(&run, "beat"));
    assert!(last < deadline, "it lived on at {last}, past {deadline}");
    assert!(term < last - 0.2, "TERM at {term}, and no time until {last}");
    assert!(last > deadline - 1.0, "it was killed at {last}, too early for {deadline}");
}

#[test]
fn a_command_has_time_to_end_before_the_deadline() {
    let mut run =
        Wrapper::new().window(WINDOW).start(&format!("trap 'sleep 0.2; echo > cleaned; exit 0' TERM; {FOREVER}"));
    assert_eq!(run.wait(), 80);
    assert!(run.path("cleaned").exists());
}

#[test]
fn with_kill_there_is_no_term() {
    let mut run = doomed().option(&["--on-lost", "kill"]).start(&format!("trap 'echo > term' TERM; {BEAT}"));
    assert_eq!(run.wait(), 80);
    let (deadline, last) = (seconds(&run, "deadline"), seconds(&run, "beat"));
    assert!(last < deadline, "it lived on at {last}, past {deadline}");
    assert!(!run.path("term").exists());
}

#[test]
fn with_warn_the_command_goes_on() {
    let script = "trap 'echo > term' TERM; while ! grep -q 'goes on' stderr; do sleep 0.02; done; exit 4";
    let mut run = Wrapper::new().option(&["--on-lost", "warn"]).window(Duration::from_millis(400)).start(script);
    assert_eq!(run.wait(), 4);
    assert!(!run.path("term").exists());
    assert_eq!(run.notes().matches("goes on").count(), 1, "said once");
}

#[test]
fn a_refreshed_lease_ends_nothing() {
    let window = Duration::from_millis(600);
    let begin = Instant::now();
    let mut run = Wrapper::new().window(window).refreshed().start("while [ ! -e go ]; do sleep 0.02; done; exit 6");
    until("five windows to pass", || begin.elapsed() > window * 5);
    run.touch("go");
    assert_eq!(run.wait(), 6, "{}", run.notes());
}

#[test]
fn under_a_lost_lease_nothing_is_started() {
    let mut run = Wrapper::new().window(Duration::ZERO).start("echo > started");
    assert_eq!(run.wait(), 80);
    assert!(!run.path("started").exists());
}

#[test]
fn a_loss_ends_the_command_and_all_that_it_started() {
    let script = format!(
        "trap 'echo > term; exit 0' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > a; {FOREVER}' & \
         (setsid sh -c '(echo $$ > b; exec sleep 60) &' &) ; echo $$ > up; {FOREVER}"
    );
    let mut run = Wrapper::new().lost_with("lost").window(Duration::from_secs(6)).refreshed().start(&script);
    let all = [run.number("up"), run.number("a"), run.number("b")];
    run.touch("lost");
    assert_eq!(run.wait(), 80);
    assert!(run.path("term").exists());
    assert!(all.into_iter().all(|pid| !lives(pid)));
    assert!(run.notes().contains("taken away"));
}

#[test]
fn a_loss_with_kill_is_no_matter_of_time() {
    let script =
        format!("trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > a; {FOREVER}' & echo $$ > up; {FOREVER}");
    let mut run = Wrapper::new().option(&["--on-lost", "kill"]).lost_with("lost").start(&script);
    let (child, other) = (run.number("up"), run.number("a"));
    run.touch("lost");
    within(Duration::from_secs(2), "the death of both", || !lives(child) && !lives(other));
    assert_eq!(run.wait(), 80);
}

#[test]
fn a_stopped_command_whose_lease_is_lost_is_killed() {
    let mut run = Wrapper::new().lost_with("lost").start(&format!("echo $$ > up; {FOREVER}"));
    let child = run.number("up");
    kill(child, Signal::SIGSTOP).unwrap();
    until("the stop", || state(child) == Some('T'));
    run.touch("lost");
    within(Duration::from_secs(2), "the command's death", || !lives(child));
    assert_eq!(run.wait(), 80);
}

#[test]
fn a_command_that_stops_itself_after_term_is_killed_early() {
    let mut run =
        Wrapper::new().lost_with("lost").start(&format!("trap 'kill -STOP $$' TERM; echo $$ > up; {FOREVER}"));
    let child = run.number("up");
    run.touch("lost");
    within(Duration::from_secs(3), "the command's death", || !lives(child));
    assert_eq!(run.wait(), 80);
}

#[test]
fn a_wrapper_that_was_stopped_past_the_deadline_kills_at_once() {
    let window = Duration::from_millis(1500);
    let mut run =
        Wrapper::new().window(window).refreshed().start(&format!("trap 'echo > term' TERM; echo $$ > up; {FOREVER}"));
    let child = run.number("up");
    run.send(Signal::SIGSTOP);
    until("the stop", || state(run.pid()) == Some('T'));
    let begin = Instant::now();
    until("the deadline", || begin.elapsed() > window);
    assert!(lives(child), "nobody was there to kill it");
    run.send(Signal::SIGCONT);
    within(Duration::from_millis(700), "the command's death", || !lives(child));
    assert_eq!(run.wait(), 80);
    assert!(!run.path("term").exists(), "TERM was a waste of time");
}

#[test]
fn a_short_pause_of_the_wrapper_is_forgiven() {
    let window = Duration::from_secs(3);
    let wrapper = Wrapper::new();
    let asked = wrapper.path("asked");
    let mut run = wrapper
        .window(window)
        .refreshed()
        .env("PROBE_REVALIDATED_FILE", &asked)
        .start("echo $$ > up; while [ ! -e go ]; do sleep 0.02; done; exit 6");
    run.number("up");
    run.send(Signal::SIGSTOP);
    until("the stop", || state(run.pid()) == Some('T'));
    // Long enough for TERM, had the wrapper been awake.
    let begin = Instant::now();
    until("most of the lease to pass", || begin.elapsed() > window * 3 / 4);
    run.send(Signal::SIGCONT);
    until("the revalidation", || asked.exists());
    run.touch("go");
    assert_eq!(run.wait(), 6, "{}", run.notes());
    assert_eq!(fs::read_to_string(&asked).unwrap(), "asked\n");
}
