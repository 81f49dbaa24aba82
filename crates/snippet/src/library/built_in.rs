//! The library set that is built in: a small implementation of [`CORE`], in modules of its own. What snippets do
//! with systems is in JavaScript, in the directory `core`; installed packages are not here.

use std::collections::BTreeMap;

use stockade_script::{LibraryModule, LibraryPackage, LibrarySet};

use super::{CORE, SYSTEMS, systems};

/// Files of the directory `core`, with their names.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("core/", $name)))),*]
    };
}

/// The files of the implementation.
const FILES: &[(&str, &str)] = files!(
    "absent.js",
    "boundary.js",
    "circuit_breaker.js",
    "constraints.js",
    "definition.js",
    "derivations.js",
    "effects.js",
    "engine.js",
    "facts.js",
    "history.js",
    "inspect.js",
    "kinds.js",
    "namespace.js",
    "observe.js",
    "performance_plugin.js",
    "plugins.js",
    "predicate.js",
    "refusal.js",
    "requirements.js",
    "resolvers.js",
    "settling.js",
    "snapshots.js",
    "system.js",
    "timing.js",
    "tracking.js",
    "types.js",
    "views.js",
    "watching.js",
    "index.js",
    "published_plugins.js",
);

/// Those that snippets import, and how they write it.
const EXPORTED: [(&str, &str); 2] =
    [("index.js", "@directive-run/core"), ("published_plugins.js", "@directive-run/core/plugins")];

/// The parts of the package that are not built in.
const ABSENT: [&str; 5] = ["adapter-utils", "internals", "migration", "testing", "worker"];

/// The built-in set: a small `@directive-run/core`.
pub fn built_in() -> LibrarySet {
    let mut set = LibrarySet { name: "built-in".to_owned(), ..LibrarySet::default() };
    set.modules.push(systems());
    add_core(&mut set);
    set
}

/// Adds the small [`CORE`] to a set.
pub(super) fn add_core(set: &mut LibrarySet) {
    let import =
        |name: &str| EXPORTED.iter().find(|(file, _)| *file == name).map(|(_, import)| *import);
    let specifier = |name: &str| {
        import(name).map_or_else(|| format!("stockade:core/{name}"), ToOwned::to_owned)
    };
    let mut imports: BTreeMap<_, _> =
        FILES.iter().map(|(name, _)| (format!("./{name}"), specifier(name))).collect();
    imports.insert(SYSTEMS.to_owned(), SYSTEMS.to_owned());
    set.modules.extend(FILES.iter().map(|(name, source)| LibraryModule {
        specifier: specifier(name),
        source: (*source).to_owned(),
        imports: imports.clone(),
        exported: import(name).is_some(),
    }));
    set.absent.extend(ABSENT.iter().map(|part| {
        let why = format!(
            "{CORE}/{part} is not in the core library that is built in: install {CORE}, and pass \
             its directory with --libraries"
        );
        (format!("{CORE}/{part}"), why)
    }));
    set.packages.push(LibraryPackage { name: CORE.to_owned(), version: None });
}
