//! Named points at which a test can make the process die, as by SIGKILL: nothing is flushed, nothing dropped.
//!
//! `LOCKHOUSE_CRASH_AT=POINT` names one, and `POINT:N` the N-th time that it is come to. Builds with debug assertions
//! only; in others a point is nothing at all.

/// Dies here if a test asked for it.
#[cfg(debug_assertions)]
pub(crate) fn point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static AT: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static TIMES: AtomicU64 = AtomicU64::new(0);
    let at = AT.get_or_init(|| {
        let at = std::env::var("LOCKHOUSE_CRASH_AT").ok()?;
        let counted = at.split_once(':').and_then(|(name, times)| Some((name.to_owned(), times.parse().ok()?)));
        Some(counted.unwrap_or((at, 1)))
    });
    if let Some((at, times)) = at
        && at == name
        && TIMES.fetch_add(1, Ordering::Relaxed) + 1 == *times
    {
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        // The signal comes before the call returns, or at the latest now.
        loop {
            std::thread::park();
        }
    }
}

/// Nothing at all.
#[cfg(not(debug_assertions))]
pub(crate) fn point(_name: &str) {}
