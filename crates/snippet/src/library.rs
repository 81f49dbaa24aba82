//! Library sets: the packages that snippets import. One is built in, so that nothing needs to be
//! installed.

use std::collections::BTreeMap;

use stockade_script::Module;

/// The module in which systems are kept, known to libraries only.
pub(crate) const SYSTEMS: &str = "stockade:systems";

/// The packages that a snippet can import, and what they import from each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Every module, by the name under which it is imported.
    pub(crate) modules: BTreeMap<String, Module>,
    /// Between the modules: importer and import, and the module meant.
    pub(crate) links: BTreeMap<(String, String), String>,
    /// What is told of the set in a transcript, when something of it is used.
    pub(crate) remark: Option<String>,
}

impl Library {
    /// The set that is built in: a small `@directive-run/core`.
    pub fn built_in() -> Self {
        let core = "@directive-run/core";
        let modules = [
            (SYSTEMS, include_str!("library/systems.js")),
            (core, include_str!("library/core.js")),
        ];
        let module =
            |(name, code): (&str, &str)| (name.to_owned(), Module::plain(name, code.to_owned()));
        Self {
            modules: modules.into_iter().map(module).collect(),
            links: [((core.to_owned(), SYSTEMS.to_owned()), SYSTEMS.to_owned())].into(),
            remark: Some(format!(
                "{core} is the small implementation that is built into stockade, not the package"
            )),
        }
    }

    /// Whether a snippet can import a module.
    pub(crate) fn has(&self, specifier: &str) -> bool {
        specifier != SYSTEMS && self.modules.contains_key(specifier)
    }

    /// The names that a snippet can import, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str).filter(|name| *name != SYSTEMS)
    }
}
