//! Library sets: the packages that snippets import. One is built in, so that no installation is
//! needed; others are read from a `node_modules` directory.

mod error;
mod import_scan;
mod installed;
mod manifest;
mod packages;
mod resolve;
mod tree;

use stockade_script::{LibraryModule, LibraryPackage, LibrarySet};

pub use error::Error;
pub use import_scan::imports;
pub use installed::{Selection, load_installed};
pub use packages::Packages;
pub use resolve::is_package_specifier;

/// The module that records systems; only libraries can import it. Every set has it.
pub(crate) const SYSTEMS: &str = "stockade:systems";

/// The package whose systems appear in a transcript.
const CORE: &str = "@directive-run/core";

/// The built-in set: a small `@directive-run/core`.
pub fn built_in() -> LibrarySet {
    LibrarySet {
        name: "built-in".to_owned(),
        modules: vec![systems(), core()],
        packages: vec![LibraryPackage { name: CORE.to_owned(), version: None }],
        ..LibrarySet::default()
    }
}

/// The small [`CORE`].
fn core() -> LibraryModule {
    LibraryModule {
        specifier: CORE.to_owned(),
        source: include_str!("library/core.js").to_owned(),
        imports: [(SYSTEMS.to_owned(), SYSTEMS.to_owned())].into(),
        exported: true,
    }
}

/// The module [`SYSTEMS`]: functions that create systems register them with it, and their state is
/// read at the end.
pub(crate) fn systems() -> LibraryModule {
    LibraryModule {
        specifier: SYSTEMS.to_owned(),
        source: include_str!("library/systems.js").to_owned(),
        ..LibraryModule::default()
    }
}

#[cfg(test)]
mod tests;
