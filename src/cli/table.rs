//! Tables of at most 100 columns, whatever the cells hold.

use std::fmt;

use lockhouse::describe::printable;
use lockhouse::{Holder, LeaseInfo};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Between two columns.
const GAP: &str = "  ";

/// A table with a header. A column is as wide as its widest cell, at most as wide as it may be.
pub(crate) struct Table {
    columns: Vec<(&'static str, usize)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// The columns' names and greatest widths.
    pub(crate) fn new(columns: &[(&'static str, usize)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row of cells that are safe to print.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().zip(&self.columns);
        self.rows.push(cells.map(|(cell, (_, most))| fit(&cell, *most)).collect());
    }

    /// The lines, the header first, each with the row that it shows.
    pub(crate) fn lines(&self) -> Vec<String> {
        let header: Vec<String> = self.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let all: Vec<&Vec<String>> = std::iter::once(&header).chain(&self.rows).collect();
        let widths: Vec<usize> =
            (0..self.columns.len()).map(|n| all.iter().map(|row| row[n].width()).max().unwrap_or(0)).collect();
        let line = |row: &&Vec<String>| {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| {
                    let padding = width.saturating_sub(cell.width());
                    format!("{cell}{}", " ".repeat(padding))
                })
                .collect();
            cells.join(GAP).trim_end().to_owned()
        };
        all.iter().map(line).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// `text` cut to a width, with a mark where something is missing. Marks that stand over a character count
/// nothing towards the width, so their number is bounded too.
pub(crate) fn fit(text: &str, most: usize) -> String {
    if text.width() <= most && text.chars().count() <= 4 * most {
        return text.to_owned();
    }
    let (mut cut, mut width) = (String::new(), 0);
    for c in text.chars().take(4 * most) {
        width += c.width().unwrap_or(0);
        if width > most.saturating_sub(1) {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

/// Who holds something, for a cell: the program last, for it can be done without.
pub(crate) fn holder(holder: &Holder) -> String {
    printable(&format!("{}@{} pid {} ({})", holder.user, holder.host, holder.pid, holder.program))
}

/// Who holds a lease, for a cell.
pub(crate) fn lease_holder(lease: &LeaseInfo) -> String {
    match &lease.holder {
        Some(of) => holder(of),
        None if lease.peer => "a peer".to_owned(),
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_cut_by_what_they_take_on_the_screen() {
        assert_eq!(fit("short", 10), "short");
        assert_eq!(fit("a longer text", 8), "a longe…");
        assert_eq!(fit("日本語日本語", 8), "日本語…");
        let marks = format!("e{}", "\u{301}".repeat(5000));
        assert!(fit(&marks, 10).chars().count() <= 41);
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("a", 10), ("b", 5)]);
        table.row(["日本".to_owned(), "x".to_owned()]);
        table.row(["long enough".to_owned(), "yyyyyyy".to_owned()]);
        assert_eq!(table.lines(), ["a           b", "日本        x", "long enou…  yyyy…"]);
    }
}
