//! Rust sources: each starts with a description of what belongs there, none is too long, `unsafe`
//! is only in its directories, no test is disabled silently, and every crate uses the workspace's
//! lints.

use super::rust_text::code_only;
use super::{File, Finding, Tree};

/// The maximum length of a file, in lines.
const MAX_LINES: usize = 700;

/// The maximum length of the median file, in lines.
const MAX_MEDIAN_LINES: usize = 200;

/// The directories of sources. A source outside of them belongs to no package, so it is never
/// compiled.
const SOURCE_DIRECTORIES: &[&str] =
    &["benches/", "crates/", "examples/", "fuzz/", "tests/", "xtask/"];

/// The directories in which `unsafe` is allowed: the jail, and programs that attack it from inside.
const UNSAFE_DIRECTORIES: &[&str] = &["crates/jail/", "tests/programs/probe/"];

/// Checks all sources and manifests.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = tree.rust().flat_map(source).collect();
    let median = median_lines(tree);
    if median > MAX_MEDIAN_LINES {
        findings.push(format!("the median source has {median} lines, over {MAX_MEDIAN_LINES}"));
    }
    let manifests = tree.files.iter().filter(|file| file.path.ends_with("Cargo.toml"));
    findings.extend(manifests.flat_map(manifest));
    findings
}

/// The number of sources and their lengths.
pub(super) fn summary(tree: &Tree) -> String {
    let longest = tree.rust().max_by_key(|file| file.text.lines().count());
    let longest = longest.map_or_else(String::new, |file| {
        format!(", the longest {} ({})", file.text.lines().count(), file.path)
    });
    let count = tree.rust().count();
    format!("{count} sources, the median has {} lines{longest}", median_lines(tree))
}

fn median_lines(tree: &Tree) -> usize {
    let mut lines: Vec<usize> = tree.rust().map(|file| file.text.lines().count()).collect();
    lines.sort_unstable();
    lines.get(lines.len() / 2).copied().unwrap_or_default()
}

fn source(file: &File) -> Vec<Finding> {
    let File { path, text } = file;
    let mut findings = Vec::new();
    if !SOURCE_DIRECTORIES.iter().any(|place| path.starts_with(place)) {
        findings.push(format!("{path}: no place of sources: {}", SOURCE_DIRECTORIES.join(", ")));
    }
    if !text.starts_with("//!") {
        findings.push(format!("{path}:1: does not start with a `//!` line"));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        findings.push(format!("{path}: {lines} lines, over {MAX_LINES}"));
    }
    let may_be_unsafe = UNSAFE_DIRECTORIES.iter().any(|room| path.starts_with(room));
    for (number, line) in (1..).zip(code_only(text).lines()) {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if !may_be_unsafe && words.any(|word| matches!(word, "unsafe" | "unsafe_code")) {
            findings.push(format!("{path}:{number}: `unsafe` outside its room"));
        }
        if line.contains("#[ignore]") {
            findings.push(format!("{path}:{number}: an ignored test without a reason"));
        }
    }
    findings
}

fn manifest(file: &File) -> Vec<Finding> {
    let File { path, text } = file;
    let mut findings = Vec::new();
    if text.contains("[package]") && !text.contains("[lints]\nworkspace = true\n") {
        findings.push(format!("{path}: does not take the lints of the workspace"));
    }
    if path == "Cargo.toml" && !text.contains("\nunsafe_code = \"deny\"\n") {
        findings.push(format!("{path}: does not deny `unsafe_code`"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(path: &str, text: &str) -> Vec<Finding> {
        check(&Tree::of(&[(path, text)]))
    }

    #[test]
    fn a_source_starts_with_its_purpose() {
        assert_eq!(check_one("xtask/a.rs", "//! Why.\nfn a() {}\n"), Vec::<String>::new());
        assert_eq!(check_one("xtask/a.rs", "fn a() {}\n").len(), 1);
    }

    #[test]
    fn a_source_is_where_sources_are() {
        let found = check_one("server/src/a.rs", "//! Why.\n");
        assert!(matches!(found.as_slice(), [only] if only.contains("no place of sources")));
    }

    #[test]
    fn sources_stay_short() {
        let lines = |count: usize| format!("//! Why.\n{}", "\n".repeat(count - 1));
        assert!(check_one("xtask/a.rs", &lines(200)).is_empty());
        assert_eq!(
            check_one("xtask/a.rs", &lines(201)),
            ["the median source has 201 lines, over 200"]
        );
        let found = check_one("xtask/a.rs", &lines(701));
        assert!(found[0].contains("701 lines, over 700"), "{found:?}");
    }

    #[test]
    fn unsafe_stays_in_its_room() {
        let text = "//! Why.\nfn a() { unsafe { b() } }\n";
        assert!(check_one("crates/jail/src/a.rs", text).is_empty());
        assert_eq!(
            check_one("crates/core/src/a.rs", text),
            ["crates/core/src/a.rs:2: `unsafe` outside its room"]
        );
        assert_eq!(check_one("xtask/a.rs", "//! Why.\n#![expect(unsafe_code)]\n").len(), 1);
        assert!(
            check_one("xtask/a.rs", "//! Not unsafe.\nconst A: &str = \"unsafe\";\n").is_empty()
        );
    }

    #[test]
    fn an_ignored_test_says_why() {
        assert_eq!(check_one("xtask/a.rs", "//! Why.\n#[test]\n#[ignore]\nfn a() {}\n").len(), 1);
        assert!(check_one("xtask/a.rs", "//! Why.\n#[ignore = \"slow\"]\nfn a() {}\n").is_empty());
    }

    #[test]
    fn crates_take_the_lints_of_the_workspace() {
        let right = "[package]\nname = \"a\"\n[lints]\nworkspace = true\n";
        assert!(check_one("crates/a/Cargo.toml", right).is_empty());
        assert_eq!(check_one("crates/a/Cargo.toml", "[package]\nname = \"a\"\n").len(), 1);
        assert_eq!(check_one("Cargo.toml", "[workspace]\n").len(), 1);
    }

    #[test]
    fn the_summary_names_the_longest() {
        let tree = Tree::of(&[("a.rs", "//! A.\n"), ("b.rs", "//! B.\n\n\n"), ("c.txt", "\n")]);
        assert_eq!(summary(&tree), "2 sources, the median has 3 lines, the longest 3 (b.rs)");
    }
}
