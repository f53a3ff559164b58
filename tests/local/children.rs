//! The kernel frees a lease when the last process that inherited it is gone.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::store::{PATIENCE, Running, Store, UNTIL_EOF, lives};
use super::support::poll::eventually_blocking;

/// A command whose own child survives the death signal that a killed wrapper sends to the command.
const LEAVES_ONE: &str = "sleep 300 & echo started $!; wait";

fn survivor(running: &mut Running) -> Pid {
    running.until_out("started ");
    eventually_blocking(PATIENCE, "the child's pid", || {
        let out = running.out();
        let pid = out.lines().find_map(|line| line.strip_prefix("started ")?.parse().ok());
        pid.map(Pid::from_raw).ok_or(out)
    })
}

fn killed_wrapper(store: &Store, verb: &str) -> Pid {
    let mut wrapper = Running::start(store.command([verb, "--label", "short-lived", "--", "sh", "-c", LEAVES_ONE]));
    let survivor = survivor(&mut wrapper);
    let command = wrapper.command_pid();
    wrapper.kill();
    eventually_blocking(PATIENCE, "the command to die with its wrapper", || {
        if lives(command) { Err("it lives") } else { Ok(()) }
    });
    assert!(lives(survivor));
    survivor
}

#[test]
fn what_inherited_a_writer_lease_keeps_it_until_it_is_gone() {
    let store = Store::new();
    let survivor = killed_wrapper(&store, "run");
    let status = store.status();
    assert_eq!(status["writers"][0]["inherited"], true, "{status}");
    assert_eq!(status["writers"][0]["state"], "fresh", "{status}");
    let shown = store.run(["status"]).assert(0).out;
    assert!(shown.contains("what it started keeps its lease"), "{shown}");
    store.run(["fsck", "--drain-budget", "200ms", "--", "true"]).assert(76).says("inherited");
    store.run(["prune"]).assert(0);
    kill(survivor, Signal::SIGKILL).unwrap();
    store.run(["fsck", "--wait", "5s", "--", "true"]).assert(0);
}

#[test]
fn what_inherited_an_fsck_lease_keeps_it_until_it_is_gone() {
    let store = Store::new();
    let survivor = killed_wrapper(&store, "fsck");
    let status = store.status();
    assert_eq!((&status["state"], &status["fsck"]["inherited"]), (&"exclusive".into(), &true.into()), "{status}");
    store.run(["run", "--", "true"]).assert(75).says("inherited");
    store.run(["clear"]).assert(75);
    store.run(["fsck", "--force", "--", "true"]).assert(75);
    kill(survivor, Signal::SIGKILL).unwrap();
    store.run(["run", "--wait", "5s", "--", "true"]).assert(0);
}

/// A library's descriptors are closed on execution: what its program starts keeps nothing.
#[tokio::test]
async fn a_child_of_a_program_that_uses_the_library_keeps_nothing() {
    let store = Store::new();
    let one = store.connect("one").await;
    let lease = one.acquire_writer().await.unwrap();
    let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let open: Vec<_> = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok()).collect();
    assert!(open.iter().all(|path| !path.starts_with(store.directory())), "{open:?}");
    lease.release().await.unwrap();
    let two = store.connect("two").await;
    two.acquire_fsck().await.unwrap().release().await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The numbers under which a process has open what `wanted` accepts.
fn open_as(pid: Pid, wanted: impl Fn(&Path) -> bool) -> Vec<i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(Result::unwrap);
    let of_interest = entries.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| wanted(&target)));
    of_interest.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// The kernel closes a killed process's descriptors from the highest down, and takes its time with those of inotify.
#[test]
fn a_killed_holders_locks_go_before_its_directory_events() {
    let store = Store::new();
    let ahead = store.wrapped(&["fsck"], UNTIL_EOF);
    // Each of them hears of the one before it going, and is granted then.
    let waits = |args: &[&str]| {
        let waiting = Running::start(store.command(args.iter().chain(&["--wait", "60s", "--"]).chain(&UNTIL_EOF)));
        eventually_blocking(PATIENCE, "directory events", || {
            let events = open_as(waiting.pid(), |target| target.as_os_str() == "anon_inode:inotify");
            if events.is_empty() { Err("none") } else { Ok(()) }
        });
        waiting
    };
    let mut writer = waits(&["run"]);
    ahead.finish().assert(0);
    writer.until_out("started");
    let mut fsck = waits(&["fsck"]);
    let goes_first = |holder: &Running, file: &str| {
        let events = open_as(holder.pid(), |target| target.as_os_str() == "anon_inode:inotify");
        let locks = open_as(holder.pid(), |target| target.starts_with(store.leases(file)));
        assert!(locks.iter().max() > events.iter().max(), "{file}: {locks:?} {events:?}");
        assert!(!events.is_empty(), "{file}");
    };
    goes_first(&writer, "writers");
    goes_first(&fsck, "fsck.lock");
    goes_first(&fsck, "fsck.json");
    writer.finish().assert(0);
    fsck.until_out("started");
    goes_first(&fsck, "fsck.lock");
    goes_first(&fsck, "fsck.json");
    fsck.finish().assert(0);
}
