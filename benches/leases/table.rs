//! Samples in turns, and the table of their medians.

use std::time::Duration;

/// What a row is to reach.
#[derive(Clone, Copy)]
pub(crate) enum Aim {
    /// At most so many times what the driver needs.
    Ratio(f64),
    /// At most this long.
    Within(Duration),
}

/// One line of the table: the samples of both sides.
pub(crate) struct Row {
    name: &'static str,
    aim: Option<Aim>,
    pub(crate) ours: Vec<Duration>,
    pub(crate) driver: Vec<Duration>,
}

impl Row {
    pub(crate) fn of(name: &'static str) -> Row {
        Row { name, aim: None, ours: Vec::new(), driver: Vec::new() }
    }

    pub(crate) fn aim(self, aim: Aim) -> Row {
        Row { aim: Some(aim), ..self }
    }

    pub(crate) fn with(self, ours: Vec<Duration>, driver: Vec<Duration>) -> Row {
        Row { ours, driver, ..self }
    }

    pub(crate) fn print(&self) {
        let (ours, driver) = (median(&self.ours), median(&self.driver));
        let ratio = ours.zip(driver).map(|(ours, driver)| ours.as_secs_f64() / driver.as_secs_f64());
        let aim = self.aim.map_or(String::new(), |aim| match aim {
            Aim::Ratio(aim) => verdict(format!("{aim:.2} x"), ratio.is_some_and(|ratio| ratio <= aim)),
            Aim::Within(aim) => {
                verdict(format!("{} ms", aim.as_secs_f64() * 1e3), ours.is_some_and(|ours| ours <= aim))
            }
        });
        let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2} x"));
        println!("{:<34}{:>12}{:>14}{:>9}   {aim}", self.name, millis(ours), millis(driver), ratio);
    }
}

pub(crate) fn head(peer: &str) {
    println!("{:<34}{:>12}{peer:>14}{:>9}   aim", "medians", "lockhouse", "ratio");
}

/// Samples of both sides in turns, after some that do not count.
pub(crate) async fn compare(
    mut row: Row,
    samples: usize,
    mut ours: impl AsyncFnMut() -> Duration,
    mut driver: impl AsyncFnMut() -> Duration,
) -> Row {
    let warm_up = samples / 10;
    for sample in 0..warm_up + samples {
        // Neither side always comes first after the other.
        let (one, other) = if sample % 2 == 0 {
            let one = ours().await;
            (one, driver().await)
        } else {
            let other = driver().await;
            (ours().await, other)
        };
        if sample >= warm_up {
            row.ours.push(one);
            row.driver.push(other);
        }
    }
    row
}

/// Samples of one side.
pub(crate) async fn measure(samples: usize, mut sample: impl AsyncFnMut() -> Duration) -> Vec<Duration> {
    sample().await;
    let mut took = Vec::with_capacity(samples);
    for _ in 0..samples {
        took.push(sample().await);
    }
    took
}

fn median(samples: &[Duration]) -> Option<Duration> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

fn millis(duration: Option<Duration>) -> String {
    duration.map_or("-".to_owned(), |duration| {
        let millis = duration.as_secs_f64() * 1e3;
        if millis < 1.0 { format!("{millis:.3} ms") } else { format!("{millis:.2} ms") }
    })
}

fn verdict(aim: String, reached: bool) -> String {
    format!("{aim}{}", if reached { "" } else { "  MISSED" })
}
