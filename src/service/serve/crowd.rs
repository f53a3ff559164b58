//! Who is connected. A place that nobody asks anything at is given to the next when all are taken.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// All places.
#[derive(Debug, Clone)]
pub(super) struct Crowd(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    seats: Mutex<Seats>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Seats {
    next: u64,
    /// In the order in which they came.
    taken: BTreeMap<u64, Arc<Seat>>,
}

#[derive(Debug, Default)]
struct Seat {
    /// Requests that are being answered.
    busy: AtomicUsize,
    gives_way: CancellationToken,
}

/// The place of one connection.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    number: u64,
    seat: Arc<Seat>,
}

impl Crowd {
    pub(super) fn new(most: usize) -> Crowd {
        Crowd(Arc::new(Shared { most, seats: Mutex::default(), left: Notify::new() }))
    }

    /// A place; the oldest idle one gives way if all are taken. `None` if all are being answered.
    pub(super) fn enter(&self) -> Option<Place> {
        let mut seats = self.0.seats();
        if seats.taken.len() >= self.0.most {
            let idle = |seat: &Arc<Seat>| seat.busy.load(Ordering::Acquire) == 0;
            let oldest = seats.taken.iter().find(|(_, seat)| idle(seat)).map(|(number, _)| *number)?;
            // Its own end finds it gone.
            seats.taken.remove(&oldest)?.gives_way.cancel();
        }
        seats.next += 1;
        let (number, seat) = (seats.next, Arc::new(Seat::default()));
        seats.taken.insert(number, seat.clone());
        Some(Place { shared: self.0.clone(), number, seat })
    }

    /// Completes once nobody is connected.
    pub(super) async fn empty(&self) {
        loop {
            let left = self.0.left.notified();
            if self.0.seats().taken.is_empty() {
                return;
            }
            left.await;
        }
    }
}

impl Shared {
    fn seats(&self) -> std::sync::MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Completes when somebody else needs the place.
    pub(super) async fn gives_way(&self) {
        self.seat.gives_way.cancelled().await;
    }

    /// Somebody asks.
    pub(super) fn busy(place: &Arc<Place>) -> Busy {
        place.seat.busy.fetch_add(1, Ordering::AcqRel);
        Busy(place.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.seats().taken.remove(&self.number);
        self.shared.left.notify_one();
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy(Arc<Place>);

impl Busy {
    pub(super) fn until_end_of(self, body: Body) -> Answered {
        Answered { body, _busy: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.seat.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A body that keeps its connection's place until it has been made.
#[derive(Debug)]
pub(super) struct Answered {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_idle_place_gives_way_and_a_busy_one_never() {
        let crowd = Crowd::new(2);
        let first = Arc::new(crowd.enter().unwrap());
        let second = crowd.enter().unwrap();
        let busy = Place::busy(&first);
        let third = Arc::new(crowd.enter().unwrap());
        assert!(second.seat.gives_way.is_cancelled() && !first.seat.gives_way.is_cancelled());
        let also = Place::busy(&third);
        assert!(crowd.enter().is_none(), "nobody is idle");
        drop(busy);
        drop(second);
        let fourth = crowd.enter().unwrap();
        assert!(first.seat.gives_way.is_cancelled());
        drop((first, third, also, fourth));
        assert!(crowd.0.seats().taken.is_empty());
    }
}
