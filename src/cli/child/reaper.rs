//! The only place that waits for children: the command's first process (the leader), and the orphans that we adopt as
//! their subreaper or as pid 1.
//!
//! The leader that has ended is left unreaped. While it is a zombie its pid stays taken, and with it
//! the number of the group, so a signal to the group cannot reach strangers.

use std::io;
use std::mem::MaybeUninit;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

use super::ChildEnd;
use super::processes::Processes;

/// What a child did, as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Ended(ChildEnd),
    Turned(Turn),
}

/// A child stopped or went on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Stopped by this signal.
    Stopped(i32),
    /// Continued, by us or by anybody.
    Continued,
}

/// Collects what children did.
#[derive(Debug)]
pub(super) struct Reaper {
    leader: Pid,
    end: Option<ChildEnd>,
}

impl Reaper {
    pub(super) fn new(leader: Pid) -> Reaper {
        Reaper { leader, end: None }
    }

    /// How the leader ended, once it has.
    pub(super) fn leader_end(&self) -> Option<ChildEnd> {
        self.end
    }

    /// Reaps every dead child but the leader, and returns the stops and continuations since the last look, of the
    /// leader, or, once it has ended, of the orphans of its group.
    pub(super) fn collect(&mut self) -> io::Result<Vec<Turn>> {
        let mut turns = Vec::new();
        while self.end.is_none() {
            let Some((pid, change)) = look(Which::Any, ANY | libc::WNOWAIT)? else {
                return Ok(turns);
            };
            match change {
                Change::Ended(end) if pid == self.leader => self.end = Some(end),
                Change::Ended(_) => {
                    look(Which::One(pid), libc::WEXITED)?;
                }
                Change::Turned(_) => {
                    // Asked again, as it may have turned once more; and without its end, which may have come since.
                    if let Some((_, Change::Turned(turn))) = look(Which::One(pid), libc::WSTOPPED | libc::WCONTINUED)?
                        && pid == self.leader
                    {
                        turns.push(turn);
                    }
                }
            }
        }
        // From here the leader is what every look at all children would find, so each is looked at by itself.
        for child in Processes::read()?.children().filter(|child| child.pid != self.leader) {
            while let Some((_, Change::Turned(turn))) = look(Which::One(child.pid), ANY)? {
                if child.is_in(self.leader) {
                    turns.push(turn);
                }
            }
        }
        Ok(turns)
    }

    /// Reaps the leader, which has ended. The number of its group is anybody's from here.
    pub(super) fn finish(self) -> io::Result<()> {
        look(Which::One(self.leader), libc::WEXITED).map(|_| ())
    }
}

#[derive(Clone, Copy)]
enum Which {
    Any,
    One(Pid),
}

/// All that a child can do.
const ANY: libc::c_int = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED;

/// Asks, without waiting, whether a child did one of `what`. The answer is given once, unless `what` holds `WNOWAIT`.
#[expect(unsafe_code, reason = "the safe wrappers hide the pid, or fail on a death by a real-time signal")]
fn look(which: Which, what: libc::c_int) -> io::Result<Option<(Pid, Change)>> {
    let (id_type, id) = match which {
        Which::Any => (libc::P_ALL, 0),
        Which::One(pid) => (libc::P_PID, libc::id_t::try_from(pid.as_raw()).map_err(io::Error::other)?),
    };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is a valid place for the answer; all zeroes is a valid `siginfo_t`, and its pid and status are
    // meaningful for what waitid fills in (pid 0 if nothing was found).
    let (result, pid, code, status) = unsafe {
        let result = libc::waitid(id_type, id, info.as_mut_ptr(), what | libc::WNOHANG);
        let info = info.assume_init();
        (result, info.si_pid(), info.si_code, info.si_status())
    };
    match Errno::result(result) {
        Ok(_) if pid == 0 => Ok(None),
        Ok(_) => {
            let change = match code {
                libc::CLD_EXITED => Change::Ended(ChildEnd::Exited(status)),
                libc::CLD_KILLED | libc::CLD_DUMPED => Change::Ended(ChildEnd::Signaled(status)),
                libc::CLD_CONTINUED => Change::Turned(Turn::Continued),
                // Traced ones (CLD_TRAPPED) cannot come up: we trace nobody.
                _ => Change::Turned(Turn::Stopped(status)),
            };
            Ok(Some((Pid::from_raw(pid), change)))
        }
        Err(Errno::ECHILD | Errno::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
