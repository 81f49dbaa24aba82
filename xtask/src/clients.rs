//! `cargo xtask clients`: runs the tests of released clients, and writes which version of which client passes into the table of
//! `docs/clients/e2b.md`. `tidy` compares the versions of the table with the lock files.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::Context as _;
use serde_json::Value;

use crate::arguments::Suite;
use crate::programs;
use crate::suites::{nextest, require_nextest};
use crate::workspace::Workspace;

/// The page with the table, and what is around the rows.
pub(crate) const PAGE: &str = "docs/clients/e2b.md";
const BEGIN: &str = "<!-- versions: begin -->\n";
const END: &str = "<!-- versions: end -->";
const HEAD: &str = "| client | version | its test | |\n|---|---|---|---|\n";
/// The directory of the lock files.
const LOCKS: &str = "tests/packages";

/// A client: its name on the page, the lock file and the name of its package, the test that uses it, and a remark.
struct Client {
    shown: &'static str,
    lock: &'static str,
    package: &'static str,
    test: &'static str,
    remark: &'static str,
}

const fn client(
    shown: &'static str,
    (lock, package): (&'static str, &'static str),
    test: &'static str,
    remark: &'static str,
) -> Client {
    Client { shown, lock, package, test, remark }
}

const CLIENTS: [Client; 11] = [
    client(
        "`e2b` for Python",
        ("e2b.txt", "e2b"),
        "served::e2b::e2b_for_python",
        "before 2.7.0 it ignores `E2B_SANDBOX_URL`, and needs TLS and a domain of ports (`stockade serve --sandbox-domain`)",
    ),
    client("`e2b` for Python", ("e2b-old.txt", "e2b"), "served::e2b::an_older_e2b_for_python", ""),
    client(
        "`e2b` for JavaScript",
        ("package-lock.json", "e2b"),
        "served::e2b::e2b_for_javascript",
        "",
    ),
    client(
        "`e2b-code-interpreter` for Python",
        ("e2b.txt", "e2b-code-interpreter"),
        "served::e2b::e2b_code_interpreter_for_python",
        "before 2.10.3 as above",
    ),
    client(
        "`@e2b/code-interpreter`",
        ("package-lock.json", "@e2b/code-interpreter"),
        "served::e2b::e2b_code_interpreter_for_javascript",
        "before 2.7.0 as above",
    ),
    client(
        "[`langchain-e2b`](langchain.md)",
        ("langchain-e2b.txt", "langchain-e2b"),
        "served::e2b::langchain",
        "all 86 of LangChain's standard tests for sandboxes",
    ),
    client(
        "[OpenAI Agents SDK](openai-agents.md)",
        ("openai-agents.txt", "openai-agents"),
        "served::frameworks::openai_agents",
        "",
    ),
    client(
        "[smolagents](smolagents.md)",
        ("smolagents.txt", "smolagents"),
        "served::frameworks::smolagents",
        "",
    ),
    client(
        "[`inspect-sandboxes`](inspect.md)",
        ("inspect.txt", "inspect-sandboxes"),
        "served::frameworks::inspect",
        "39 of Inspect's 44 checks; the page names the others",
    ),
    client(
        "[Harbor](harbor.md)",
        ("harbor.txt", "harbor"),
        "served::frameworks::harbor",
        "a trial, with a prebuilt template",
    ),
    client(
        "[`@computesdk/e2b`](computesdk.md)",
        ("computesdk/package-lock.json", "@computesdk/e2b"),
        "served::frameworks::computesdk",
        "",
    ),
];

/// What a test says about a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passes,
    Fails,
    /// Its packages are not installed here.
    Untried,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Passes, Self::Fails, Self::Untried];

    const fn word(self) -> &'static str {
        match self {
            Self::Passes => "passes",
            Self::Fails => "fails",
            Self::Untried => "not tried",
        }
    }
}

/// Runs the tests and writes the table; true when none failed.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    require_nextest(workspace)?;
    programs::for_tests(workspace)?;
    let skipped = workspace.target_directory()?.join("skipped-clients.log");
    std::fs::write(&skipped, "")?;
    let filter: Vec<_> = CLIENTS.iter().map(|client| format!("test(={})", client.test)).collect();
    let mut tests = nextest(workspace, Suite::E2e)?;
    tests.args(["--ignore-default-filter", "--no-fail-fast", "--color=never", "--filterset"]);
    tests.arg(filter.join(" | ")).env("STOCKADE_SKIP_LOG", &skipped).stdout(Stdio::inherit());
    let ran = tests.stderr(Stdio::piped()).spawn()?.wait_with_output()?;
    let output = String::from_utf8_lossy(&ran.stderr);
    eprint!("{output}");
    let verdicts = verdicts(&output, &std::fs::read_to_string(&skipped)?);
    let path = workspace.root.join(PAGE);
    let page = std::fs::read_to_string(&path)?;
    let lock = |name: &str| {
        std::fs::read_to_string(workspace.root.join(LOCKS).join(name)).unwrap_or_default()
    };
    let rows = rows(&page, &verdicts, lock)?;
    std::fs::write(&path, with_rows(&page, &rows).context("the page has no table")?)?;
    println!("{}", rows.join("\n"));
    Ok(ran.status.success())
}

/// The verdict of each test, from the output of nextest and the log of skipped tests.
fn verdicts(output: &str, skipped: &str) -> BTreeMap<String, Verdict> {
    let lines = output.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let verdict = match words.next()? {
            "PASS" => Verdict::Passes,
            "FAIL" | "TIMEOUT" | "ABORT" | "SIGABRT" => Verdict::Fails,
            _ => return None,
        };
        Some((words.next_back()?.to_owned(), verdict))
    });
    let mut verdicts: BTreeMap<_, _> = lines.collect();
    for line in skipped.lines() {
        let name = line.strip_prefix("SKIPPED: ").and_then(|rest| rest.split_once(": "));
        if let Some((name, _)) = name {
            verdicts.insert(name.to_owned(), Verdict::Untried);
        }
    }
    verdicts
}

/// The rows of the table. A client that is not tried keeps the row of the same version.
fn rows(
    page: &str,
    verdicts: &BTreeMap<String, Verdict>,
    lock: impl Fn(&str) -> String,
) -> anyhow::Result<Vec<String>> {
    let former = former_rows(page);
    CLIENTS
        .iter()
        .map(|client| {
            let version = version(client, &lock(client.lock))?;
            let row = |verdict: Verdict| {
                let Client { shown, remark, .. } = client;
                format!("| {shown} | {version} | {} | {remark} |", verdict.word())
            };
            let verdict = verdicts.get(client.test).copied().unwrap_or(Verdict::Untried);
            let kept = Verdict::ALL.map(row).into_iter().find(|row| former.contains(&row.as_str()));
            Ok(kept.filter(|_| verdict == Verdict::Untried).unwrap_or_else(|| row(verdict)))
        })
        .collect()
}

/// What is wrong with the table of a page: each client has a row with the version of its lock file.
pub(crate) fn differences(page: &str, lock: impl Fn(&str) -> String) -> Vec<String> {
    let wanted = match rows(page, &BTreeMap::new(), lock) {
        Ok(wanted) => wanted,
        Err(error) => return vec![format!("{error:#}")],
    };
    let former = former_rows(page);
    let is_same = former.iter().copied().eq(wanted.iter().map(String::as_str));
    if is_same {
        return Vec::new();
    }
    let missing = wanted.iter().filter(|row| !former.contains(&row.as_str()));
    let mut found: Vec<_> = missing.map(|row| format!("the table lacks: {row}")).collect();
    found.push("the table of versions is out of date: cargo xtask clients".to_owned());
    found
}

/// The path of a lock file below the root.
pub(crate) fn lock_path(name: &str) -> String {
    format!("{LOCKS}/{name}")
}

fn former_rows(page: &str) -> Vec<&str> {
    let rows = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    rows.map(|(rows, _)| rows.lines().skip(2).collect()).unwrap_or_default()
}

fn with_rows(page: &str, rows: &[String]) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{HEAD}{}\n{END}{after}", rows.join("\n")))
}

/// The version of a client in its lock file: of PyPI, or of npm.
fn version(client: &Client, lock: &str) -> anyhow::Result<String> {
    let Client { lock: name, package, .. } = client;
    let found = if name.ends_with(".json") {
        let parsed: Value = serde_json::from_str(lock).with_context(|| format!("read {name}"))?;
        parsed["packages"][format!("node_modules/{package}")]["version"].as_str().map(str::to_owned)
    } else {
        let lines = lock.lines().filter_map(|line| line.split_whitespace().next());
        let pinned = lines.filter_map(|line| line.split_once("=="));
        let named = |name: &str| name.split('[').next() == Some(*package);
        pinned.filter(|(name, _)| named(name)).map(|(_, version)| version.to_owned()).next()
    };
    found.with_context(|| format!("{LOCKS}/{name} has no version of {package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str) -> String {
        let of_lock = CLIENTS.iter().filter(|client| client.lock == name);
        if name.ends_with(".json") {
            let packages: serde_json::Map<_, _> = of_lock
                .map(|client| {
                    let version = serde_json::json!({ "version": "1.0" });
                    (format!("node_modules/{}", client.package), version)
                })
                .collect();
            return serde_json::json!({ "packages": packages }).to_string();
        }
        of_lock.map(|client| format!("{}==1.0 \\\n    --hash=x\n", client.package)).collect()
    }

    fn page(rows: &[String]) -> String {
        with_rows(&format!("before\n{BEGIN}{END}\nafter\n"), rows).unwrap()
    }

    #[test]
    fn a_verdict_is_that_of_nextest() {
        let output = "
        PASS [   1.234s] (1/3) stockade-e2e::e2e served::e2b::langchain
        FAIL [   0.100s] (2/3) stockade-e2e::e2e served::frameworks::harbor
        PASS [   0.010s] (3/3) stockade-e2e::e2e served::frameworks::inspect
     Summary [   2.000s] 3 tests run: 2 passed, 1 failed";
        let skipped = "SKIPPED: served::frameworks::inspect: the client is not installed\n";
        let found = verdicts(output, skipped);
        let of = |name: &str| found.get(name).copied();
        assert_eq!(of("served::e2b::langchain"), Some(Verdict::Passes));
        assert_eq!(of("served::frameworks::harbor"), Some(Verdict::Fails));
        assert_eq!(of("served::frameworks::inspect"), Some(Verdict::Untried));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn what_is_not_tried_keeps_its_row_until_its_version_changes() {
        let tried =
            CLIENTS.iter().map(|client| (client.test.to_owned(), Verdict::Passes)).collect();
        let passed = rows(&page(&[]), &tried, lock).unwrap();
        assert!(passed.iter().all(|row| row.contains("| 1.0 | passes |")), "{passed:?}");
        let page = page(&passed);
        assert!(page.starts_with("before\n") && page.ends_with("\nafter\n"), "{page}");
        assert_eq!(rows(&page, &BTreeMap::new(), lock).unwrap(), passed);
        assert_eq!(differences(&page, lock), Vec::<String>::new());
        let later = |name: &str| lock(name).replace("1.0", "1.1");
        let untried = rows(&page, &BTreeMap::new(), later).unwrap();
        assert!(untried.iter().all(|row| row.contains("| 1.1 | not tried |")), "{untried:?}");
        assert_eq!(differences(&page, later).len(), CLIENTS.len() + 1);
        assert!(!differences(&page, |_| String::new()).is_empty());
    }
}
