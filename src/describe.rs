//! Small pieces of text for people: durations, and text from outside made safe to print.

use std::time::Duration;

/// `text` with everything that could steer a terminal or forge a line escaped: control characters, and the
/// marks that turn the reading direction.
pub fn printable(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
    };
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// The longest piece of a holder's text in a sentence, in characters.
const BRIEF: usize = 160;

/// As [`printable`], cut where it gets too long for a sentence: a label may have thousands of characters.
pub(crate) fn brief(text: &str) -> String {
    match text.char_indices().nth(BRIEF) {
        Some((end, _)) => printable(&text[..end]) + "…",
        None => printable(text),
    }
}

/// A duration as people say it: `350 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`.
pub fn duration(duration: Duration) -> String {
    let secs = duration.as_secs();
    match secs {
        0 => format!("{} ms", duration.as_millis()),
        1..60 if duration.subsec_millis() >= 100 && secs < 10 => {
            format!("{secs}.{} s", duration.subsec_millis() / 100)
        }
        1..60 => format!("{secs} s"),
        60..3600 => pair(secs / 60, "min", secs % 60, "s"),
        3600..86_400 => pair(secs / 3600, "h", secs % 3600 / 60, "min"),
        _ => pair(secs / 86_400, "d", secs % 86_400 / 3600, "h"),
    }
}

fn pair(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let say = |millis| duration(Duration::from_millis(millis));
        assert_eq!(say(350), "350 ms");
        assert_eq!(say(4200), "4.2 s");
        assert_eq!(say(10_900), "10 s");
        assert_eq!(say(185_000), "3 min 5 s");
        assert_eq!(say(7_200_000), "2 h");
        assert_eq!(say(273_600_000), "3 d 4 h");
    }

    #[test]
    fn nothing_printed_steers_a_terminal() {
        assert_eq!(printable("a\nb\u{1b}[2Jc\u{202e}d"), "a\\nb\\u{1b}[2Jc\\u{202e}d");
        assert_eq!(printable("grüße"), "grüße");
        assert_eq!(brief("grüße"), "grüße");
        assert_eq!(brief(&"ü".repeat(4096)).chars().count(), BRIEF + 1);
    }
}
