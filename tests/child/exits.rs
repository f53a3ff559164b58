//! How a command starts and ends.

use crate::wrapper::Wrapper;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_code_of_the_command_is_the_code_of_the_wrapper() {
    assert_eq!(Wrapper::new().code("exit 37"), 37);
    assert_eq!(Wrapper::new().code("exit 0"), 0);
}

#[test]
fn death_by_a_signal_is_128_and_its_number() {
    assert_eq!(Wrapper::new().code("kill -KILL $$"), 128 + 9);
    assert_eq!(Wrapper::new().code("kill -TERM $$"), 128 + 15);
    // A real-time signal, which has no name.
    assert_eq!(Wrapper::new().code("kill -34 $$"), 128 + 34);
}

#[test]
fn what_cannot_be_started_is_127_or_126() {
    let wrapper = Wrapper::new();
    assert_eq!(wrapper.output(&["no-such-command-anywhere"]).status.code(), Some(127));
    assert_eq!(wrapper.output(&["./no-such-file"]).status.code(), Some(127));
    std::fs::write(wrapper.path("plain"), "exit 0").unwrap();
    assert_eq!(wrapper.output(&["./plain"]).status.code(), Some(126));
    assert_eq!(wrapper.output(&["/tmp"]).status.code(), Some(126));
}

#[test]
fn no_shell_touches_the_arguments() {
    let output = Wrapper::new().output(&["printf", "%s|", "$HOME", "a  b", "*", ""]);
    assert_eq!(text(&output.stdout), "$HOME|a  b|*||");
}

#[test]
fn the_environment_is_the_inherited_one_and_the_lease() {
    let output = Wrapper::new().env("FROM_OUTSIDE", "yes").output(&["sh", "-c", "echo $FROM_OUTSIDE $LOCKHOUSE_LEASE"]);
    assert_eq!(text(&output.stdout), "yes probe\n");
}

/// The lines `SigX: mask` of a status file, without the two signals that the C library keeps for itself: it lets nobody
/// change what it inherited for them.
fn masks(status: &[u8]) -> Vec<(String, u64)> {
    const OF_THE_C_LIBRARY: u64 = 0b11 << 31;
    let mask = |hex: &str| u64::from_str_radix(hex.trim(), 16).unwrap() & !OF_THE_C_LIBRARY;
    text(status).lines().map(|line| line.split_once(':').unwrap()).map(|(name, hex)| (name.into(), mask(hex))).collect()
}

#[test]
fn the_command_blocks_and_ignores_nothing() {
    let below = ["sh", "-c", "trap '' USR1 PIPE TERM TSTP; exec \"$@\"", "sh"];
    let output = Wrapper::new().below(&below).output(&["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]);
    assert_eq!(masks(&output.stdout), [("SigBlk".into(), 0), ("SigIgn".into(), 0)]);
}

#[test]
fn an_inherited_ignored_hup_int_or_quit_stays_ignored() {
    let below = ["sh", "-c", "trap '' HUP INT QUIT USR1; exec \"$@\"", "sh"];
    let output = Wrapper::new().below(&below).output(&["grep", "SigIgn", "/proc/self/status"]);
    assert_eq!(masks(&output.stdout), [("SigIgn".into(), 0b111)], "HUP, INT and QUIT are 1, 2 and 3");
}

#[test]
fn the_command_leads_a_group_of_its_own_in_the_same_session() {
    let script = "set -- $(cat /proc/self/stat); echo $4 $5 $$; set -- $(cat /proc/$PPID/stat); echo $6";
    let output = Wrapper::new().output(&["sh", "-c", script]);
    let shown = text(&output.stdout);
    let numbers: Vec<&str> = shown.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[2], "the shell is the parent of cat");
    assert_eq!(numbers[1], numbers[2], "the group of cat is the shell's");
    let own = nix::unistd::getsid(None).unwrap().to_string();
    assert_eq!(numbers[3], own, "the session is ours");
}

#[test]
fn the_command_inherits_the_descriptor_of_the_lease() {
    let wrapper = Wrapper::new();
    let file = wrapper.path("lock");
    std::fs::write(&file, "").unwrap();
    let wrapper = wrapper.env("PROBE_INHERIT_FILE", &file);
    let output = wrapper.output(&["sh", "-c", "readlink /proc/$$/fd/$PROBE_FD; ls /proc/$$/fd"]);
    let shown = text(&output.stdout);
    let mut lines = shown.lines();
    assert_eq!(lines.next(), file.to_str());
    // Nothing else of the wrapper's: no signalfd, no timer, no terminal.
    assert!(lines.count() <= 4 + inherited(), "too many descriptors: {shown}");
}

/// The descriptors beyond stdio that this process itself hands down.
fn inherited() -> usize {
    let output = std::process::Command::new("sh").args(["-c", "ls /proc/$$/fd"]).output().unwrap();
    text(&output.stdout).lines().count().saturating_sub(3)
}
