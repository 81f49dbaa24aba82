//! Every command in a document is covered by a test: `tests/documents/commands.txt` lists each
//! command with its test, and nothing else.

use std::collections::BTreeMap;

use super::tests_named::has_test;
use super::{Finding, Tree};

/// The list, one `COMMAND => FILE::TEST` per line; lines that start with `#` are comments.
const LIST: &str = "tests/documents/commands.txt";

/// Checks the documents against the list, and the list against the documents and the tests.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut shown = BTreeMap::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let (commands, unlabelled) = commands(&file.text);
        for line in unlabelled {
            findings.push(format!("{}:{line}: a code block without a language", file.path));
        }
        for (line, command) in commands {
            shown.entry(command).or_insert_with(|| format!("{}:{line}", file.path));
        }
    }

    let list = tree.file(LIST).map_or("", |file| &file.text);
    let mut listed = BTreeMap::new();
    for (number, line) in (1..).zip(list.lines()) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((command, test)) = line.rsplit_once(" => ") else {
            findings.push(format!("{LIST}:{number}: is not `COMMAND => FILE::TEST`"));
            continue;
        };
        if listed.insert(command.to_owned(), test).is_some() {
            findings.push(format!("{LIST}:{number}: lists `{command}` twice"));
        }
        if !shown.contains_key(command) {
            findings.push(format!("{LIST}:{number}: no document shows `{command}`"));
        }
        if !is_test(tree, test) {
            findings.push(format!("{LIST}:{number}: there is no test `{test}`"));
        }
    }
    for (command, place) in &shown {
        if !listed.contains_key(command) {
            findings.push(format!("{place}: {LIST} names no test for `{command}`"));
        }
    }
    findings
}

/// The commands in a document's `sh` and `console` blocks with their lines, and the lines of the
/// blocks without a language.
///
/// In a `console` block a command follows `$ ` and the rest is output. A line that ends with a
/// backslash continues on the next line.
fn commands(document: &str) -> (Vec<(usize, String)>, Vec<usize>) {
    let (mut commands, mut unlabelled) = (Vec::new(), Vec::new());
    let mut language = None;
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(document.lines()) {
        if let Some(label) = line.trim_start().strip_prefix("```") {
            language = match language {
                Some(_) => None,
                None => Some(label.trim()),
            };
            if language == Some("") {
                unlabelled.push(number);
            }
            continue;
        }
        let text = match (language, &open) {
            (Some("sh"), None) => Some(line.trim()).filter(|text| !text.starts_with('#')),
            (Some("console"), None) => line.trim().strip_prefix("$ "),
            (Some("sh" | "console"), Some(_)) => Some(line.trim()),
            _ => None,
        };
        let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
        let (start, mut command) = open.take().unwrap_or_else(|| (number, String::new()));
        let (part, continues) = match text.strip_suffix('\\') {
            Some(part) => (part.trim_end(), true),
            None => (text, false),
        };
        if !command.is_empty() {
            command.push(' ');
        }
        command.push_str(part);
        if continues {
            open = Some((start, command));
        } else {
            commands.push((start, command));
        }
    }
    (commands, unlabelled)
}

/// Whether `FILE::TEST` names a test in a source of the project.
fn is_test(tree: &Tree, test: &str) -> bool {
    let Some((path, name)) = test.split_once(".rs::") else { return false };
    tree.file(&format!("{path}.rs")).is_some_and(|file| has_test(&file.text, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: (&str, &str) = ("tests/a.rs", "//! A.\n#[test]\nfn walk() {}\nfn help() {}\n");

    fn check_with(document: &str, list: &str) -> Vec<Finding> {
        check(&Tree::of(&[TEST, ("README.md", document), (LIST, list)]))
    }

    #[test]
    fn commands_are_read_from_their_blocks() {
        let document = "`no`\n```sh\n# why\na b \\\n  c\n\nd\n```\n```console\n$ e\nout\n```\n\
                        ```text\nf\n```\n";
        let expected = [(4, "a b c"), (7, "d"), (10, "e")].map(|(n, c)| (n, c.to_owned()));
        assert_eq!(commands(document), (expected.to_vec(), vec![]));
        assert_eq!(commands("```\na\n```\n").1, [1]);
    }

    #[test]
    fn a_listed_command_with_its_test_passes() {
        let list = "# Why.\n\na b => tests/a.rs::walk\n";
        assert_eq!(check_with("```sh\na b\n```\n", list), Vec::<String>::new());
    }

    #[test]
    fn every_way_to_drift_is_found() {
        let document = "```sh\na\n```\n";
        let found = |list: &str| check_with(document, list).len();
        assert_eq!(found(""), 1, "not listed");
        assert_eq!(found("a => tests/a.rs::gone\n"), 1, "no such test");
        assert_eq!(found("a => tests/a.rs::help\n"), 1, "not a test");
        assert_eq!(found("a => tests/b.rs::walk\n"), 1, "no such file");
        assert_eq!(found("a => tests/a.rs::walk\nb => tests/a.rs::walk\n"), 1, "not shown");
        assert_eq!(found("a => tests/a.rs::walk\na => tests/a.rs::walk\n"), 1, "twice");
        assert_eq!(found("a => tests/a.rs::walk\nnonsense\n"), 1, "not a line of the list");
        assert_eq!(check_with("```\na\n```\n", "").len(), 1, "no language");
    }
}
