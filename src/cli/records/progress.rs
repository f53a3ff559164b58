//! How far a long command is: a line that is drawn anew on a terminal, elsewhere lines at growing intervals.

use std::future::Future;
use std::time::Duration;

use lockhouse::clock::{Clock, Moment, SystemClock};
use serde_json::json;

use super::super::console::Console;
use super::super::exit::millis;

/// Between two drawings.
const DRAWN: Duration = Duration::from_millis(200);
/// Before the first line, and the longest pause between two.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

/// Tells how far it is.
pub(super) struct Progress {
    console: Console,
    /// The length of the input, if it is known.
    length: Option<u64>,
    began: Moment,
    due: Moment,
    pause: Duration,
    rows: u64,
    bytes: u64,
}

impl Progress {
    pub(super) fn new(console: &Console, length: Option<u64>) -> Progress {
        let now = SystemClock.now();
        let pause = if console.draws() { DRAWN } else { FIRST };
        Progress { console: console.clone(), length, began: now, due: now + pause, pause, rows: 0, bytes: 0 }
    }

    /// So much more has been handed over.
    pub(super) fn add(&mut self, rows: usize, bytes: usize) {
        self.rows += rows as u64;
        self.bytes += bytes as u64;
    }

    /// Tells while something goes on.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    // Work that is always ready leaves no time for the other branch.
                    if SystemClock.now() >= self.due {
                        self.tell();
                    }
                    return done;
                }
                () = SystemClock.sleep_until(self.due) => self.tell(),
            }
        }
    }

    fn tell(&mut self) {
        let now = SystemClock.now();
        self.due = now + self.pause;
        let elapsed = now.since(self.began);
        let per_second = (self.rows as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
        let mut text = format!("{} rows, {} a second", grouped(self.rows), grouped(per_second));
        if let Some(length) = self.length.filter(|length| *length > 0) {
            text.push_str(&format!(", {} %", (self.bytes.saturating_mul(100) / length).min(100)));
        }
        if self.console.draws() {
            return self.console.live(&text);
        }
        self.pause = (self.pause * 2).min(LONGEST);
        let fields = json!({
            "rows": self.rows, "bytes": self.bytes, "of_bytes": self.length, "elapsed_ms": millis(elapsed)
        });
        self.console.event("progress", fields, &text);
    }
}

/// `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
