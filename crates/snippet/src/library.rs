//! Library sets: the packages that snippets import. One is built in, so that nothing needs to be
//! installed.

use stockade_script::{LibraryModule, LibrarySet};

/// The module in which systems are kept, known to libraries only. Every set has it.
pub(crate) const SYSTEMS: &str = "stockade:systems";

/// The set that is built in: a small `@directive-run/core`.
pub fn built_in() -> LibrarySet {
    let core = "@directive-run/core";
    LibrarySet {
        name: "built-in".to_owned(),
        modules: vec![
            systems(),
            LibraryModule {
                specifier: core.to_owned(),
                source: include_str!("library/core.js").to_owned(),
                imports: [(SYSTEMS.to_owned(), SYSTEMS.to_owned())].into(),
                exported: true,
            },
        ],
        remark: Some(format!(
            "{core} is the small implementation that is built into stockade, not the package"
        )),
    }
}

/// The module [`SYSTEMS`]: what makes systems registers them with it, and in the end they are read.
pub(crate) fn systems() -> LibraryModule {
    LibraryModule {
        specifier: SYSTEMS.to_owned(),
        source: include_str!("library/systems.js").to_owned(),
        ..LibraryModule::default()
    }
}
