//! Durations as people type them.

use std::time::Duration;

/// The longest duration that is taken: far beyond every use, and far from where sums overflow.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// `500ms`, `30s`, `10m`, `1h`, or a plain number of seconds. Fractions are fine.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(help()),
    };
    let number: f64 = number.parse().map_err(|_| help())?;
    match Duration::try_from_secs_f64(number * seconds) {
        // Whole milliseconds, so that 0.1 + 0.2 reads well in messages.
        Ok(duration) if duration <= LONGEST => {
            let rounded = (duration.as_nanos() + 500_000) / 1_000_000;
            u64::try_from(rounded).map(Duration::from_millis).map_err(|_| help())
        }
        _ => Err("at most ten years".to_owned()),
    }
}

fn help() -> String {
    "give it as 500ms, 30s, 10m or 1h; a plain number counts seconds".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_people_type_them() {
        for (text, millis) in [
            ("0", 0),
            ("30", 30_000),
            ("500ms", 500),
            ("30s", 30_000),
            ("0.3s", 300),
            ("1.5", 1500),
            ("10m", 600_000),
            ("10min", 600_000),
            ("1h", 3_600_000),
            (" 2 s ", 2000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "s", "-1", "1d", "1e9", "ten", "1.2.3", "inf", "NaN", "999999h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
