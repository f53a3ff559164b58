//! The signals of the program: blocked before any thread exists, then read one by one from a signalfd.
//!
//! Blocking is per thread and inherited, so it has to happen first of all in `main`; every later thread then
//! leaves these signals to the one reader. A signalfd rather than handlers: nothing runs at a random point, a
//! signal that arrives between two looks stays pending, and signals that a pid 1 could not receive by
//! default reach it all the same, because the kernel never drops a blocked signal.
//!
//! `SIGTSTP` is blocked too. A wrapper that simply stopped would leave its command running in a group of its own,
//! under a lease that nobody refreshes; so the command is stopped first, and then [`Signals::stop_group`] lets
//! the default action through on purpose.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::ptr;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpid};
use tokio::io::unix::AsyncFd;

/// What a user or a supervisor sends to end the program.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// What is always read here, besides those that may have been ignored on entry.
const ALWAYS: [Signal; 5] = [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGCHLD, Signal::SIGCONT];

/// What stays ignored, here and in the command, if it was ignored when the program began: `nohup` ignores
/// `SIGHUP`, and a shell without job control ignores the other two for what it puts in the background.
const KEPT_IF_IGNORED: [Signal; 3] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT];

/// What stopping the process led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It stopped, and somebody continued it: a `SIGCONT` waits to be read.
    Continued,
    /// The kernel did not stop it: the group is orphaned (nobody could ever continue it), the process is a pid 1,
    /// or it was started with `SIGTSTP` ignored.
    Refused,
}

/// The one reader of the program's signals.
#[derive(Debug)]
pub(crate) struct Signals {
    source: Source,
    ignored: Vec<Signal>,
}

/// The signalfd, before and after it is known to the runtime: it is made before there is one.
#[derive(Debug)]
enum Source {
    Idle(Option<SignalFd>),
    Listening(AsyncFd<SignalFd>),
}

impl Signals {
    /// Takes the signals over. To be called first of all in `main`, before any thread exists: a thread that
    /// was started earlier would still be interrupted by them.
    pub(crate) fn install() -> io::Result<Signals> {
        let ignored: Vec<Signal> =
            KEPT_IF_IGNORED.into_iter().filter(|&signal| disposition(signal) == libc::SIG_IGN).collect();
        let mut mask = SigSet::empty();
        for signal in ALWAYS.into_iter().chain(KEPT_IF_IGNORED) {
            if !ignored.contains(&signal) {
                mask.add(signal);
            }
        }
        if disposition(Signal::SIGTSTP) != libc::SIG_IGN {
            mask.add(Signal::SIGTSTP);
        }
        mask.thread_block()?;
        // An inherited "ignore" of SIGCHLD would make the kernel reap our children before we saw them end.
        set_disposition(Signal::SIGCHLD, libc::SIG_DFL)?;
        // The command has the terminal most of the time; taking it back must not stop us.
        set_disposition(Signal::SIGTTIN, libc::SIG_IGN)?;
        set_disposition(Signal::SIGTTOU, libc::SIG_IGN)?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Signals { source: Source::Idle(Some(fd)), ignored })
    }

    /// Those of HUP, INT and QUIT that were ignored when the program began.
    pub(crate) fn ignored(&self) -> &[Signal] {
        &self.ignored
    }

    /// The next signal. Several of one kind that arrived together count as one. Nothing is lost when the future
    /// is dropped.
    pub(crate) async fn next(&mut self) -> io::Result<Signal> {
        let source = self.listen()?;
        loop {
            let mut ready = source.readable().await?;
            match ready.try_io(|fd| read_one(fd.get_ref())) {
                Ok(signal) => return signal,
                Err(_would_block) => continue,
            }
        }
    }

    /// Resolves with the first TERM, INT, HUP or QUIT: for the `select!` of a wait, a drain or a release, while
    /// there is no command to forward to. Ctrl-Z stops the program meanwhile, as it would any other; the rest is
    /// swallowed.
    pub(crate) async fn interrupted(&mut self) -> io::Result<Signal> {
        loop {
            let signal = self.next().await?;
            if ENDING.contains(&signal) {
                return Ok(signal);
            }
            if signal == Signal::SIGTSTP {
                // The others of the group had it from the terminal themselves.
                stop(getpid())?;
            }
        }
    }

    /// Stops the program's whole group as Ctrl-Z would, so that the shell above notices, and returns when it is
    /// continued, or at once if the kernel does not stop it.
    pub(crate) fn stop_group(&self) -> io::Result<Stop> {
        stop(Pid::from_raw(0))
    }

    fn listen(&mut self) -> io::Result<&AsyncFd<SignalFd>> {
        if let Source::Idle(fd) = &mut self.source {
            let fd = fd.take().ok_or_else(|| io::Error::other("the signals could not be watched before"))?;
            self.source = Source::Listening(register(fd)?);
        }
        match &self.source {
            Source::Listening(fd) => Ok(fd),
            Source::Idle(_) => unreachable!("it has just been replaced"),
        }
    }
}

/// Makes the runtime watch the signalfd.
#[expect(unsafe_code, reason = "the runtime cannot see that the descriptor stays open")]
fn register(fd: SignalFd) -> io::Result<AsyncFd<SignalFd>> {
    // SAFETY: a `SignalFd` owns its descriptor, and the `AsyncFd` owns the `SignalFd` and is never taken apart.
    Ok(unsafe { AsyncFd::register(fd)? })
}

/// Reads one signal, or `WouldBlock`.
fn read_one(fd: &SignalFd) -> io::Result<Signal> {
    match fd.read_signal()? {
        None => Err(io::ErrorKind::WouldBlock.into()),
        Some(info) => {
            let number = i32::try_from(info.ssi_signo).map_err(io::Error::other)?;
            Ok(Signal::try_from(number)?)
        }
    }
}

/// Sends `SIGTSTP` to `target` (which includes this process) with its default action let through.
fn stop(target: Pid) -> io::Result<Stop> {
    let only = |signal: Signal| {
        let mut set = SigSet::empty();
        set.add(signal);
        set
    };
    let tstp = only(Signal::SIGTSTP);
    // One that waits already would stop us at the unblocking, and ours again right after the CONT.
    let waiting = SignalFd::with_flags(&tstp, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    while waiting.read_signal()?.is_some() {}
    tstp.thread_unblock()?;
    // Sending a stop signal drops every CONT that was pending, and a signal that a process sends to itself is
    // acted on before the call returns: a CONT that is pending afterwards came because we had stopped.
    let sent = kill(target, Signal::SIGTSTP);
    tstp.thread_block()?;
    sent?;
    let cont = SignalFd::with_flags(&only(Signal::SIGCONT), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut fds = [PollFd::new(cont.as_fd(), PollFlags::POLLIN)];
    let came = poll(&mut fds, PollTimeout::ZERO)? > 0;
    Ok(if came { Stop::Continued } else { Stop::Refused })
}

/// The present disposition of a signal.
#[expect(unsafe_code, reason = "no safe wrapper reads a disposition without changing it")]
fn disposition(signal: Signal) -> libc::sighandler_t {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only queries; `now` is a valid place for the answer, and all zeroes is a valid
    // `sigaction` should the call fail, which it cannot for these signals.
    unsafe {
        libc::sigaction(signal as libc::c_int, ptr::null(), now.as_mut_ptr());
        now.assume_init().sa_sigaction
    }
}

/// Sets a signal to be ignored or to its default action.
#[expect(unsafe_code, reason = "changing a disposition is unsafe for the sake of handlers; none is set here")]
fn set_disposition(signal: Signal, to: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: `to` is `SIG_IGN` or `SIG_DFL`, so no code of ours will run in a signal's context.
    let before = unsafe { libc::signal(signal as libc::c_int, to) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}
