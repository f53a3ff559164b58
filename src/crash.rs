//! Named points at which a test can make the process die, as by SIGKILL: nothing is flushed, nothing dropped.
//!
//! `LOCKHOUSE_CRASH_AT=POINT` names one. Builds with debug assertions only; in others a point is nothing at all.

/// Dies here if a test asked for it.
#[cfg(debug_assertions)]
pub(crate) fn point(name: &str) {
    use std::sync::OnceLock;
    static AT: OnceLock<Option<String>> = OnceLock::new();
    if AT.get_or_init(|| std::env::var("LOCKHOUSE_CRASH_AT").ok()).as_deref() == Some(name) {
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
