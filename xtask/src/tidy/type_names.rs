//! The names of types that `docs/glossary.md` lists as banned: no crate defines such a type.

use super::phrases::first_column;
use super::rust_text::code_only;
use super::{File, Finding, Tree};

/// What surrounds the table of names, one name in the first column of each row.
const MARKERS: (&str, &str) =
    ("<!-- banned type names: begin -->", "<!-- banned type names: end -->");

/// Checks the sources of all crates.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let names = first_column(tree, MARKERS);
    if names.is_empty() {
        return vec!["docs/glossary.md: the table of banned type names has no rows".to_owned()];
    }
    let is_source = |file: &&File| file.path.starts_with("crates/") && file.path.contains("/src/");
    let mut findings = Vec::new();
    for file in tree.rust().filter(is_source) {
        for (number, line) in (1..).zip(code_only(&file.text).lines()) {
            for name in defined(line).filter(|name| names.iter().any(|banned| banned == name)) {
                findings.push(format!(
                    "{}:{number}: the type name `{name}`; docs/glossary.md has other words",
                    file.path
                ));
            }
        }
    }
    findings
}

/// The types that a line of code defines.
fn defined(line: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let words = line.split(move |c: char| !is_name(c)).filter(|word| !word.is_empty());
    let keywords = words.clone();
    keywords.zip(words.skip(1)).filter_map(|(keyword, name)| {
        matches!(keyword, "struct" | "enum" | "trait" | "type" | "union").then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "<!-- banned type names: begin -->\n| name | write instead |\n|---|---|\n\
                         | Told | a noun |\n<!-- banned type names: end -->\n";

    fn check_one(path: &str, text: &str) -> usize {
        check(&Tree::of(&[("docs/glossary.md", TABLE), (path, text)])).len()
    }

    #[test]
    fn a_banned_type_is_found_where_it_is_defined() {
        for text in ["pub struct Told;", "enum Told<A> {}", "trait Told {}", "type Told = u8;"] {
            assert_eq!(check_one("crates/a/src/b.rs", text), 1, "{text}");
        }
        assert_eq!(check_one("crates/a/tests/b.rs", "struct Told;"), 0);
    }

    #[test]
    fn other_names_and_uses_are_left_out() {
        for text in ["struct Untold;", "use a::Told;", "// struct Told", "f(\"struct Told\")"] {
            assert_eq!(check_one("crates/a/src/b.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn a_missing_table_is_found() {
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
