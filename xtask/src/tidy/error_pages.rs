//! Each error code has a page under `docs/errors/` and a snapshot of an error, and each page has a code.

use std::collections::BTreeSet;

use super::{Finding, Tree};

/// The file that defines the codes.
const CATALOGUE: &str = "crates/core/src/error.rs";

/// The page that lists the others.
const INDEX: &str = "docs/errors/README.md";

/// Where tests compare the texts of errors.
const SNAPSHOTS: &str = "tests/snapshots/";

/// Checks the pages and the snapshots against the catalogue.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let catalogue = tree.file(CATALOGUE).map_or("", |file| &file.text);
    let codes: BTreeSet<&str> = codes(catalogue).collect();
    let pages: BTreeSet<&str> = tree
        .files
        .iter()
        .filter_map(|file| file.path.strip_prefix("docs/errors/")?.strip_suffix(".md"))
        .filter(|name| *name != "README")
        .collect();
    let mut findings = Vec::new();
    if codes.is_empty() {
        findings.push(format!("{CATALOGUE}: holds no error codes"));
    }
    for code in codes.difference(&pages) {
        findings.push(format!("docs/errors/{code}.md: missing, the catalogue has the code"));
    }
    for page in pages.difference(&codes) {
        findings.push(format!("docs/errors/{page}.md: the catalogue has no such code"));
    }
    for code in &codes {
        // As text, or as JSON.
        let forms = [format!("[{code}]"), format!("\"{code}\"")];
        let mut snapshots = tree.files.iter().filter(|file| file.path.starts_with(SNAPSHOTS));
        if !snapshots.any(|file| forms.iter().any(|form| file.text.contains(form))) {
            findings.push(format!("{SNAPSHOTS}: no snapshot has an error with the code {code}"));
        }
    }
    let index = tree.file(INDEX).map_or("", |file| &file.text);
    for code in codes.intersection(&pages) {
        let page = tree.file(&format!("docs/errors/{code}.md")).map_or("", |file| &file.text);
        if !page.starts_with(&format!("# {code}\n")) {
            findings.push(format!("docs/errors/{code}.md:1: is not headed `# {code}`"));
        }
        if !index.contains(&format!("({code}.md)")) {
            findings.push(format!("{INDEX}: does not link to {code}.md"));
        }
    }
    findings
}

/// The texts of `Name = "NAME",`.
fn codes(catalogue: &str) -> impl Iterator<Item = &str> {
    catalogue.lines().filter_map(|line| {
        let (_, text) = line.trim().split_once(" = ")?;
        text.strip_prefix('"')?.strip_suffix("\",")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_CODE: (&str, &str) = (CATALOGUE, "        Io = \"IO\",\n");

    #[test]
    fn codes_and_pages_are_the_same_set() {
        let page = ("docs/errors/IO.md", "# IO\n");
        let index = (INDEX, "[IO](IO.md)\n");
        let text = ("tests/snapshots/a.snap", "it failed [IO]\n");
        let json = ("tests/snapshots/a.snap", "{\"code\": \"IO\"}\n");
        for snapshot in [text, json] {
            assert_eq!(check(&Tree::of(&[ONE_CODE, page, index, snapshot])), Vec::<String>::new());
        }
        assert_eq!(check(&Tree::of(&[ONE_CODE, page, index])).len(), 1);
        assert_eq!(check(&Tree::of(&[ONE_CODE, index, text])).len(), 1);
        assert_eq!(check(&Tree::of(&[ONE_CODE, page, text])).len(), 1);
        let wrong = ("docs/errors/IO.md", "# Io\n");
        assert_eq!(check(&Tree::of(&[ONE_CODE, wrong, index, text])).len(), 1);
        let other = ("docs/errors/OTHER.md", "# OTHER\n");
        assert_eq!(
            check(&Tree::of(&[ONE_CODE, page, index, text, other])),
            ["docs/errors/OTHER.md: the catalogue has no such code"]
        );
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
