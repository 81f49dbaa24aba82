//! The table of attacks in SECURITY.md: each row names tests that exist, and each test of the
//! escape suite has a row.

use std::collections::BTreeSet;

use super::{Finding, Tree, tests_named};

const DOCUMENT: &str = "SECURITY.md";

/// The directory of the tests of the escape suite.
const SUITE: &str = "tests/e2e/escape/";

/// The directories of the other tests that a row may name: `file::name` below one of these, and the
/// cases of the suite of runtimes as `conformance::group::name`.
const OTHERS: [&str; 2] = ["tests/e2e/", "tests/"];
const CASES: (&str, &str) = ("conformance::", "crates/runtime/src/conformance/list.rs");

/// Checks the rows between the markers `attacks: begin` and `attacks: end`.
///
/// The last column of a row contains tests as `` `file::name` ``, where `file` has no `.rs`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let document = tree.file(DOCUMENT).map_or("", |file| &file.text);
    let mut findings = Vec::new();
    let mut named = BTreeSet::new();
    let lines = (1..).zip(document.lines());
    let rows = lines
        .skip_while(|(_, line)| !line.contains("<!-- attacks: begin -->"))
        .take_while(|(_, line)| !line.contains("<!-- attacks: end -->"))
        .filter(|(_, line)| line.starts_with('|'))
        .skip(2);
    let mut count = 0;
    for (number, row) in rows {
        count += 1;
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let tests: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            findings.push(format!("{DOCUMENT}:{number}: the row names no test"));
        }
        for test in tests {
            named.insert(test.to_owned());
            if !exists(tree, test) {
                findings.push(format!("{DOCUMENT}:{number}: there is no test `{test}`"));
            }
        }
    }
    if count == 0 {
        findings.push(format!("{DOCUMENT}: the table of attacks has no rows"));
    }
    for (path, test) in suite(tree) {
        if !named.contains(&test) {
            findings.push(format!("{path}: {DOCUMENT} has no row for `{test}`"));
        }
    }
    findings
}

/// Whether the test that a row names exists.
fn exists(tree: &Tree, test: &str) -> bool {
    let has = |path: &str, name| {
        tree.file(path).is_some_and(|source| tests_named::has_test(&source.text, name))
    };
    if let Some(case) = test.strip_prefix(CASES.0) {
        return has(CASES.1, case);
    }
    let (file, name) = test.rsplit_once("::").unwrap_or_default();
    let file = file.replace("::", "/");
    [SUITE].iter().chain(&OTHERS).any(|directory| has(&format!("{directory}{file}.rs"), name))
}

/// The tests of the suite, each with its file.
fn suite(tree: &Tree) -> Vec<(&str, String)> {
    let mut tests = Vec::new();
    for file in tree.rust().filter(|file| file.path.starts_with(SUITE)) {
        let module = file.path[SUITE.len()..].trim_end_matches(".rs").replace('/', "::");
        let names = tests_named::tests(&file.text).into_iter();
        tests.extend(names.map(|name| (file.path.as_str(), format!("{module}::{name}"))));
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: (&str, &str) =
        ("tests/e2e/escape/a.rs", "//! A.\nas_root_and_as_user!(x);\nfn x(w: &World) {}\n");

    const RUNTIME: (&str, &str) = ("tests/runtime/b.rs", "//! B.\nattacks! { y, z }\n");
    const LIST: (&str, &str) = (CASES.1, "$($then)+! { $context group { case []; } }");

    fn check_rows(rows: &str) -> Vec<Finding> {
        let document = format!(
            "<!-- attacks: begin -->\n| attack | test |\n|---|---|\n{rows}<!-- attacks: end -->\n"
        );
        check(&Tree::of(&[SOURCE, RUNTIME, LIST, (DOCUMENT, &document)]))
    }

    #[test]
    fn rows_and_tests_are_the_same_set() {
        let others = "| a | `a::x`, `runtime::b::y`, `conformance::group::case` |\n";
        assert_eq!(check_rows(others), Vec::<String>::new());
        assert_eq!(check_rows("| a | `a::x`, `conformance::group::other` |\n").len(), 1);
        assert_eq!(check_rows("| breaking out | `a::x` |\n"), Vec::<String>::new());
        assert_eq!(check_rows("").len(), 2, "no rows, and a test without one");
        assert_eq!(check_rows("| a | `a::x` |\n| b | later |\n").len(), 1, "no test in a row");
        assert_eq!(check_rows("| a | `a::x`, `a::y` |\n").len(), 1, "no such test");
        assert_eq!(check_rows("| a | `b::x` |\n").len(), 2, "no such file, and one without a row");
    }
}
