//! From samples to rows of a table.

use std::time::Duration;

use serde_json::{Value, json};

/// One contender's numbers, in milliseconds.
pub(crate) struct Row {
    name: &'static str,
    samples: usize,
    median: f64,
    p90: f64,
    minimum: f64,
    /// Of the medians, to the floor's.
    ratio: f64,
}

impl Row {
    /// The numbers of samples, of which there is one at least.
    pub(crate) fn new(name: &'static str, samples: &[Duration], floor: &[Duration]) -> Self {
        let sorted = sorted(samples);
        let median = at(&sorted, 0.5);
        Self {
            name,
            samples: samples.len(),
            median,
            p90: at(&sorted, 0.9),
            minimum: at(&sorted, 0.0),
            ratio: median / at(&self::sorted(floor), 0.5),
        }
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({
            "name": self.name,
            "samples": self.samples,
            "median": self.median,
            "p90": self.p90,
            "minimum": self.minimum,
            "ratioOfMedians": self.ratio,
        })
    }
}

fn sorted(samples: &[Duration]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().map(|time| time.as_secs_f64() * 1000.0).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "there are few samples"
)]
fn at(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    sorted.get((last * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// The rows as a table for people.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut lines = vec![
        "| what | median ms | p90 ms | min ms | × floor | runs |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| {
        format!(
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
            row.name, row.median, row.p90, row.minimum, row.ratio, row.samples
        )
    }));
    lines.join("\n")
}
