//! The results of the steps, and the table of all of them. Steps may run concurrently: the output
//! of each is printed as a whole when it has ended.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::steps::{Outcome, Step};

/// How many tests that could not run for the same reason are listed.
const MAX_LISTED: usize = 10;

/// How many of the last lines of a failed step are repeated at the end.
const LAST_LINES: usize = 80;

/// How many lines of a panic are among them.
const LINES_OF_PANIC: usize = 4;

/// The steps that have ended so far.
#[derive(Debug)]
pub(crate) struct Report {
    start: Instant,
    steps: Mutex<Vec<StepResult>>,
}

/// A step that has ended.
#[derive(Debug)]
struct StepResult {
    name: &'static str,
    outcome: Outcome,
    time: Duration,
    /// The output of a program, if it was not printed at once.
    written: String,
}

impl Report {
    /// A report without steps; its total time starts now.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), steps: Mutex::default() }
    }

    /// Runs a step with the output of this process; an error fails only that step.
    pub(crate) fn run(&self, step: Step) {
        let (name, start) = (step.name, Instant::now());
        println!("\n=== {name}");
        let outcome = step.run_visibly().unwrap_or_else(failed);
        self.steps().push(StepResult {
            name,
            outcome,
            time: start.elapsed(),
            written: String::new(),
        });
    }

    /// Runs lanes of steps concurrently, and the steps of a lane one after another. Their output is
    /// also stored in files of `directory`.
    pub(crate) fn run_side_by_side(&self, directory: &Path, lanes: Vec<Vec<Step>>) {
        std::thread::scope(|scope| {
            for lane in lanes {
                scope.spawn(move || {
                    for step in lane {
                        self.run_quietly(directory, step);
                    }
                });
            }
        });
    }

    fn run_quietly(&self, directory: &Path, step: Step) {
        let (name, start) = (step.name, Instant::now());
        println!("--- {name} starts");
        let ended = step.run_into(directory);
        let time = start.elapsed();
        let (outcome, written) = ended.unwrap_or_else(|error| (failed(error), String::new()));
        // Printed under the lock, so that steps that end at the same time do not mix their lines.
        let mut steps = self.steps();
        println!(
            "\n=== {name}: {} after {:.1} s\n{}",
            outcome.word(),
            time.as_secs_f64(),
            written.trim_end()
        );
        steps.push(StepResult { name, outcome, time, written });
    }

    fn steps(&self) -> MutexGuard<'_, Vec<StepResult>> {
        // The list is consistent even if a thread panicked while it was locked.
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no step failed.
    pub(crate) fn is_good(&self) -> bool {
        !self.steps().iter().any(|step| matches!(step.outcome, Outcome::Failed(_)))
    }

    /// For each failed step, the lines of its output that help to find out why. They are printed last,
    /// where they are seen even if only the end of the output is kept.
    pub(crate) fn failures(&self) -> String {
        let mut text = String::new();
        for StepResult { name, outcome, written, .. } in self.steps().iter() {
            if let Outcome::Failed(reason) = outcome {
                let _ = writeln!(text, "\nFAILED: {name}: {reason}");
                for line in last_lines(written) {
                    let _ = writeln!(text, "  {line}");
                }
            }
        }
        text
    }

    /// The table of all steps in the order in which they ended, then the tests that reported that
    /// they could not run.
    pub(crate) fn table(&self, skipped_tests: &[String]) -> String {
        let mut table = String::from("step            outcome  seconds  reason\n");
        let mut counts = [0; 3];
        for StepResult { name, outcome, time, .. } in self.steps().iter() {
            let (kind, reason) = match outcome {
                Outcome::Passed => (0, ""),
                Outcome::Failed(reason) => (1, reason.as_str()),
                Outcome::Skipped(reason) => (2, reason.as_str()),
            };
            counts[kind] += 1;
            let (word, seconds) = (outcome.word(), time.as_secs_f64());
            let line = format!("{name:<15} {word:<7} {seconds:>8.1}  {reason}");
            let _ = writeln!(table, "{}", line.trim_end());
        }
        let [passed, failed, skipped] = counts;
        let _ = write!(table, "{passed} passed, {failed} failed, {skipped} skipped");
        let _ = write!(table, " in {:.1} s; ", self.start.elapsed().as_secs_f64());
        let _ = writeln!(table, "{} tests skipped", skipped_tests.len());
        for line in by_reason(skipped_tests) {
            let _ = writeln!(table, "  {line}");
        }
        for step in self.steps().iter() {
            for line in flaky(&step.written) {
                let _ = writeln!(table, "passed when it was repeated: {line}");
            }
        }
        table
    }
}

/// The tests that passed only when they were repeated, as the tests' runner lists them.
fn flaky(written: &str) -> Vec<&str> {
    let mut found: Vec<&str> = written
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("FLAKY "))
        .filter_map(|line| line.rsplit(") ").next())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The lines of a failed step's output that help to find out why: of the tests' runner those with a
/// verdict or a panic, otherwise the last ones.
fn last_lines(written: &str) -> Vec<&str> {
    let verdicts = ["FAIL ", "TIMEOUT ", "SIGABRT ", "SIGSEGV ", "Summary "];
    let mut found: Vec<&str> = Vec::new();
    let mut after_panic = 0;
    for line in written.lines() {
        let is_panic = line.contains("panicked at ");
        after_panic = if is_panic { LINES_OF_PANIC } else { after_panic.saturating_sub(1) };
        let is_verdict = verdicts.iter().any(|word| line.trim_start().starts_with(word));
        if is_verdict || after_panic > 0 {
            found.push(line);
        }
    }
    let lines = if found.is_empty() { written.lines().collect() } else { found };
    lines[lines.len().saturating_sub(LAST_LINES)..].to_vec()
}

fn failed(error: anyhow::Error) -> Outcome {
    Outcome::Failed(format!("{error:#}"))
}

/// The lines `TEST: REASON`; many with the same reason become one line.
fn by_reason(skipped_tests: &[String]) -> Vec<String> {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in skipped_tests {
        let (name, reason) = line.split_once(": ").unwrap_or((line, "no reason was given"));
        names.entry(reason).or_default().push(name);
    }
    let lines = names.into_iter().flat_map(|(reason, names)| {
        if names.len() > MAX_LISTED {
            return vec![format!("{} tests: {reason}", names.len())];
        }
        names.iter().map(|name| format!("{name}: {reason}")).collect()
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc::channel;

    use super::*;

    fn report(outcomes: &[Outcome]) -> Report {
        let report = Report::new();
        for outcome in outcomes.iter().cloned() {
            report.run(Step::function("step", || Ok(outcome)));
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
        assert!(lines[4].starts_with("1 passed, 1 failed, 1 skipped in "), "{table}");
        assert!(lines[4].ends_with(" s; 1 tests skipped"), "{table}");
        assert_eq!(lines[5], "  a: why");
    }

    #[test]
    fn lanes_run_side_by_side_and_their_steps_one_after_the_other() {
        let (report, (first, second)) = (Report::new(), (channel(), channel()));
        let ((to_first, from_second), (to_second, from_first)) = (first, second);
        let meet = Step::function("meets", move || {
            to_second.send(())?;
            from_second.recv()?;
            Ok(Outcome::Passed)
        });
        let other = Step::function("other", move || {
            from_first.recv()?;
            to_first.send(())?;
            Ok(Outcome::Passed)
        });
        // Nothing is written there, because the program does not start.
        let dir = std::env::temp_dir().join("no-such-directory");
        let last = Step::program("last", Command::new("no-such-program"));
        report.run_side_by_side(&dir, vec![vec![meet, last], vec![other]]);
        assert!(!report.is_good());
        let table = report.table(&[]);
        assert!(table.find("meets") < table.find("last"), "{table}");
        assert!(table.contains("2 passed, 1 failed, 0 skipped"), "{table}");
    }

    #[test]
    fn tests_that_share_a_reason_are_counted() {
        let mut lines = vec!["e2e::a: no git".to_owned()];
        lines.extend((0..=MAX_LISTED).map(|number| format!("e2e::t{number}: not as root: never")));
        assert_eq!(by_reason(&lines), ["e2e::a: no git", "11 tests: not as root: never"]);
    }

    #[test]
    fn the_end_says_what_failed() {
        let report = Report::new();
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo PASS a; echo ' FAIL [1s] b'; echo more; exit 1"]);
        let dir = std::env::temp_dir().join(format!("stockade-report-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        report.run_side_by_side(&dir, vec![vec![Step::program("tests", shell)]]);
        std::fs::remove_dir_all(dir).unwrap();
        let text = report.failures();
        assert!(text.starts_with("\nFAILED: tests: exit status: 1"), "{text}");
        assert!(text.ends_with("\n   FAIL [1s] b\n"), "{text}");
        assert_eq!(last_lines("one\ntwo"), ["one", "two"]);
        let summary = "  FLAKY 2/2 [   0.007s] (1/5) a::b c::d\n  FLAKY 2/2 [   0.007s] (1/5) a::b c::d\n PASS";
        assert_eq!(flaky(summary), ["a::b c::d"]);
    }

    #[test]
    fn an_error_fails_its_step() {
        let report = Report::new();
        report.run(Step::function("step", || anyhow::bail!("no cargo")));
        assert!(!report.is_good());
    }
}
