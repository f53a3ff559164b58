//! Rows out: written on a thread of their own, for a reader that takes its time must not keep a signal waiting.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{SyncSender, sync_channel};

use lockhouse::records::Window;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::oneshot;

use super::super::exit::Failure;
use super::super::output;

type Job = (Vec<u8>, oneshot::Sender<io::Result<()>>);

/// The program's stdout, for rows.
pub(super) struct Out {
    jobs: SyncSender<Job>,
    with_seq: bool,
    terminal: bool,
}

impl Out {
    pub(super) fn start(with_seq: bool) -> Result<Out, Failure> {
        let (jobs, inbox) = sync_channel::<Job>(1);
        let write = move || {
            for (bytes, reply) in inbox {
                let mut out = io::stdout().lock();
                // Nobody waits for it after a signal.
                let _ = reply.send(out.write_all(&bytes).and_then(|()| out.flush()));
            }
        };
        std::thread::Builder::new()
            .name("stdout".to_owned())
            .spawn(write)
            .map_err(|error| Failure::system("no thread for writing rows", error))?;
        Ok(Out { jobs, with_seq, terminal: io::stdout().is_terminal() })
    }

    /// Writes the rows of a window, and says whether anybody still reads.
    pub(super) async fn write(&self, window: &Window) -> Result<bool, Failure> {
        let bytes = self.lines(window);
        let (reply, answer) = oneshot::channel();
        let gone = || Failure::system("stdout cannot be written", io::ErrorKind::Other.into());
        self.jobs.send((bytes, reply)).map_err(|_| gone())?;
        match answer.await.map_err(|_| gone())? {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::system("stdout cannot be written", error)),
        }
    }

    fn lines(&self, window: &Window) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(window.rows.len() * 64);
        for (seq, row) in &window.rows {
            if self.with_seq {
                bytes.extend_from_slice(format!("{{\"seq\":{seq},\"row\":").as_bytes());
            }
            window.schema.write(row, &mut bytes);
            bytes.extend_from_slice(if self.with_seq { b"}\n" } else { b"\n" });
        }
        if self.terminal {
            // The same values, written so that none of them steers it. A line's end is no value.
            let lines = String::from_utf8_lossy(&bytes);
            return lines.lines().map(|line| output::escaped(line) + "\n").collect::<String>().into_bytes();
        }
        bytes
    }
}

/// Whether whoever read stdout has gone: a pipe without a reader, a terminal that hung up.
pub(super) fn nobody_reads() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..)) && fds[0].revents().is_some_and(|seen| seen.intersects(gone))
}
