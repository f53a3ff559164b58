//! Pieces of text that several parts of the page need.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::LeaseInfo;
use crate::describe::{brief, printable};

/// `n thing` or `n things`, `n batch` or `n batches`.
pub(super) fn count(n: usize, thing: &str) -> String {
    let mut digits = n.to_string();
    let mut at = digits.len();
    while at > 3 {
        at -= 3;
        digits.insert(at, ',');
    }
    let plural = if thing.ends_with("ch") { "es" } else { "s" };
    format!("{digits} {thing}{}", if n == 1 { "" } else { plural })
}

/// A text of somebody else, in a direction of its own.
pub(super) fn quoted(text: &str) -> Markup {
    html! { bdi { (brief(text)) } }
}

/// What a holder calls itself; for one that says nothing, what it is.
pub(super) fn name(lease: &LeaseInfo) -> String {
    match &lease.holder {
        Some(holder) => match holder.label.as_deref().filter(|label| !label.trim().is_empty()) {
            Some(label) => brief(label),
            None => brief(&holder.program),
        },
        None if lease.peer => "a peer".to_owned(),
        None => "an unknown holder".to_owned(),
    }
}

/// Where a holder is.
pub(super) fn place(lease: &LeaseInfo) -> Option<String> {
    let holder = lease.holder.as_ref()?;
    Some(brief(&format!("{}@{} · pid {} · {}", holder.user, holder.host, holder.pid, holder.program)))
}

/// A moment by the store's clock: the time alone on the day of `now`.
pub(super) fn time(at: Timestamp, now: Timestamp) -> Markup {
    let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    let shown = at.strftime(if day(at) == day(now) { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" }).to_string();
    html! { time datetime=(format!("{at:.0}")) { (shown) " UTC" } }
}

/// The command that clears a lease once it is dead.
pub(super) fn clear(lease: &LeaseInfo) -> String {
    let peer = if lease.peer { " --peer-is-dead" } else { "" };
    match lease.kind {
        crate::LeaseKind::Fsck => format!("lockhouse clear{peer}"),
        crate::LeaseKind::Writer => format!("lockhouse prune{peer} {}", shell(&lease.id)),
    }
}

/// A word for a shell. What cannot be typed is shown escaped: it would not be found, and clears nothing else.
fn shell(word: &str) -> String {
    let word = printable(word);
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_.:@%+,=".contains(c) || c == '-';
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word;
    }
    let dashes = if word.starts_with('-') { "-- " } else { "" };
    format!("{dashes}'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_word_for_a_shell() {
        assert_eq!(shell("lease/1f-2"), "lease/1f-2");
        assert_eq!(shell("a; rm -rf 'b'"), r"'a; rm -rf '\''b'\'''");
        assert_eq!(shell("--force"), "-- '--force'");
        assert_eq!(shell(""), "''");
    }

    #[test]
    fn large_numbers_have_their_thousands_apart() {
        assert_eq!(count(1, "writer"), "1 writer");
        assert_eq!(count(10_000, "writer"), "10,000 writers");
        assert_eq!(count(1_234_567, "writer"), "1,234,567 writers");
        assert_eq!(count(2, "batch"), "2 batches");
    }
}
