//! From times to a table: medians, spread, and ratios to one contender of the same run.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::contenders::Contender;

/// One line of the table. Times are in milliseconds.
#[derive(Debug)]
pub(super) struct Row {
    name: &'static str,
    command: String,
    samples: usize,
    median: f64,
    p90: f64,
    minimum: f64,
    /// This median to the base's median.
    ratio_of_medians: Option<f64>,
    /// The median of the ratios within each round.
    median_of_ratios: Option<f64>,
}

impl Row {
    /// The row as it is written to a file.
    pub(super) fn as_json(&self, base: &str) -> Value {
        json!({
            "name": self.name,
            "command": self.command,
            "samples": self.samples,
            "median": self.median,
            "p90": self.p90,
            "min": self.minimum,
            "ratioTo": base,
            "ratioOfMedians": self.ratio_of_medians,
            "medianOfRatios": self.median_of_ratios,
        })
    }
}

/// A row for each contender with its ratios to the one named `base`, where that ran.
pub(super) fn rows(
    contenders: &[Contender],
    samples: &[Vec<Option<Duration>>],
    base: &str,
) -> Vec<Row> {
    let base = contenders.iter().position(|c| c.name == base).map(|at| &samples[at]);
    let base_median = base.map(|samples| quantile(&milliseconds(samples), 0.5));
    let row = |(contender, samples): (&Contender, &Vec<Option<Duration>>)| {
        let times = milliseconds(samples);
        let median = quantile(&times, 0.5);
        let ratios = base.map(|base| paired_ratios(samples, base));
        Row {
            name: contender.name,
            command: contender.line(),
            samples: times.len(),
            median,
            p90: quantile(&times, 0.9),
            minimum: quantile(&times, 0.0),
            ratio_of_medians: base_median.map(|base| median / base),
            median_of_ratios: ratios.map(|ratios| quantile(&ratios, 0.5)),
        }
    };
    contenders.iter().zip(samples).map(row).collect()
}

/// The rows as Markdown.
pub(super) fn table(rows: &[Row], base: &str) -> String {
    let mut table = format!(
        "| start to exit of `true` | median ms | p90 ms | min ms | × {base} | × {base}, paired | n |\n\
         |---|---|---|---|---|---|---|\n"
    );
    for row in rows {
        let ratio =
            |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), |r| format!("{r:.2}"));
        let _ = writeln!(
            table,
            "| {} | {:.2} | {:.2} | {:.2} | {} | {} | {} |",
            row.name,
            row.median,
            row.p90,
            row.minimum,
            ratio(row.ratio_of_medians),
            ratio(row.median_of_ratios),
            row.samples
        );
    }
    table
}

fn milliseconds(samples: &[Option<Duration>]) -> Vec<f64> {
    let mut times: Vec<f64> = samples.iter().flatten().map(|t| t.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// The ratios within each round in which both took part, sorted.
fn paired_ratios(samples: &[Option<Duration>], base: &[Option<Duration>]) -> Vec<f64> {
    let pairs = samples.iter().zip(base);
    let mut ratios: Vec<f64> = pairs
        .filter_map(|(own, base)| Some((*own)?.as_secs_f64() / (*base)?.as_secs_f64()))
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// The value below which that part of the sorted values lies, between the two nearest ones in
/// proportion; not a number when there are none.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    #[expect(clippy::cast_precision_loss, reason = "a few thousand samples are exact")]
    let position = part * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between zero and the number of samples"
    )]
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[test]
    fn quantiles_lie_between_their_neighbours() {
        let sorted = [1.0, 2.0, 3.0, 10.0];
        assert!(close(quantile(&sorted, 0.0), 1.0));
        assert!(close(quantile(&sorted, 0.5), 2.5));
        assert!(close(quantile(&sorted, 0.9), 7.9));
        assert!(close(quantile(&sorted, 1.0), 10.0));
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let contenders =
            [Contender::new("own", &["true"], 1), Contender::new("peer", &["true"], 1)];
        let times = |list: [u64; 3]| list.map(|ms| Some(Duration::from_millis(ms))).to_vec();
        let samples = [times([5, 30, 2]), times([10, 10, 20])];
        let rows = rows(&contenders, &samples, "peer");
        assert!(close(rows[0].ratio_of_medians.unwrap(), 0.5));
        assert!(close(rows[0].median_of_ratios.unwrap(), 0.5));
        assert!(close(rows[0].minimum, 2.0));
        let table = table(&rows, "peer");
        assert!(table.contains("| own | 5.00 | 25.00 | 2.00 | 0.50 | 0.50 | 3 |"), "{table}");
    }

    #[test]
    fn without_the_base_there_are_no_ratios() {
        let contenders = [Contender::new("own", &["true"], 1)];
        let samples = [vec![Some(Duration::from_millis(4)), None]];
        let rows = rows(&contenders, &samples, "peer");
        assert!(rows[0].ratio_of_medians.is_none());
        assert!(table(&rows, "peer").contains("| own | 4.00 | 4.00 | 4.00 | – | – | 1 |"));
    }
}
