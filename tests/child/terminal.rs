//! The terminal. What is expected on the screen is computed (`$((40+2))`), since the typed line is shown too.
//!
//! Where Ctrl-Z is pressed the command is bash: dash starts programs by vfork, and a Ctrl-Z between that and the exec
//! stops the new process alone, while its parent waits for it, so that no shell above ever sees a stopped job.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use nix::unistd::Pid;

use crate::pty::Pty;
use crate::wrapper::{Wrapper, lives, number, state, until};

const FOREVER: &str = "while :; do sleep 0.02; done";

fn shell(wrapper: &Wrapper) -> Pty {
    Pty::shell(|shell| wrapper.prepare_shell(shell))
}

fn parent(pid: Pid) -> Pid {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    Pid::from_raw(stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap())
}

#[test]
fn ctrl_c_is_the_commands() {
    let wrapper = Wrapper::new();
    let mut pty = shell(&wrapper);
    pty.line(&format!("$W -- bash -c 'trap \"echo got-$((1+1)); exit 9\" INT; echo $$ > up; {FOREVER}'; echo rc=$?"));
    let child = number(&wrapper.path("up"));
    assert_eq!(pty.foreground(), child);
    pty.send("\x03");
    pty.expect("got-2");
    pty.expect("rc=9");
    pty.expect("ready$ ");
    pty.line("$W -- sleep 60; echo rc=$?");
    until("the command in the foreground", || pty.foreground() != pty.leader());
    // The shell's job first, then the command's group.
    until("the hand-over", || {
        fs::read_to_string(format!("/proc/{}/comm", pty.foreground())).is_ok_and(|c| c == "sleep\n")
    });
    pty.send("\x03");
    pty.expect("rc=130");
    pty.expect("ready$ ");
    assert_eq!(pty.foreground(), pty.leader());
}

#[test]
fn ctrl_z_stops_the_job_and_fg_goes_on() {
    let wrapper = Wrapper::new();
    let asked = wrapper.path("asked");
    let wrapper = wrapper.env("PROBE_REVALIDATED_FILE", &asked);
    let mut pty = shell(&wrapper);
    pty.line(&format!("$W -- bash -c 'trap \"exit 9\" INT; echo $$ > up; {FOREVER}'; echo rc=$?"));
    let child = number(&wrapper.path("up"));
    let own = parent(child);
    for round in 1..=3 {
        until("the command in the foreground", || pty.foreground() == child);
        pty.send("\x1a");
        pty.expect("Stopped");
        pty.expect("ready$ ");
        assert_eq!((state(child), state(own)), (Some('T'), Some('T')));
        assert_eq!(pty.foreground(), pty.leader());
        pty.line("fg; echo fg=$?");
        until("the command to go on", || lives(child) && state(child) != Some('T'));
        assert_eq!(fs::read_to_string(&asked).unwrap().lines().count(), round, "asked before it was continued");
    }
    until("the command in the foreground", || pty.foreground() == child);
    pty.send("\x03");
    pty.expect("fg=9");
}

#[test]
fn a_stopped_job_whose_lease_is_lost_is_killed_on_fg() {
    let wrapper = Wrapper::new().lost_with("lost");
    let mut pty = shell(&wrapper);
    pty.line(&format!("$W -- bash -c 'trap \"echo > went-on\" CONT TERM; echo $$ > up; {FOREVER}'"));
    let child = number(&wrapper.path("up"));
    until("the command in the foreground", || pty.foreground() == child);
    pty.send("\x1a");
    pty.expect("Stopped");
    fs::write(wrapper.path("lost"), "").unwrap();
    pty.line("fg; echo fg=$?");
    pty.expect("fg=80");
    assert!(!lives(child));
    assert!(!wrapper.path("went-on").exists(), "the command ran without a lease");
    pty.expect("ready$ ");
}

#[test]
fn ctrl_z_in_an_orphaned_group_stops_nothing() {
    // The wrapper leads the session, so nobody could ever continue it.
    let wrapper = Wrapper::new();
    let script =
        format!("trap 'echo cont-$((2+2))' CONT; trap 'echo int-$((3+3)); exit 9' INT; echo up-$((40+2)); {FOREVER}");
    let mut pty = Pty::spawn(wrapper.command(&["bash", "-c", &script]));
    pty.expect("up-42");
    for _ in 0..3 {
        pty.send("\x1a");
        pty.expect("cont-4");
    }
    until("the terminal to be given again", || pty.foreground() != pty.leader());
    pty.send("\x03");
    pty.expect("int-6");
    assert_eq!(pty.wait().code(), Some(9));
}

#[test]
fn in_a_pipeline_the_terminal_stays_with_the_others() {
    let wrapper = Wrapper::new();
    let mut pty = shell(&wrapper);
    pty.line(&format!("$W -- bash -c 'trap \"echo int-$((3+3)); exit 9\" INT; echo $$ > up; {FOREVER}' | cat; echo rc=${{PIPESTATUS[0]}}"));
    let child = number(&wrapper.path("up"));
    let own = parent(child);
    assert_eq!(pty.foreground(), own, "the wrapper leads the job");
    // Ctrl-Z does not reach the command's group by itself.
    pty.send("\x1a");
    pty.expect("Stopped");
    assert_eq!((state(child), state(own)), (Some('T'), Some('T')));
    pty.expect("ready$ ");
    pty.line("fg");
    until("the command to go on", || lives(child) && state(child) != Some('T'));
    assert_eq!(pty.foreground(), own);
    pty.send("\x03");
    until("the end", || !lives(child) && !lives(own));
    pty.expect("ready$ ");
    pty.line("echo still-$((7*6))");
    pty.expect("still-42");
}

#[test]
fn a_pager_behind_it_gets_the_keys() {
    let wrapper = Wrapper::new();
    let mut pty = Pty::shell(|shell| {
        wrapper.prepare_shell(shell);
        shell.env("TERM", "xterm").env_remove("LESS");
    });
    pty.line("$W -- seq 1 500 | less; echo rc=${PIPESTATUS[0]}");
    pty.expect("12\r\n13");
    pty.send("G");
    pty.expect("500");
    pty.expect("(END)");
    pty.send("q");
    pty.expect("rc=0");
}

#[test]
fn a_command_in_a_pipeline_that_reads_gets_the_terminal() {
    let wrapper = Wrapper::new();
    let mut pty = shell(&wrapper);
    pty.line("$W -- sh -c 'echo up-$((40+2)); read x; echo got-$x-$((1+1))' | cat");
    pty.expect("up-42");
    pty.line("hello");
    pty.expect("got-hello-2");
    pty.expect("ready$ ");
    assert_eq!(pty.foreground(), pty.leader());
}

#[test]
fn a_job_in_the_background_that_reads_is_stopped_until_fg() {
    let wrapper = Wrapper::new();
    let mut pty = shell(&wrapper);
    pty.line("$W -- sh -c 'echo $$ > up; read x; echo got-$x-$((1+1)); exit 7' &");
    let child = number(&wrapper.path("up"));
    let own = parent(child);
    until("the job to be stopped", || state(child) == Some('T') && state(own) == Some('T'));
    assert_eq!(pty.foreground(), pty.leader());
    pty.line("fg; echo fg=$?");
    until("the terminal", || pty.foreground() == child);
    pty.line("hello");
    pty.expect("got-hello-2");
    pty.expect("fg=7");
}

#[test]
fn a_job_sent_to_the_background_leaves_the_terminal_to_the_shell() {
    let wrapper = Wrapper::new();
    let mut pty = shell(&wrapper);
    pty.line("$W -- bash -c 'echo $$ > up; while [ ! -e go ]; do sleep 0.02; done; exit 5'");
    let child = number(&wrapper.path("up"));
    let own = parent(child);
    until("the command in the foreground", || pty.foreground() == child);
    pty.send("\x1a");
    pty.expect("Stopped");
    pty.expect("ready$ ");
    pty.line("bg");
    until("the command to go on", || lives(child) && state(child) != Some('T'));
    fs::write(wrapper.path("go"), "").unwrap();
    until("the end", || !lives(own));
    assert_eq!(pty.foreground(), pty.leader());
    pty.line("echo still-$((7*6))");
    pty.expect("still-42");
}

#[test]
fn a_wrapper_stopped_alone_does_not_take_the_terminal_from_the_shell() {
    let wrapper = Wrapper::new();
    let mut pty = shell(&wrapper);
    pty.line("$W -- bash -c 'echo $$ > up; while [ ! -e go ]; do sleep 0.02; done; exit 5'");
    let child = number(&wrapper.path("up"));
    let own = parent(child);
    until("the command in the foreground", || pty.foreground() == child);
    nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGSTOP).unwrap();
    pty.expect("Stopped");
    pty.expect("ready$ ");
    pty.line("bg");
    until("the wrapper to go on", || state(own) != Some('T'));
    fs::write(wrapper.path("go"), "").unwrap();
    until("the end", || !lives(own));
    assert_eq!(pty.foreground(), pty.leader());
}

#[test]
fn the_modes_are_put_back_after_a_death_by_signal() {
    let wrapper = Wrapper::new();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "$W -- sh -c 'stty -echo -icanon; kill -9 $$'; echo rc-$?; stty -a; echo the-end"]);
    wrapper.prepare_shell(&mut command);
    let mut pty = Pty::spawn(command);
    pty.expect("rc-137");
    pty.expect(" icanon");
    pty.expect(" echo ");
    pty.expect("the-end");
    assert_eq!(pty.wait().signal(), None);
}

#[test]
fn the_modes_are_the_commands_after_a_normal_end() {
    let wrapper = Wrapper::new();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "$W -- stty -echo; stty -a; echo the-end"]);
    wrapper.prepare_shell(&mut command);
    let mut pty = Pty::spawn(command);
    pty.expect(" -echo ");
    pty.expect("the-end");
}

#[test]
fn a_command_that_cannot_be_started_leaves_the_terminal_usable() {
    let wrapper = Wrapper::new();
    let mut pty = Pty::spawn({
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "$W -- ./nothing; echo rc-$?; read x; echo got-$x-$((1+1))"]);
        wrapper.prepare_shell(&mut command);
        command
    });
    pty.expect("rc-127");
    pty.line("hello");
    pty.expect("got-hello-2");
    pty.wait();
}

#[test]
fn an_interactive_shell_works_inside() {
    let wrapper = Wrapper::new();
    let mut pty = shell(&wrapper);
    pty.line("$W -- env PS1='inner> ' bash --norc --noprofile --noediting -i; echo rc=$?");
    pty.expect("inner> ");
    pty.line("sleep 60");
    until("the inner job", || {
        fs::read_to_string(format!("/proc/{}/comm", pty.foreground())).is_ok_and(|c| c == "sleep\n")
    });
    pty.send("\x1a");
    pty.expect("Stopped");
    pty.expect("inner> ");
    pty.line("kill -KILL %1; wait %1; echo inner-$((40+2))");
    pty.expect("inner-42");
    pty.line("suspend -f");
    pty.expect("Stopped");
    pty.expect("ready$ ");
    pty.line("fg");
    pty.line("exit 8");
    pty.expect("ready$ ");
    assert_eq!(pty.foreground(), pty.leader());
}
