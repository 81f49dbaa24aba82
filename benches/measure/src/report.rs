//! The series of one benchmark as a table for people and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::Series;

/// What the values of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Times: less is better.
    Milliseconds,
    /// Rates: more is better.
    PerSecond,
}

impl Unit {
    /// The columns besides the median: the bad tail, and the best.
    const fn columns(self) -> [(&'static str, f64); 3] {
        match self {
            Self::Milliseconds => [("p90", 0.9), ("p99", 0.99), ("min", 0.0)],
            Self::PerSecond => [("p10", 0.1), ("p1", 0.01), ("max", 1.0)],
        }
    }

    const fn short(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::PerSecond => "/s",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Milliseconds => "milliseconds",
            Self::PerSecond => "per second",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Milliseconds => format!("{value:.2}"),
            Self::PerSecond => format!("{value:.0}"),
        }
    }
}

/// What was measured in one run.
#[derive(Debug)]
pub struct Report {
    /// What all series measure: the head of the first column.
    pub what: &'static str,
    /// What their values are.
    pub unit: Unit,
    /// The name of the series that ratios are taken to.
    pub base: &'static str,
    /// One for each contender that took part.
    pub series: Vec<Series>,
}

impl Report {
    fn base(&self) -> Option<&Series> {
        self.series.iter().find(|series| series.name() == self.base)
    }

    /// The series as a Markdown table.
    #[must_use]
    pub fn table(&self) -> String {
        let (unit, base) = (self.unit, self.base);
        let columns = unit.columns();
        let short = unit.short();
        let [(a, _), (b, _), (c, _)] = columns;
        let mut table = format!(
            "| {} | median {short} | {a} {short} | {b} {short} | {c} {short} | × {base} | \
             × {base}, paired | n | goal |\n|---|---|---|---|---|---|---|---|---|\n",
            self.what
        );
        for series in &self.series {
            let [a, b, c] = columns.map(|(_, part)| unit.show(series.quantile(part)));
            let ratio = |ratio: fn(&Series, &Series) -> f64| {
                self.base()
                    .map_or_else(|| "–".to_owned(), |base| format!("{:.2}", ratio(series, base)))
            };
            let goal = series.goal().map(|goal| goal.judge(series, self.base()));
            let _ = writeln!(
                table,
                "| {} | {} | {a} | {b} | {c} | {} | {} | {} | {} |",
                series.name(),
                unit.show(series.median()),
                ratio(Series::ratio_of_medians),
                ratio(Series::median_of_ratios),
                series.count(),
                goal.unwrap_or_default(),
            );
        }
        table
    }

    /// The same as JSON: an array with an object for each series.
    #[must_use]
    pub fn rows(&self) -> Value {
        let row = |series: &Series| {
            let mut row = json!({
                "name": series.name(),
                "samples": series.count(),
                "median": series.median(),
                "ratioTo": self.base,
                "ratioOfMedians": self.base().map(|base| series.ratio_of_medians(base)),
                "medianOfRatios": self.base().map(|base| series.median_of_ratios(base)),
                "goal": series.goal().map(|goal| goal.judge(series, self.base())),
            });
            for (name, part) in self.unit.columns() {
                row[name] = json!(series.quantile(part));
            }
            row
        };
        self.series.iter().map(row).collect()
    }

    /// Writes the rows to a file, with what else the benchmark has to say.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, file: &Path, benchmark: &str, more: &Value) -> std::io::Result<()> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut all = json!({
            "benchmark": benchmark,
            "unit": self.unit.words(),
            "kernel": kernel.trim(),
            "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "rows": self.rows(),
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            all[name] = value.clone();
        }
        std::fs::write(file, format!("{all:#}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Goal;

    fn report(base: &'static str) -> Report {
        let mut own = Series::new("own").with_goal(Goal::RatioAtMost(0.5));
        let mut peer = Series::new("peer");
        for (mine, theirs) in [(5.0, 10.0), (30.0, 10.0), (2.0, 20.0)] {
            own.push(mine);
            peer.push(theirs);
        }
        Report { what: "start", unit: Unit::Milliseconds, base, series: vec![own, peer] }
    }

    #[test]
    fn a_table_has_a_line_for_each_series() {
        let table = report("peer").table();
        let own = "| own | 5.00 | 25.00 | 29.50 | 2.00 | 0.50 | 0.50 | 3 | ≤ 0.50 ×: reached |";
        assert!(table.contains(own), "{table}");
        assert!(table.contains("| × peer | × peer, paired |"), "{table}");
        assert_eq!(table.lines().count(), 4);
    }

    #[test]
    fn without_the_base_there_are_no_ratios() {
        let table = report("absent").table();
        assert!(table.contains("| 2.00 | – | – | 3 | ≤ 0.50 ×: missed |"), "{table}");
        assert!(report("absent").rows()[0]["ratioOfMedians"].is_null());
    }

    #[test]
    fn a_file_holds_the_rows_and_what_else_there_is() {
        let file = std::env::temp_dir().join(format!("stockade-measure-{}", std::process::id()));
        report("peer").write(&file, "start", &json!({"rounds": 3})).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let all: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(all["rounds"], 3);
        assert_eq!(all["rows"][1]["name"], "peer");
        assert_eq!(all["rows"][0]["min"], 2.0);
    }
}
