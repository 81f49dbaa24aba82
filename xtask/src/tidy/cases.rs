//! The cases in `tests/cases`: each is assigned to one test that exists and runs it, or has a
//! reason why it has no test yet.

use std::collections::{BTreeMap, BTreeSet};

use super::tests_named::has_test;
use super::{Finding, Tree};

/// The directory of the cases.
const FOLDER: &str = "tests/cases/";

/// The list: for each file the names of its cases, with `FILE::TEST` or `later: REASON`.
const LIST: &str = "tests/cases/drivers.json";

/// Checks the list against the files of cases and the tests.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let list = tree.file(LIST).map_or("{}", |file| &file.text);
    let list: BTreeMap<String, BTreeMap<String, String>> = match serde_json::from_str(list) {
        Ok(list) => list,
        Err(error) => return vec![format!("{LIST}: cannot be read: {error}")],
    };
    let mut findings = Vec::new();
    let mut files = BTreeSet::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".json")) {
        let Some(name) = file.path.strip_prefix(FOLDER) else { continue };
        let Some(cases) = cases(&file.text) else { continue };
        files.insert(name);
        let empty = BTreeMap::new();
        let listed = list.get(name).unwrap_or(&empty);
        for case in &cases {
            if !listed.contains_key(case) {
                findings.push(format!("{LIST}: has no driver for `{case}` of {name}"));
            }
        }
        for case in listed.keys().filter(|case| !cases.contains(*case)) {
            findings.push(format!("{LIST}: {name} has no case `{case}`"));
        }
    }
    for (file, listed) in &list {
        if !files.contains(file.as_str()) {
            findings.push(format!("{LIST}: there are no cases in {file}"));
        }
        let drivers: BTreeSet<&String> = listed.values().collect();
        for driver in drivers {
            findings.extend(driver_problem(tree, file, driver));
        }
    }
    findings
}

/// The names of the cases in a file; `None` for a file that is not a list of cases.
fn cases(text: &str) -> Option<BTreeSet<String>> {
    let list: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    list.iter().map(|case| Some(case.get("name")?.as_str()?.to_owned())).collect()
}

fn driver_problem(tree: &Tree, file: &str, driver: &str) -> Option<Finding> {
    if let Some(reason) = driver.strip_prefix("later: ") {
        return reason.is_empty().then(|| format!("{LIST}: cases of {file} wait without a reason"));
    }
    let source = driver
        .rsplit_once("::")
        .and_then(|(path, name)| tree.file(path).filter(|source| has_test(&source.text, name)));
    let Some(source) = source else { return Some(format!("{LIST}: there is no test `{driver}`")) };
    // A test that runs cases contains its own name and that of the file.
    let asks = source.text.contains(&format!("\"{driver}\""))
        && source.text.contains(&format!("\"{file}\""));
    (!asks).then(|| format!("{LIST}: `{driver}` does not run cases of {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: (&str, &str) = ("tests/cases/a.json", r#"[{"name": "x"}, {"name": "y"}]"#);
    const TEST: (&str, &str) = (
        "tests/cases/a.rs",
        "//! A.\n#[test]\nfn a() { drive(\"tests/cases/a.rs::a\", \"a.json\") }\n#[test]\nfn b() {}\n",
    );

    fn check_list(list: &str) -> Vec<Finding> {
        check(&Tree::of(&[CASES, TEST, (LIST, list)]))
    }

    #[test]
    fn every_case_is_given_to_a_test_or_waits() {
        let list = r#"{"a.json": {"x": "tests/cases/a.rs::a", "y": "later: files"}}"#;
        assert_eq!(check_list(list), Vec::<String>::new());
    }

    #[test]
    fn every_way_to_lose_a_case_is_found() {
        for (list, found) in [
            ("{", 1),
            ("{}", 2),
            (r#"{"a.json": {"x": "later: files"}}"#, 1),
            (r#"{"a.json": {"x": "later: ", "y": "later: files"}}"#, 1),
            (r#"{"a.json": {"x": "later: f", "y": "later: f", "z": "later: f"}}"#, 1),
            (r#"{"a.json": {"x": "tests/cases/a.rs::c", "y": "later: f"}}"#, 1),
            (r#"{"a.json": {"x": "tests/cases/a.rs::b", "y": "later: f"}}"#, 1),
            (r#"{"a.json": {"x": "tests/cases/b.rs::a", "y": "later: f"}}"#, 1),
            (r#"{"a.json": {"x": "later: f", "y": "later: f"}, "b.json": {}}"#, 1),
        ] {
            assert_eq!(check_list(list).len(), found, "{list}");
        }
        let other = ("tests/cases/tree.json", r#"{"files": {}}"#);
        assert!(check(&Tree::of(&[other])).is_empty(), "not a list of cases");
    }
}
