//! No modules of a crate form a ring, so that each crate can be read from the bottom up.
//!
//! The rule: the modules of one parent, each with all modules below it, must have an order in which
//! each uses only those before it. A module uses another one when it names an item of it by a path,
//! in a `use` or anywhere else; a name that a module only re-exports counts for the module that
//! defines it, so that a facade cannot hide a ring.
//!
//! Not counted: uses between a module and its own children, because they are one unit in several
//! files; code under `#[cfg(test)]`; and methods, which no path names.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Modules;
use super::{Finding, Tree};

/// Checks every crate.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in crates(tree) {
        for file in ["lib.rs", "main.rs"] {
            let cycles = cycles(&Modules::of(tree, &format!("crates/{name}/src/{file}")));
            findings.extend(cycles.iter().map(|cycle| format!("crates/{name}: {cycle}")));
        }
    }
    findings
}

fn crates(tree: &Tree) -> BTreeSet<&str> {
    let below = tree.rust().filter_map(|file| file.path.strip_prefix("crates/"));
    below.filter_map(|path| path.split_once('/')).map(|(name, _)| name).collect()
}

/// Modules of one parent that use each other in a ring.
#[derive(Debug)]
struct Cycle {
    parent: String,
    modules: BTreeSet<String>,
    /// One location for each arrow in the ring.
    uses: Vec<String>,
}

impl std::fmt::Display for Cycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { parent, modules, uses: arrows } = self;
        let modules = modules.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        write!(f, "the modules {modules} of `{parent}` form a ring: {}", arrows.join("; "))
    }
}

/// The siblings that each sibling uses, with a location of the use.
type Uses<'m> = BTreeMap<&'m str, BTreeMap<&'m str, String>>;

fn cycles(modules: &Modules) -> Vec<Cycle> {
    let mut parents: BTreeMap<&[String], Uses<'_>> = BTreeMap::new();
    let uses = modules.uses();
    for (from, to, path) in &uses {
        let (source, target) = (modules.path(*from), modules.path(*to));
        let common = source.iter().zip(target).take_while(|(a, b)| a == b).count();
        if common == source.len() || common == target.len() {
            continue;
        }
        let arrows = parents.entry(&source[..common]).or_default();
        let location = || format!("{} names {path}", modules.file(*from));
        arrows.entry(&source[common]).or_default().entry(&target[common]).or_insert_with(location);
    }
    let mut rings = Vec::new();
    for (parent, arrows) in &parents {
        let mut seen = BTreeSet::new();
        for module in arrows.keys() {
            let ring: BTreeSet<&str> = reachable(arrows, module)
                .into_iter()
                .filter(|other| reachable(arrows, other).contains(module))
                .collect();
            if ring.is_empty() || !seen.insert(ring.clone()) {
                continue;
            }
            let places = ring.iter().flat_map(|from| &arrows[from]);
            let places = places.filter(|(to, _)| ring.contains(*to));
            rings.push(Cycle {
                parent: [&["crate".to_owned()], *parent].concat().join("::"),
                uses: places.map(|(_, place)| place.clone()).collect(),
                modules: ring.iter().map(|module| (*module).to_owned()).collect(),
            });
        }
    }
    rings
}

/// The modules that one uses, directly or indirectly.
fn reachable<'m>(arrows: &Uses<'m>, from: &str) -> BTreeSet<&'m str> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(module) = waiting.pop() {
        for to in arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(*to) {
                waiting.push(to);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_files(files: &[(&str, &str)]) -> Vec<Finding> {
        let owned: Vec<_> =
            files.iter().map(|(path, text)| (format!("crates/a/src/{path}"), *text)).collect();
        let files: Vec<_> = owned.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        check(&Tree::of(&files))
    }

    #[test]
    fn siblings_form_no_ring() {
        let right = [
            ("lib.rs", "mod one; mod two; mod three; pub use one::A;"),
            ("one.rs", "use crate::two::B; use super::three::C;"),
            ("two.rs", "use crate::three::C;"),
            ("three.rs", ""),
        ];
        assert_eq!(check_files(&right), Vec::<String>::new());

        let wrong = [
            ("lib.rs", "mod one; mod two; mod three; pub use one::A;"),
            ("one.rs", "use crate::two::B;"),
            ("two.rs", "fn f() { crate::three::g() }"),
            ("three.rs", "use crate::A;"),
        ];
        assert_eq!(
            check_files(&wrong),
            ["crates/a: the modules one, three, two of `crate` form a ring: \
              crates/a/src/one.rs names crate::two::B; crates/a/src/three.rs names crate::A; \
              crates/a/src/two.rs names crate::three::g"]
        );
    }

    #[test]
    fn what_is_below_a_module_counts_for_it() {
        let files = [
            ("main.rs", "mod one; mod two;"),
            ("one/mod.rs", "mod deep; pub struct Own;"),
            ("one/deep.rs", "use crate::two::B;"),
            ("two.rs", "use crate::one::Own;"),
        ];
        let found = check_files(&files);
        assert!(found[0].contains("one, two of `crate`"), "{found:?}");
    }

    #[test]
    fn a_module_and_its_children_are_one_thing() {
        let files = [
            ("lib.rs", "mod one;"),
            ("one/mod.rs", "mod deep; mod flat; use deep::f; pub struct Own;"),
            ("one/deep.rs", "use super::{Own, flat}; pub fn f() {}"),
            ("one/flat.rs", "use super::Own;"),
        ];
        assert_eq!(check_files(&files), Vec::<String>::new());
        let ring = files.map(|(path, text)| match path {
            "one/flat.rs" => (path, "use super::f;"),
            _ => (path, text),
        });
        assert!(check_files(&ring)[0].contains("deep, flat of `crate::one`"));
    }
}
