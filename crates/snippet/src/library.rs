//! Library sets: the packages that snippets import. One is built in, so that no installation is
//! needed; others are read from a `node_modules` directory.

mod built_in;
mod error;
mod import_scan;
mod installed;
mod manifest;
mod packages;
mod resolve;
mod tree;

use stockade_script::LibraryModule;

pub use built_in::built_in;
pub use error::Error;
pub use import_scan::imports;
pub use installed::{Selection, load_installed};
pub use packages::Packages;
pub use resolve::is_package_specifier;

/// The module that records systems; only libraries can import it. Every set has it.
pub(crate) const SYSTEMS: &str = "stockade:systems";

/// The package whose systems appear in a transcript.
const CORE: &str = "@directive-run/core";

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
mod core_tests;
#[cfg(test)]
mod tests;
