//! Compares the machines' output, one line for each promise, with the list of all promises: a
//! promise without a line is broken.

/// The checks of `tests/programs/guest`, by name.
const PROMISES: &[&str] = &[
    "out-of-memory-as-root",
    "out-of-memory-as-user",
    "out-of-memory-of-a-child",
    "files-in-memory-count",
    "enough-memory",
    "too-little-memory-to-start",
    "a-kill-is-told-apart",
    "processor-share-as-root",
    "processor-share-as-user",
    "process-count-as-root",
    "process-count-as-user",
    "a-time-out-ends-the-group",
    "outer-groups-are-hidden",
    "limits-are-seen",
    "held-out-of-memory",
    "held-limits-outlive-the-keeper",
    "held-processor-share",
    "held-limits-are-seen-as-root",
    "held-limits-are-seen-as-user",
    "held-limits-change-as-root",
    "held-limits-change-as-user",
    "held-limits-are-refused",
    "held-pause",
    "held-clocks-are-set",
    "held-owners-are-kept-in-a-copy",
    "unit-tests",
    "only-version-2",
    "doctor-as-root",
    "doctor-as-user-with-delegation",
    "doctor-as-user-without-delegation",
    "a-scope-with-others-in-it",
    "a-session-with-others-in-it",
    "only-some-controllers",
    "refused-under-systemd",
    "the-remedy-without-systemd",
    "alone-in-a-container",
    "the-remedy-in-a-container",
    "best-effort",
    "nothing-is-left",
    "reset-applies-are-whole-or-nothing",
    "reset-sandboxes-have-ended",
    "reset-operations-have-ended",
    "reset-snapshots-are-restored",
    "reset-stopped-sandboxes-start",
    "reset-bundles-are-applied",
    "reset-finished-steps-stay-finished",
    "reset-waiting-runs-go-on",
    "reset-leaves-nothing",
];

/// The start of the names of the promises of the machine that is reset.
const RESET: &str = "reset-";

/// What is wrong with the lines that each machine wrote; empty when each promise was kept.
pub(super) fn findings(lines: &[&str], with_reset: bool) -> Vec<String> {
    let promises = PROMISES.iter().copied().filter(|name| with_reset || !name.starts_with(RESET));
    compare(lines, &promises.collect::<Vec<_>>())
}

fn compare(lines: &[&str], promises: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut held = Vec::new();
    let mut failed = Vec::new();
    for line in
        lines.iter().flat_map(|said| said.lines()).map(str::trim).filter(|line| !line.is_empty())
    {
        let (verdict, rest) = line.split_once(' ').unwrap_or((line, ""));
        let name = rest.split(':').next().unwrap_or_default();
        match verdict {
            "PASS" => held.push(name),
            "FAIL" => {
                findings.push(rest.to_owned());
                failed.push(name);
            }
            "DONE" => {}
            _ => findings.push(format!("invalid verdict: {line}")),
        }
    }
    for name in promises {
        match held.iter().filter(|held| *held == name).count() {
            1 => {}
            0 if failed.contains(name) => {}
            0 => findings.push(format!("{name}: no verdict was printed")),
            times => findings.push(format!("{name}: was printed {times} times")),
        }
    }
    let unknown = held.iter().filter(|name| !promises.contains(name));
    findings.extend(unknown.map(|name| format!("{name}: is not on the list")));
    let is_done = |said: &&&str| said.lines().any(|line| line.trim() == "DONE");
    if lines.iter().filter(is_done).count() < lines.len() {
        findings.push("a machine ended before its checks did".to_owned());
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare_both(lines: &str) -> Vec<String> {
        compare(&[lines, "DONE"], &["a", "b"])
    }

    #[test]
    fn exactly_the_listed_promises_must_hold() {
        assert!(compare_both("PASS a: because: so\r\nPASS b: yes\r\n\r\nDONE\r\n").is_empty());
        assert_eq!(compare_both("PASS a: x\nFAIL b: why: so\nDONE\n"), ["b: why: so"]);
        assert_eq!(compare_both("PASS a: x\nDONE\n"), ["b: no verdict was printed"]);
        assert_eq!(compare_both("PASS a:\nPASS a:\nPASS b:\nDONE\n"), ["a: was printed 2 times"]);
        assert_eq!(compare_both("PASS a:\nPASS b:\nPASS c:\nDONE"), ["c: is not on the list"]);
        assert_eq!(compare_both("PASS a:\noops\nPASS b:\nDONE"), ["invalid verdict: oops"]);
        assert_eq!(compare_both("PASS a:\nPASS b:\n"), ["a machine ended before its checks did"]);
        assert_eq!(compare_both("").len(), 3);
    }
}
