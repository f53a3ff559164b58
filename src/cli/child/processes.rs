//! The processes as `/proc` shows them: who is in the group, who descends from us, who still lives.
//!
//! A scan is no snapshot: processes come and go while it runs. Whoever wants to be sure that nobody is left
//! looks twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::process;

use nix::unistd::Pid;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How often a scan is repeated that saw a process whose parent vanished in between.
const RESCANS: usize = 3;

/// One process at the moment when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// The name of its program, at most 15 bytes.
    pub(crate) name: String,
    parent: Pid,
    group: Pid,
    state: char,
    threads: u64,
    /// When it was started, in ticks since boot: tells two processes that had the same pid apart.
    started: u64,
}

impl Process {
    fn read(pid: i32) -> io::Result<Process> {
        let text = fs::read(format!("/proc/{pid}/stat"))?;
        Process::parse(&String::from_utf8_lossy(&text))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat has a strange form")))
    }

    /// Parses a line of `/proc/PID/stat`. The name may hold anything, spaces and brackets too.
    fn parse(line: &str) -> Option<Process> {
        let (pid, rest) = line.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let pid_field = |index: usize| fields.get(index)?.parse().ok().map(Pid::from_raw);
        Some(Process {
            pid: Pid::from_raw(pid.parse().ok()?),
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: pid_field(1)?,
            group: pid_field(2)?,
            threads: fields.get(17)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    pub(super) fn is_in(&self, group: Pid) -> bool {
        self.group == group
    }

    /// Whether it may still do something. A process whose first thread has ended shows as a zombie while the others
    /// run on.
    fn lives(&self) -> bool {
        match self.state {
            'X' | 'x' => false,
            'Z' => self.threads > 1,
            _ => true,
        }
    }

    /// Sends `signal` to this very process, not to another one that has its pid by now.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid.as_raw()) else {
            return;
        };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        if Process::read(self.pid.as_raw()).is_ok_and(|now| now.started == self.started) {
            // It may have ended, or run under another user: who survives is seen by looking again.
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pid, self.name.escape_debug())?;
        match self.state {
            'D' => f.write_str(", in an uninterruptible wait"),
            'T' | 't' => f.write_str(", stopped"),
            _ => Ok(()),
        }
    }
}

/// The children that this process had before it started a command: a shell that replaces itself by `exec`
/// leaves some. They are none of the command's business.
#[derive(Debug)]
pub(super) struct Earlier(BTreeSet<(Pid, u64)>);

/// All processes.
#[derive(Debug)]
pub(super) struct Processes(BTreeMap<Pid, Process>);

impl Processes {
    /// Refuses to work where `/proc` is missing or shows another pid namespace: every answer would be wrong.
    pub(super) fn usable() -> io::Result<()> {
        let shown = fs::read_link("/proc/self").map_err(|error| {
            io::Error::new(error.kind(), format!("/proc is needed to see the command's processes: {error}"))
        })?;
        if shown.to_str() == Some(&process::id().to_string()) {
            return Ok(());
        }
        Err(io::Error::other(
            "/proc shows another pid namespace than this one; mount it anew (unshare has --mount-proc)",
        ))
    }

    pub(super) fn read() -> io::Result<Processes> {
        let mut scan = Processes::scan()?;
        for _ in 0..RESCANS {
            let consistent = scan.0.values().all(|p| p.parent.as_raw() == 0 || scan.0.contains_key(&p.parent));
            if consistent {
                break;
            }
            scan = Processes::scan()?;
        }
        Ok(scan)
    }

    fn scan() -> io::Result<Processes> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            // One that cannot be read has ended since.
            if let Ok(process) = Process::read(pid) {
                found.insert(process.pid, process);
            }
        }
        Ok(Processes(found))
    }

    /// Our direct children, dead ones too.
    pub(super) fn children(&self) -> impl Iterator<Item = &Process> {
        let own = own();
        self.0.values().filter(move |process| process.parent == own)
    }

    pub(super) fn earlier(&self) -> Earlier {
        Earlier(self.children().map(|child| (child.pid, child.started)).collect())
    }

    /// The living members of a group.
    pub(super) fn members(&self, group: Pid) -> Vec<&Process> {
        self.0.values().filter(|process| process.group == group && process.lives()).collect()
    }

    /// The living descendants of this process, and the members of `group` whatever their descent, without what
    /// was there before.
    pub(super) fn descendants(&self, group: Pid, earlier: &Earlier) -> Vec<&Process> {
        let mut children: BTreeMap<Pid, Vec<&Process>> = BTreeMap::new();
        for process in self.0.values() {
            children.entry(process.parent).or_default().push(process);
        }
        let mut found = BTreeMap::new();
        let mut open = vec![own()];
        while let Some(parent) = open.pop() {
            for &child in children.get(&parent).into_iter().flatten() {
                let is_new = !earlier.0.contains(&(child.pid, child.started));
                // A dead one counts for the way to its children.
                if is_new && found.insert(child.pid, child).is_none() {
                    open.push(child.pid);
                }
            }
        }
        found.extend(self.members(group).into_iter().map(|member| (member.pid, member)));
        found.into_values().filter(|process| process.lives()).collect()
    }

    /// Whether `group` is one that our descendants made.
    pub(super) fn is_descendant_group(&self, group: Pid, of: Pid, earlier: &Earlier) -> bool {
        self.descendants(of, earlier).iter().any(|process| process.group == group)
    }
}

fn own() -> Pid {
    Pid::this()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_is_no_obstacle() {
        let line = "42 (a) Z (b c) S 7 42 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 99887 1 2 3";
        let process = Process::parse(line).unwrap();
        assert_eq!((process.name.as_str(), process.state), ("a) Z (b c", 'S'));
        assert_eq!((process.parent, process.group), (Pid::from_raw(7), Pid::from_raw(42)));
        assert_eq!((process.threads, process.started), (3, 99887));
    }

    #[test]
    fn a_zombie_with_running_threads_lives() {
        let line = |threads: u32| format!("42 (x) Z 7 42 9 0 -1 0 1 0 0 0 0 0 0 0 20 0 {threads} 0 5 1 2 3");
        assert!(!Process::parse(&line(1)).unwrap().lives());
        assert!(Process::parse(&line(2)).unwrap().lives());
    }

    #[test]
    fn this_process_is_among_all() {
        Processes::usable().unwrap();
        assert!(Processes::read().unwrap().0.contains_key(&own()));
    }
}
