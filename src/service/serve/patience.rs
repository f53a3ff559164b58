//! A connection whose writing may stand still only for so long: who takes nothing of its answer is let go. Until then it is
//! being answered, also when all of the answer is made and waits to be sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::crowd::{Busy, Place};
use crate::clock::{Clock, SystemClock};

/// A stream with a limit for stalls of its writing.
pub(super) struct Patience<S> {
    stream: S,
    limit: Duration,
    place: Arc<Place>,
    /// The end of the stall that goes on.
    stalled: Option<(BoxFuture<'static, ()>, Busy)>,
}

impl<S> Patience<S> {
    pub(super) fn new(stream: S, limit: Duration, place: Arc<Place>) -> Patience<S> {
        Patience { stream, limit, place, stalled: None }
    }

    /// What came of a write, or an error if it has come to nothing for too long.
    fn bounded<T>(&mut self, wrote: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let (limit, place) = (self.limit, &self.place);
        let begin = || (SystemClock.sleep_until(SystemClock.now() + limit), Place::busy(place));
        let (end, _) = self.stalled.get_or_insert_with(begin);
        ready!(end.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patience<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(wrote, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(shut, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.bounded(wrote, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
