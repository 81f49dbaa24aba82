//! SQL is written only in the `store` folders, behind functions that take and return rows: so
//! another database needs only another folder, and no statement hides a rule of the product.

use super::rust_text::strings;
use super::{File, Finding, Tree};

/// The crates that have tables.
const DIRECTORIES: &[&str] = &["crates/service/src/", "crates/workflow/src/"];

/// Crates that still have SQL elsewhere, with the number of such strings.
const EXCEPTIONS: &[(&str, usize)] = &[];

/// How SQL starts, or what it contains.
const WORDS: &[&str] = &[
    "SELECT ",
    "INSERT INTO ",
    "UPDATE ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "ALTER TABLE ",
    "PRAGMA ",
    "WHERE ",
    "ORDER BY ",
];

/// Checks every source of these crates.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, EXCEPTIONS)
}

fn check_with(tree: &Tree, not_clean: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in DIRECTORIES {
        let files = tree.rust().filter(|file| {
            file.path.strip_prefix(room).is_some_and(|below| !below.contains("store/"))
        });
        let found: Vec<Finding> = files.flat_map(statements).collect();
        let known = not_clean.iter().find(|(known, _)| known == room).map(|(_, count)| *count);
        match known {
            Some(_) if found.is_empty() => findings.push(format!(
                "{room}: has its SQL in its `store`; take it off the list in xtask/src/tidy/sql.rs"
            )),
            Some(known) if found.len() <= known => {}
            _ => findings.extend(found),
        }
    }
    findings
}

fn statements(file: &File) -> Vec<Finding> {
    let sql = |text: &str| WORDS.iter().any(|word| text.contains(word));
    let found = strings(&file.text).into_iter().filter(|(_, text)| sql(text));
    let finding = |(line, _)| format!("{}:{line}: SQL outside of a `store` folder", file.path);
    found.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_is_in_store_folders_alone() {
        let sql = "//! Why.\nfn f() { g(\"SELECT id FROM t WHERE a = ?1\") }\n";
        let tree = Tree::of(&[
            ("crates/service/src/a.rs", sql),
            ("crates/service/src/store/a.rs", sql),
            ("crates/service/tests/a.rs", sql),
            ("crates/workflow/src/b/store/a.rs", sql),
            ("crates/workflow/src/c.rs", "//! SELECT a\nfn f() {} // UPDATE b\n"),
            ("crates/durable/src/a.rs", sql),
        ]);
        let expected = ["crates/service/src/a.rs:2: SQL outside of a `store` folder"];
        assert_eq!(check_with(&tree, &[]), expected);
        assert_eq!(check_with(&tree, &[("crates/service/src/", 1)]), Vec::<String>::new());
        let clean = check_with(&tree, &[("crates/service/src/", 1), ("crates/workflow/src/", 1)]);
        assert!(clean[0].contains("take it off the list"), "{clean:?}");
    }
}
