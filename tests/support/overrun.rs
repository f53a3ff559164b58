//! A queue of directory events that runs over, and what its reader does about it.

use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::poll::eventually_blocking;
use super::probe::Probe;

/// Stops a probe, once it watches these directories, and lets more happen in them than the kernel keeps for it.
pub(crate) fn stop_and_overrun(probe: &Probe, directories: &[&Path]) {
    for directory in directories {
        let inode = format!(" ino:{:x} ", std::fs::metadata(directory).unwrap().ino());
        eventually_blocking(Duration::from_secs(60), "the probe to watch", || {
            let watched = watched(probe);
            if watched.contains(&inode) { Ok(()) } else { Err((directory.to_owned(), watched)) }
        });
    }
    probe.stop();
    for directory in directories {
        overrun(directory);
    }
}

/// What the kernel says of the directories that a process watches.
fn watched(probe: &Probe) -> String {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fdinfo", probe.id())).unwrap();
    // A descriptor may be closed meanwhile.
    let said = descriptors.filter_map(|descriptor| std::fs::read_to_string(descriptor.unwrap().path()).ok());
    said.flat_map(|said| {
        said.lines().filter(|line| line.starts_with("inotify ")).map(str::to_owned).collect::<Vec<_>>()
    })
    .collect::<Vec<_>>()
    .join("\n")
}

/// Renames a file in `directory` to and fro until whoever watches it and does not read has lost events.
fn overrun(directory: &Path) {
    let longest = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let longest: usize = longest.trim().parse().unwrap();
    // Another one that does not read: what has become of its queue has become of the others'.
    let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&queue, directory, WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO).unwrap();
    let names = [directory.join("to"), directory.join("fro")];
    std::fs::write(&names[0], "").unwrap();
    // Two events each.
    for round in 0..longest {
        std::fs::rename(&names[round % 2], &names[(round + 1) % 2]).unwrap();
    }
    assert!(ran_over(&queue), "there was room for all events");
    std::fs::remove_file(&names[longest % 2]).unwrap();
}

fn ran_over(queue: &impl std::os::fd::AsFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(queue, &mut buffer);
    let mut ran_over = false;
    loop {
        match reader.next() {
            Ok(event) => ran_over |= event.events().contains(ReadFlags::QUEUE_OVERFLOW),
            Err(Errno::AGAIN) => return ran_over,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A process that has nothing to do does nothing.
pub(crate) fn rests(probe: &Probe) {
    const WHILE: Duration = Duration::from_secs(1);
    let before = processor_time(probe);
    std::thread::sleep(WHILE);
    let used = processor_time(probe).saturating_sub(before);
    assert!(used < WHILE / 4, "{used:?} of {WHILE:?}");
}

/// What all its threads have used.
fn processor_time(probe: &Probe) -> Duration {
    // The unit of what `/proc` tells in ticks is part of the kernel's interface, whatever its own clock does.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", probe.id())).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    TICK * rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u32>().unwrap()).sum()
}
