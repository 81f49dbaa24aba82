//! From samples to rows of a table, with the goal of each.

use std::time::Duration;

use serde_json::{Value, json};

/// How long each contender took, each time.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) floor: Vec<Duration>,
    pub(crate) commit: Vec<Duration>,
    pub(crate) runtime: Vec<Duration>,
    pub(crate) service: Vec<Duration>,
    pub(crate) socket: Vec<Duration>,
    pub(crate) whole: Vec<Duration>,
    pub(crate) burst: Vec<Duration>,
}

impl Samples {
    /// The rows, each beside what it should come to.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let median = |samples: &[Duration]| at(&sorted(samples), 0.5);
        let floor = median(&self.floor);
        let durable = floor + 3.0 * median(&self.commit);
        let row = |name, samples, goal| Row::new(name, samples, floor, goal);
        vec![
            row("fork, exec and exit on the host", &self.floor, Goal::None),
            row("a commit of SQLite, FULL", &self.commit, Goal::None),
            row("exec in a live sandbox, runtime level", &self.runtime, Goal::Median(1.2 * floor)),
            row("durable, owned exec, in process", &self.service, Goal::Median(durable)),
            row("durable, owned exec, over the socket", &self.socket, Goal::Median(durable)),
            row("create, exec, result over the socket", &self.whole, Goal::Median(10.0)),
            row("the same, 100 clients at once", &self.burst, Goal::P99(250.0)),
        ]
    }
}

/// What a row should come to at most, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    None,
    Median(f64),
    P99(f64),
}

/// One contender's numbers, in milliseconds.
pub(crate) struct Row {
    name: &'static str,
    samples: usize,
    median: f64,
    p90: f64,
    p99: f64,
    minimum: f64,
    /// Of the medians, to the floor's.
    ratio: f64,
    goal: Goal,
}

impl Row {
    fn new(name: &'static str, samples: &[Duration], floor: f64, goal: Goal) -> Self {
        let sorted = sorted(samples);
        let median = at(&sorted, 0.5);
        Self {
            name,
            samples: samples.len(),
            median,
            p90: at(&sorted, 0.9),
            p99: at(&sorted, 0.99),
            minimum: at(&sorted, 0.0),
            ratio: median / floor,
            goal,
        }
    }

    /// The goal in words, and whether it is reached.
    fn judged(&self) -> String {
        let (what, found, goal) = match self.goal {
            Goal::None => return String::new(),
            Goal::Median(goal) => ("median", self.median, goal),
            Goal::P99(goal) => ("p99", self.p99, goal),
        };
        let word = if found <= goal { "reached" } else { "missed" };
        format!("{what} ≤ {goal:.2}: {word}")
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({
            "name": self.name,
            "samples": self.samples,
            "median": self.median,
            "p90": self.p90,
            "p99": self.p99,
            "minimum": self.minimum,
            "ratioOfMedians": self.ratio,
            "goal": self.judged(),
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
        "| what | median ms | p90 ms | p99 ms | min ms | × floor | runs | goal |".to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| {
        format!(
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {} |",
            row.name,
            row.median,
            row.p90,
            row.p99,
            row.minimum,
            row.ratio,
            row.samples,
            row.judged()
        )
    }));
    lines.join("\n")
}
