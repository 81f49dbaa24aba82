//! From the rates of rounds to rows of a table.

use serde_json::{Value, json};

/// One contender's rates, and the floor's that were measured beside them.
pub(crate) struct Row {
    name: &'static str,
    rates: Vec<f64>,
}

impl Row {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, rates: Vec::new() }
    }

    pub(crate) fn add(&mut self, rate: f64) {
        self.rates.push(rate);
    }

    /// The rate at a share of the rounds, the slowest first.
    fn at(&self, share: f64) -> f64 {
        at(self.rates.clone(), share)
    }

    /// The median of what each round was to the floor's rate in the same round.
    fn ratio(&self, floor: &Self) -> f64 {
        at(self.rates.iter().zip(&floor.rates).map(|(rate, floor)| rate / floor).collect(), 0.5)
    }

    pub(crate) fn as_json(&self, floor: &Self) -> Value {
        json!({
            "name": self.name,
            "rounds": self.rates.len(),
            "median": self.at(0.5),
            "p10": self.at(0.1),
            "maximum": self.at(1.0),
            "medianOfRatios": self.ratio(floor),
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "there are few rounds"
)]
fn at(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    values.get((last * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// The rows as a table for people; the first is the floor.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut lines = vec![
        "| what | median /s | p10 /s | max /s | × raw commits | rounds |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| {
        let (median, low, high) = (row.at(0.5), row.at(0.1), row.at(1.0));
        let (ratio, rounds) = (row.ratio(&rows[0]), row.rates.len());
        format!("| {} | {median:.0} | {low:.0} | {high:.0} | {ratio:.2} | {rounds} |", row.name)
    }));
    lines.join("\n")
}
