//! Signals, grandchildren, orphans.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use crate::wrapper::{Wrapper, lives, until, within, zombies_of};

/// Waits in small steps for ever, so that traps run soon.
const FOREVER: &str = "while :; do sleep 0.02; done";

#[test]
fn signals_to_the_wrapper_reach_the_group() {
    for name in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"] {
        let script = format!("trap 'echo got > got; exit 21' {name}; echo $$ > up; {FOREVER}");
        let mut run = Wrapper::new().start(&script);
        run.number("up");
        run.send(format!("SIG{name}").parse().unwrap());
        assert_eq!(run.wait(), 21, "{name}");
        assert!(run.path("got").exists(), "{name}");
    }
}

#[test]
fn a_signal_reaches_grandchildren_in_the_group() {
    let script = format!("(trap 'echo got > got; exit' TERM; echo up > ready; {FOREVER}) & echo $! > up; wait");
    let mut run = Wrapper::new().start(&script);
    until("the grandchild", || run.path("ready").exists());
    run.send(Signal::SIGTERM);
    assert_eq!(run.wait(), 128 + 15);
    assert!(run.path("got").exists(), "the wrapper ended before its grandchild did");
}

#[test]
fn a_hup_that_was_ignored_on_entry_is_not_passed_on() {
    let below = ["sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"];
    let script = format!("trap 'echo usr > usr' USR1; echo $$ > up; {FOREVER}");
    let mut run = Wrapper::new().below(&below).start(&script);
    let child = run.number("up");
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1] {
        run.send(signal);
    }
    until("the last of the signals", || run.path("usr").exists());
    assert!(lives(child) && run.is_running());
    run.send(Signal::SIGTERM);
    assert_eq!(run.wait(), 128 + 15);
}

#[test]
fn a_grandchild_that_outlives_its_parent_is_waited_for() {
    let mut run = Wrapper::new().start("(while [ ! -e go ]; do sleep 0.02; done; echo > done) & exit 3");
    run.until_noted("keeping the lease");
    assert!(run.is_running());
    run.touch("go");
    assert_eq!(run.wait(), 3);
    assert!(run.path("done").exists());
}

#[test]
fn a_signal_reaches_a_grandchild_that_outlived_its_parent() {
    let mut run = Wrapper::new().start(&format!("({FOREVER}) & echo $! > up; exit 3"));
    let grandchild = run.number("up");
    run.until_noted("keeping the lease");
    run.send(Signal::SIGTERM);
    assert_eq!(run.wait(), 3);
    assert!(!lives(grandchild));
}

#[test]
fn a_daemon_that_left_the_group_is_left_alone_at_a_normal_end() {
    let mut run =
        Wrapper::new().start("setsid sh -c 'echo $$ > up; exec sleep 60' & while [ ! -s up ]; do sleep 0.02; done");
    assert_eq!(run.wait(), 0);
    let daemon = run.number("up");
    assert!(lives(daemon));
    kill(daemon, Signal::SIGKILL).unwrap();
}

#[test]
fn a_killed_wrapper_takes_the_command_with_it() {
    let mut run = Wrapper::new().start("echo $$ > up; exec sleep 60");
    let child = run.number("up");
    run.send(Signal::SIGKILL);
    within(Duration::from_secs(1), "the command's death", || !lives(child));
    assert_eq!(run.wait(), 1009);
}

#[test]
fn orphans_are_reaped_while_the_command_runs_on() {
    let script =
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (setsid true &) ; (true &) ; done; echo $$ > up; exec sleep 60";
    let mut run = Wrapper::new().start(script);
    let child = run.number("up");
    until("an end of all zombies", || zombies_of(run.pid()) == 0);
    assert!(lives(child));
    run.send(Signal::SIGTERM);
    assert_eq!(run.wait(), 128 + 15);
}

#[test]
fn it_works_as_pid_1() {
    let below = ["unshare", "--fork", "--pid", "--mount-proc"];
    let script = "[ $PPID = 1 ] || exit 1; (setsid true &); (true &); while grep -qs '^State:.Z' /proc/[0-9]*/status; \
                  do sleep 0.02; done; kill -TERM 1; exec sleep 60";
    let mut run = Wrapper::new().below(&below).start(script);
    assert_eq!(run.wait(), 128 + 15);
    let mut run = Wrapper::new().below(&below).start("exit 5");
    assert_eq!(run.wait(), 5);
}

#[test]
fn a_proc_of_another_pid_namespace_is_refused() {
    let mut run = Wrapper::new().below(&["unshare", "--fork", "--pid"]).start("echo > started");
    assert_ne!(run.wait(), 0);
    assert!(!run.path("started").exists());
    assert!(run.notes().contains("pid namespace"), "{}", run.notes());
}

#[test]
fn it_works_below_a_shell_that_has_children_of_its_own() {
    let below = ["sh", "-c", "sleep 60 & echo $! > other; exec \"$@\"", "sh"];
    let mut run = Wrapper::new().below(&below).lost_with("lost").start(&format!("echo $$ > up; {FOREVER}"));
    run.number("up");
    let other = run.number("other");
    run.touch("lost");
    assert_eq!(run.wait(), 80);
    assert!(lives(other), "a process of somebody else was killed");
    kill(other, Signal::SIGKILL).unwrap();
}

#[test]
fn a_stop_of_the_wrapper_stops_the_command_first() {
    // It has a parent in the same session and another group, so that its group is not an orphaned one.
    let below =
        ["bash", "-c", "set -m; \"$@\" & echo $! > wrapper; wait $!; while [ -e hold ]; do sleep 0.02; done", "sh"];
    let wrapper = Wrapper::new();
    fs::write(wrapper.path("hold"), "").unwrap();
    let mut run = wrapper
        .below(&below)
        // Not dash in the loop: see `terminal`.
        .start(&format!("exec bash -c 'echo $$ > up; {FOREVER}'"));
    let (child, pid) = (run.number("up"), run.number("wrapper"));
    kill(pid, Signal::SIGTSTP).unwrap();
    let stopped = |pid| crate::wrapper::state(pid) == Some('T');
    until("the stop of the wrapper", || stopped(pid));
    assert!(stopped(child));
    kill(pid, Signal::SIGCONT).unwrap();
    until("the command to go on", || !stopped(child));
    kill(pid, Signal::SIGTERM).unwrap();
    until("the end", || !lives(pid) && !lives(child));
    fs::remove_file(run.path("hold")).unwrap();
    run.wait();
}
