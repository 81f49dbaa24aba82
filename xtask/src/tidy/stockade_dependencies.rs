//! What the program `stockade` links: no engine, no database, no TLS and no C code other than the C
//! library. So it starts quickly, and the code that launches sandboxes stays small.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Finding;

/// The package of the program.
const PROGRAM: &str = "stockade-cli";

/// Prefixes of the names of packages that it must not link.
const FORBIDDEN: &[&str] = &[
    "stockade-durable",
    "stockade-egress",
    "stockade-host",
    "stockade-registry",
    "stockade-script",
    "stockade-server",
    "stockade-service",
    "stockade-snippet",
    "stockade-workflow",
    "libsqlite3-sys",
    "oxc",
    "ring",
    "rquickjs",
    "rusqlite",
    "rustls",
];

/// Packages that it may link although their names have one of those prefixes.
const ALLOWED: &[&str] = &["stockade-egress-control", "stockade-registry-control"];

/// The packages that compile C code when they are built, unless they have the feature `pure`.
const COMPILERS: &[&str] = &["bindgen", "cc", "cmake"];

/// Checks the packages that the program links, in the output of `cargo metadata`.
pub(super) fn check(metadata: &Value) -> Vec<Finding> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let names: BTreeMap<_, _> = packages
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?)))
        .collect();
    let nodes = list(&metadata["resolve"]["nodes"]);
    let nodes: BTreeMap<_, _> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let Some((front, _)) = names.iter().find(|(_, name)| **name == PROGRAM) else {
        return vec![format!("Cargo.toml: there is no package {PROGRAM}")];
    };
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    let mut pending = vec![*front];
    while let Some(id) = pending.pop() {
        let (Some(name), Some(node)) = (names.get(id), nodes.get(id)) else { continue };
        if !seen.insert(id) {
            continue;
        }
        if FORBIDDEN.iter().any(|refused| name.starts_with(refused)) && !ALLOWED.contains(name) {
            findings.push(format!("{PROGRAM}: links {name}"));
        }
        let is_pure = list(&node["features"]).iter().any(|feature| feature == "pure");
        for dependency in node["deps"].as_array().into_iter().flatten() {
            let Some(other) = dependency["pkg"].as_str() else { continue };
            let has = |kind: &Value| {
                list(&dependency["dep_kinds"]).iter().any(|one| one["kind"] == *kind)
            };
            if has(&Value::Null) {
                pending.push(other);
            }
            let compiles = names.get(other).is_some_and(|other| COMPILERS.contains(other));
            if has(&"build".into()) && compiles && !is_pure {
                findings.push(format!("{PROGRAM}: links {name}, which compiles C code"));
            }
        }
    }
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A package: its name, its features, and its dependencies with their kinds.
    type Package<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, Value)]);

    fn metadata(packages: &[Package<'_>]) -> Value {
        let nodes: Vec<_> = packages
            .iter()
            .map(|(name, features, deps)| {
                let deps: Vec<_> = deps
                    .iter()
                    .map(|(name, kind)| json!({"pkg": name, "dep_kinds": [{"kind": kind}]}))
                    .collect();
                json!({"id": name, "features": features, "deps": deps})
            })
            .collect();
        let packages: Vec<_> =
            packages.iter().map(|(name, ..)| json!({"id": name, "name": name})).collect();
        json!({"packages": packages, "resolve": {"nodes": nodes}})
    }

    #[test]
    fn the_front_links_no_engine_and_no_c_code() {
        let normal = Value::Null;
        let right = metadata(&[
            (
                PROGRAM,
                &[],
                &[
                    ("stockade-egress-control", normal.clone()),
                    ("stockade-service", "dev".into()),
                    ("blake3", normal.clone()),
                ],
            ),
            ("stockade-egress-control", &[], &[]),
            ("stockade-service", &[], &[("rusqlite", normal.clone())]),
            ("rusqlite", &[], &[]),
            ("blake3", &["pure"], &[("cc", "build".into())]),
            ("cc", &[], &[]),
        ]);
        assert_eq!(check(&right), Vec::<String>::new());

        let wrong = metadata(&[
            (PROGRAM, &[], &[("middle", normal.clone())]),
            ("middle", &[], &[("oxc_parser", normal), ("cc", "build".into())]),
            ("oxc_parser", &[], &[]),
            ("cc", &[], &[]),
        ]);
        assert_eq!(
            check(&wrong),
            ["stockade-cli: links middle, which compiles C code", "stockade-cli: links oxc_parser"]
        );
        assert!(!check(&json!({})).is_empty());
    }
}
