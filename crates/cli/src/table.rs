//! Tables for people: a header, columns as wide as their content, and no column without content.
//! Times in them have the form of RFC 3339, in UTC and without milliseconds.

use stockade_core::printable::escaped;

/// The space between two columns.
const GAP: &str = "  ";

/// A table. Names in it may come from a sandbox.
#[derive(Debug)]
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    /// A table without rows.
    pub(crate) fn new(header: [&str; COLUMNS]) -> Self {
        Self { rows: vec![header.map(str::to_owned)] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells.map(|cell| escaped(&cell).into_owned()));
    }

    /// The text, each line with its end.
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().skip(1).map(|row| row[column].chars().count());
            match cells.max().unwrap_or_default() {
                // Nothing is in it.
                0 if self.rows.len() > 1 => None,
                widest => Some(widest.max(self.rows[0][column].chars().count())),
            }
        };
        let widths: Vec<_> = (0..COLUMNS).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths);
            let cells = cells.filter_map(|(cell, width)| Some(format!("{cell:<0$}", (*width)?)));
            text.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
            text.push('\n');
        }
        text
    }
}

/// A size in the largest unit of which there is at least one.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut tenths = bytes.saturating_mul(10) / 1024;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (bytes, text) in [
            (0, "0.0 KiB"),
            (4096, "4.0 KiB"),
            (1536 << 10, "1.5 MiB"),
            (3 << 30, "3.0 GiB"),
            (5 << 50, "5120.0 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_content() {
        let mut table = Table::new(["ID", "LABELS", "STATE"]);
        assert_eq!(table.text(), "ID  LABELS  STATE\n");
        table.row(["one".to_owned(), String::new(), "running".to_owned()]);
        table.row(["a\u{202e}b".to_owned(), String::new(), "x".to_owned()]);
        assert_eq!(table.text(), "ID          STATE\none         running\na\\u{202e}b  x\n");
    }
}
