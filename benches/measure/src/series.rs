//! What one contender gave, round by round.

use std::time::Duration;

/// The values of one contender. In a benchmark of turns, the values at one place of all series
/// are of the same round.
#[derive(Debug, Clone)]
pub struct Series {
    name: &'static str,
    values: Vec<Option<f64>>,
    goal: Option<Goal>,
}

/// What a contender should come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// Its median at most.
    MedianAtMost(f64),
    /// Its 99th percentile at most.
    P99AtMost(f64),
    /// Its median at least.
    MedianAtLeast(f64),
    /// At most so many times the median of the base.
    RatioAtMost(f64),
    /// At least so many times the median of the base.
    RatioAtLeast(f64),
}

impl Series {
    /// A contender that has not been measured yet.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, values: Vec::new(), goal: None }
    }

    /// The same with a goal.
    #[must_use]
    pub fn with_goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// Its name in the table.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) const fn goal(&self) -> Option<Goal> {
        self.goal
    }

    /// Adds the value of the next round.
    pub fn push(&mut self, value: f64) {
        self.values.push(Some(value));
    }

    /// Adds the time of the next round, in milliseconds.
    pub fn push_time(&mut self, time: Duration) {
        self.push(time.as_secs_f64() * 1e3);
    }

    /// Takes no part in the next round.
    pub fn pause(&mut self) {
        self.values.push(None);
    }

    /// Forgets all values: those of rounds that warm up.
    pub fn clear(&mut self) {
        self.values.clear();
    }

    /// In how many rounds it took part.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.iter().flatten().count()
    }

    /// The value below which that part of the values lies, between the two nearest ones in
    /// proportion; not a number when there are none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> f64 {
        quantile(self.values.iter().flatten().copied().collect(), part)
    }

    /// The value in the middle.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// This median to that of the base.
    #[must_use]
    pub fn ratio_of_medians(&self, base: &Self) -> f64 {
        self.median() / base.median()
    }

    /// The median of the ratios within each round in which both took part.
    #[must_use]
    pub fn median_of_ratios(&self, base: &Self) -> f64 {
        let rounds = self.values.iter().zip(&base.values);
        quantile(rounds.filter_map(|(own, base)| Some((*own)? / (*base)?)).collect(), 0.5)
    }
}

impl Goal {
    /// The goal in words, and whether the series reaches it.
    pub(crate) fn judge(self, series: &Series, base: Option<&Series>) -> String {
        let ratio = || base.map_or(f64::NAN, |base| series.ratio_of_medians(base));
        let (text, reached) = match self {
            Self::MedianAtMost(goal) => (format!("median ≤ {goal:.2}"), series.median() <= goal),
            Self::P99AtMost(goal) => (format!("p99 ≤ {goal:.2}"), series.quantile(0.99) <= goal),
            Self::MedianAtLeast(goal) => (format!("median ≥ {goal:.0}"), series.median() >= goal),
            Self::RatioAtMost(goal) => (format!("≤ {goal:.2} ×"), ratio() <= goal),
            Self::RatioAtLeast(goal) => (format!("≥ {goal:.2} ×"), ratio() >= goal),
        };
        format!("{text}: {}", if reached { "reached" } else { "missed" })
    }
}

fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    #[expect(clippy::cast_precision_loss, reason = "a few thousand values are exact")]
    let position = part * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between zero and the number of values"
    )]
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    values[below] + (values[above] - values[below]) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    fn series(values: &[f64]) -> Series {
        let mut series = Series::new("own");
        values.iter().for_each(|value| series.push(*value));
        series
    }

    #[test]
    fn quantiles_lie_between_their_neighbours() {
        let series = series(&[10.0, 1.0, 3.0, 2.0]);
        assert!(close(series.quantile(0.0), 1.0));
        assert!(close(series.median(), 2.5));
        assert!(close(series.quantile(0.9), 7.9));
        assert!(close(series.quantile(1.0), 10.0));
        assert!(Series::new("none").median().is_nan());
    }

    #[test]
    fn ratios_are_taken_within_rounds_in_which_both_took_part() {
        let base = series(&[10.0, 10.0, 20.0, 1.0]);
        let mut own = series(&[5.0, 30.0, 2.0]);
        own.pause();
        assert_eq!(own.count(), 3);
        assert!(close(own.ratio_of_medians(&base), 0.5));
        assert!(close(own.median_of_ratios(&base), 0.5));
    }

    #[test]
    fn goals_are_judged() {
        let base = series(&[10.0]);
        let own = series(&[5.0]);
        for (goal, text) in [
            (Goal::MedianAtMost(4.0), "median ≤ 4.00: missed"),
            (Goal::MedianAtLeast(5.0), "median ≥ 5: reached"),
            (Goal::P99AtMost(5.0), "p99 ≤ 5.00: reached"),
            (Goal::RatioAtMost(0.5), "≤ 0.50 ×: reached"),
            (Goal::RatioAtLeast(0.6), "≥ 0.60 ×: missed"),
        ] {
            assert_eq!(goal.judge(&own, Some(&base)), text);
        }
        assert_eq!(Goal::RatioAtMost(0.5).judge(&own, None), "≤ 0.50 ×: missed");
    }
}
