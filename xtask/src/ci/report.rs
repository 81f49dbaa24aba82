//! What each step of `ci` came to, and the table of them all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How many tests that could not run for one reason are named.
const NAMED: usize = 10;

/// What one step came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It ran and found nothing.
    Passed,
    /// It ran and found something, or could not run to its end: why.
    Failed(String),
    /// It cannot run here: why, and what would change that.
    Skipped(String),
}

impl Outcome {
    /// Passed when `good`, else failed for that reason.
    pub(super) fn of(good: bool, reason: &str) -> Self {
        if good { Self::Passed } else { Self::Failed(reason.to_owned()) }
    }
}

/// The steps that ran so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    steps: Vec<(String, Outcome, Duration)>,
}

impl Report {
    /// Runs a step and keeps what it came to; an error is a failure of that step alone.
    pub(super) fn step(&mut self, name: &str, run: impl FnOnce() -> anyhow::Result<Outcome>) {
        println!("\n=== {name}");
        let start = Instant::now();
        let outcome = run().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        self.steps.push((name.to_owned(), outcome, start.elapsed()));
    }

    /// Whether no step failed.
    pub(super) fn is_good(&self) -> bool {
        !self.steps.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)))
    }

    /// The table of all steps, then the tests that said they could not run.
    pub(super) fn table(&self, skipped_tests: &[String]) -> String {
        let mut table = String::from("step      outcome  seconds  reason\n");
        let mut counts = [0; 3];
        for (name, outcome, time) in &self.steps {
            let (kind, word, reason) = match outcome {
                Outcome::Passed => (0, "passed", ""),
                Outcome::Failed(reason) => (1, "FAILED", reason.as_str()),
                Outcome::Skipped(reason) => (2, "skipped", reason.as_str()),
            };
            counts[kind] += 1;
            let line = format!("{name:<9} {word:<7} {:>8.1}  {reason}", time.as_secs_f64());
            let _ = writeln!(table, "{}", line.trim_end());
        }
        let [passed, failed, skipped] = counts;
        let _ = write!(table, "{passed} passed, {failed} failed, {skipped} skipped; ");
        let _ = writeln!(table, "{} tests skipped", skipped_tests.len());
        for line in by_reason(skipped_tests) {
            let _ = writeln!(table, "  {line}");
        }
        table
    }
}

/// The lines `TEST: REASON`, with many that share a reason as one.
fn by_reason(skipped_tests: &[String]) -> Vec<String> {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in skipped_tests {
        let (name, reason) = line.split_once(": ").unwrap_or((line, "no reason was given"));
        names.entry(reason).or_default().push(name);
    }
    let lines = names.into_iter().flat_map(|(reason, names)| {
        if names.len() > NAMED {
            return vec![format!("{} tests: {reason}", names.len())];
        }
        names.iter().map(|name| format!("{name}: {reason}")).collect()
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: &[Outcome]) -> Report {
        let mut report = Report::default();
        for outcome in outcomes {
            report.step("step", || Ok(outcome.clone()));
        }
        report
    }

    #[test]
    fn only_a_failure_is_bad_and_a_skip_is_no_pass() {
        let skipped = Outcome::Skipped("not here".to_owned());
        let failed = Outcome::Failed("broken".to_owned());
        assert!(report(&[Outcome::Passed, skipped.clone()]).is_good());
        assert!(!report(&[Outcome::Passed, failed.clone(), skipped.clone()]).is_good());

        let table = report(&[Outcome::Passed, failed, skipped]).table(&["a: why".to_owned()]);
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[2].contains("FAILED") && lines[2].ends_with("broken"), "{table}");
        assert!(lines[3].contains("skipped") && lines[3].ends_with("not here"), "{table}");
        assert_eq!(lines[4], "1 passed, 1 failed, 1 skipped; 1 tests skipped");
        assert_eq!(lines[5], "  a: why");
    }

    #[test]
    fn tests_that_share_a_reason_are_counted() {
        let mut lines = vec!["e2e::a: no git".to_owned()];
        lines.extend((0..=NAMED).map(|number| format!("e2e::t{number}: not as root: never")));
        assert_eq!(by_reason(&lines), ["e2e::a: no git", "11 tests: not as root: never"]);
    }

    #[test]
    fn an_error_fails_its_step() {
        let mut report = Report::default();
        report.step("step", || anyhow::bail!("no cargo"));
        assert!(!report.is_good());
    }
}
