//! The packages that the workspace is built from: their sources, their licences, and packages that
//! are not allowed. `deny.toml` contains the rules; `cargo deny` checks more where it is installed,
//! this checks the most important ones everywhere.

use serde_json::Value;

use super::{Finding, Tree};

/// The only index from which packages may come, in cargo's notation.
const INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks all packages in the output of `cargo metadata` against `deny.toml`.
pub(super) fn check(tree: &Tree, metadata: &Value) -> Vec<Finding> {
    let rules = tree.file("deny.toml").map_or("", |file| &file.text);
    let allowed = quoted_items(rules, "allow = [");
    let banned = quoted_items(rules, "deny = [");
    let mut findings = Vec::new();
    if allowed.is_empty() || banned.is_empty() {
        findings.push("deny.toml: has no `allow` or no `deny` list".to_owned());
    }
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if packages.is_empty() {
        findings.push("Cargo.lock: holds no packages".to_owned());
    }
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        if banned.contains(&name) {
            findings.push(format!("Cargo.lock: `{name}` is banned by deny.toml"));
        }
        match package["source"].as_str() {
            None | Some(INDEX) => {}
            Some(source) => findings.push(format!("Cargo.lock: `{name}` comes from {source}")),
        }
        let licence = package["license"].as_str().unwrap_or_default();
        if !is_allowed(licence, &allowed) {
            findings.push(format!("Cargo.lock: `{name}` has the licence `{licence}`"));
        }
    }
    findings
}

/// The first string of each line of a list in TOML, in the layout of `deny.toml`.
fn quoted_items<'a>(toml: &'a str, head: &str) -> Vec<&'a str> {
    let lines = toml.lines().skip_while(|line| *line != head).skip(1);
    let lines = lines.take_while(|line| *line != "]");
    lines.filter_map(|line| line.split('"').nth(1)).collect()
}

/// Whether allowed licences alone satisfy an SPDX expression. `A/B`, an old form of `A OR B`, is
/// accepted.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any(&mut words, allowed).filter(|_| words.next().is_none()) == Some(true)
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Like `all` and `one`: whether that part is allowed, `None` when it is invalid.
fn any(words: &mut Words<'_>, allowed: &[&str]) -> Option<bool> {
    let mut answer = all(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        answer |= all(words, allowed)?;
    }
    Some(answer)
}

fn all(words: &mut Words<'_>, allowed: &[&str]) -> Option<bool> {
    let mut answer = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        answer &= one(words, allowed)?;
    }
    Some(answer)
}

fn one(words: &mut Words<'_>, allowed: &[&str]) -> Option<bool> {
    let licence = words.next()?;
    if licence == "(" {
        let answer = any(words, allowed)?;
        return words.next_if_eq(&")").map(|_| answer);
    }
    // An exception only gives more rights.
    if words.next_if_eq(&"WITH").is_some() {
        words.next()?;
    }
    Some(allowed.contains(&licence))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn licence_expressions_are_understood() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"];
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT OR", "(MIT", "MIT MIT", "OR"] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn each_rule_can_be_broken() {
        let rules = "[bans]\ndeny = [\n    { crate = \"bad\" },\n]\nallow = [\n    \"MIT\",\n]\n";
        let tree = Tree::of(&[("deny.toml", rules)]);
        let found = |name: &str, source: &str, licence: &str| {
            let package = json!({"name": name, "source": source, "license": licence});
            check(&tree, &json!({"packages": [package]}))
        };
        assert_eq!(found("good", INDEX, "MIT"), Vec::<String>::new());
        assert_eq!(found("bad", INDEX, "MIT"), ["Cargo.lock: `bad` is banned by deny.toml"]);
        assert_eq!(found("good", "git+ssh://elsewhere", "MIT").len(), 1);
        assert_eq!(found("good", INDEX, "GPL-3.0").len(), 1);
        assert!(!check(&Tree::of(&[]), &json!({"packages": []})).is_empty());
    }
}
