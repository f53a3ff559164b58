//! The timer that the deadline hangs on: the kernel's, on the clock that counts sleep.
//!
//! The runtime's own timers stand still while the machine sleeps. Set for four seconds ahead, they would
//! let a command run on for what was left of these after a night's suspend, long past the deadline. A timerfd
//! on `CLOCK_BOOTTIME` expires at once on waking up, and needs no other thread.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A point in time, as the time since the machine was booted.
pub(super) type Moment = Duration;

/// The present moment.
pub(super) fn now() -> Moment {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// One alarm, set anew whenever the plan changes.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    #[expect(unsafe_code, reason = "the runtime cannot see that the descriptor stays open")]
    pub(super) fn new() -> io::Result<Alarm> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        // SAFETY: the `AsyncFd` owns the owned descriptor and is never taken apart.
        let timer = unsafe { AsyncFd::register(timer)? };
        Ok(Alarm { timer })
    }

    /// Sets the alarm, or switches it off. A moment that has passed rings at once.
    pub(super) fn set(&self, at: Option<Moment>) -> io::Result<()> {
        // All zeroes means off, so the very first nanosecond has to do for zero.
        let at = at.map_or(Duration::ZERO, |at| at.max(Duration::from_nanos(1)));
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value =
            Timespec { tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX), tv_nsec: at.subsec_nanos().into() };
        let spec = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }

    /// Resolves when the alarm has rung.
    pub(super) async fn rang(&self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            let read = ready.try_io(|timer| {
                let mut count = [0; 8];
                Ok(rustix::io::read(timer.get_ref(), &mut count)?)
            });
            match read {
                Ok(result) => return result.map(|_| ()),
                Err(_would_block) => continue,
            }
        }
    }
}
