//! Samples in turns, the table of their medians, and the series that become plots.
//!
//! Everything is printed. With `LOCKHOUSE_BENCH_OUT` it also goes to `rows.ndjson` and `series.ndjson` in that directory,
//! of which the benchmark `report` makes a page.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// What a row is to reach.
#[derive(Clone, Copy)]
pub(crate) enum Aim {
    /// At most so many times what the other side needs.
    Ratio(f64),
    /// At most this long.
    Within(Duration),
    /// At most this long, 99 times of a hundred.
    Mostly(Duration),
}

/// One line of the table: the samples of both sides.
pub(crate) struct Row {
    name: String,
    aim: Option<Aim>,
    limit: &'static str,
    pub(crate) ours: Vec<Duration>,
    pub(crate) driver: Vec<Duration>,
}

/// Where the rows that follow belong, and whom they are compared with.
#[derive(Clone, Default)]
struct Section {
    name: String,
    peer: String,
}

thread_local! {
    static SECTION: RefCell<Section> = RefCell::default();
}

impl Row {
    pub(crate) fn of(name: impl Into<String>) -> Row {
        Row { name: name.into(), aim: None, limit: "", ours: Vec::new(), driver: Vec::new() }
    }

    pub(crate) fn aim(self, aim: Aim) -> Row {
        Row { aim: Some(aim), ..self }
    }

    /// What keeps it from being quicker.
    pub(crate) fn limited_by(self, limit: &'static str) -> Row {
        Row { limit, ..self }
    }

    pub(crate) fn with(self, ours: Vec<Duration>, driver: Vec<Duration>) -> Row {
        Row { ours, driver, ..self }
    }

    pub(crate) fn print(&self) {
        let (ours, driver) = (share(&self.ours, 50), share(&self.driver, 50));
        let ratio = ours.zip(driver).map(|(ours, driver)| ours.as_secs_f64() / driver.as_secs_f64());
        let worst = share(&self.ours, 99);
        let (aim, reached) = match self.aim {
            None => (String::new(), None),
            Some(Aim::Ratio(aim)) => (format!("{aim:.2} x"), ratio.map(|ratio| ratio <= aim)),
            Some(Aim::Within(aim)) => (show(aim), ours.map(|ours| ours <= aim)),
            Some(Aim::Mostly(aim)) => (format!("p99 {}", show(aim)), worst.map(|worst| worst <= aim)),
        };
        let missed = if reached == Some(false) { "  MISSED" } else { "" };
        let shown = |time: Option<Duration>| time.map_or("-".to_owned(), show);
        let ratio_shown = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2} x"));
        println!(
            "{:<38}{:>11}{:>11}{:>14}{:>9}   {aim}{missed}",
            self.name,
            shown(ours),
            shown(worst),
            shown(driver),
            ratio_shown
        );
        let nanos = |time: Option<Duration>| time.map(|time| time.as_nanos() as u64);
        let section = SECTION.with_borrow(Clone::clone);
        put(
            "rows.ndjson",
            &json!({
                "section": section.name, "peer": section.peer, "name": self.name, "p50_ns": nanos(ours),
                "p99_ns": nanos(worst), "peer_p50_ns": nanos(driver), "ratio": ratio, "aim": aim, "reached": reached,
                "limited_by": self.limit, "samples": self.ours.len(),
            }),
        );
    }
}

/// Begins a section of rows.
pub(crate) fn head(section: &str, peer: &str) {
    SECTION.set(Section { name: section.to_owned(), peer: peer.to_owned() });
    println!("\n{section}");
    println!("{:<38}{:>11}{:>11}{peer:>14}{:>9}   aim", "", "p50", "p99", "ratio");
}

/// Prints and keeps one line of a plot: points of x and y.
pub(crate) fn series(plot: &str, name: &str, points: &[(f64, f64)]) {
    let text: Vec<String> = points.iter().map(|(x, y)| format!("{x}: {y:.4}")).collect();
    println!("{plot}, {name}: {}", text.join(", "));
    put("series.ndjson", &json!({"plot": plot, "name": name, "points": points}));
}

fn put(file: &str, line: &Value) {
    let Some(directory) = std::env::var_os("LOCKHOUSE_BENCH_OUT") else { return };
    let mut file =
        OpenOptions::new().append(true).create(true).open(Path::new(&directory).join(file)).expect("a file of results");
    writeln!(file, "{line}").expect("a line of results");
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

/// The sample that so many of a hundred do not exceed.
pub(crate) fn share(samples: &[Duration], of_a_hundred: usize) -> Option<Duration> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * of_a_hundred / 100).min(sorted.len().saturating_sub(1))).copied()
}

/// A duration in the unit that suits it.
pub(crate) fn show(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    let (value, unit) = match nanos {
        ..1e3 => return format!("{nanos} ns"),
        ..1e6 => (nanos / 1e3, "µs"),
        ..1e9 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    if value < 10.0 { format!("{value:.2} {unit}") } else { format!("{value:.1} {unit}") }
}
