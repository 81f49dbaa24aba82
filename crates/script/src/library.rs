//! Library sets: packages that programs import, as source. They are loaded and compiled once,
//! before any program runs; no bytecode is ever loaded.

use std::collections::BTreeMap;

/// Packages, and the links between their modules. They can import nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LibrarySet {
    /// The name of the set in messages.
    pub name: String,
    /// Every module, each specifier once.
    pub modules: Vec<LibraryModule>,
    /// The packages of the modules.
    pub packages: Vec<LibraryPackage>,
    /// Imports that are allowed but unavailable, with the reason.
    pub absent: BTreeMap<String, String>,
}

/// A package of a library set.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LibraryPackage {
    /// Its name, the prefix of its imports.
    pub name: String,
    /// Its version; `None` for one that is built in.
    pub version: Option<String>,
}

/// A module of a library set.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LibraryModule {
    /// The name under which it is loaded, and under which programs import it if it is exported.
    pub specifier: String,
    /// Its source: an ECMAScript module in JavaScript.
    pub source: String,
    /// Its imports: the text of each, and the specifier of a module of the set.
    pub imports: BTreeMap<String, String>,
    /// Whether programs can import it, and not only other modules of the set.
    pub exported: bool,
}

impl LibrarySet {
    /// Whether a program can import a module.
    pub fn exports(&self, specifier: &str) -> bool {
        self.modules.iter().any(|module| module.exported && module.specifier == specifier)
    }

    /// The specifiers that a program can import, in the order of the modules.
    pub fn exported_specifiers(&self) -> impl Iterator<Item = &str> {
        let exported = self.modules.iter().filter(|module| module.exported);
        exported.map(|module| module.specifier.as_str())
    }

    /// The package of an import.
    pub fn package(&self, specifier: &str) -> Option<&LibraryPackage> {
        self.packages.iter().find(|package| {
            let below = specifier.strip_prefix(package.name.as_str());
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        })
    }

    /// The total size of its sources, in bytes.
    pub fn source_bytes(&self) -> usize {
        self.modules.iter().map(|module| module.source.len()).sum()
    }
}
