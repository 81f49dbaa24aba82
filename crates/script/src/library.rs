//! Library sets: packages that programs import, as source. They are read and compiled once, before
//! any program runs; no bytecode is ever loaded.

use std::collections::BTreeMap;

/// Packages, and what they import from each other. Nothing else can be imported by them.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LibrarySet {
    /// What the set is called where it is told of.
    pub name: String,
    /// Every module that is needed, each specifier once.
    pub modules: Vec<LibraryModule>,
    /// The packages that the modules are of.
    pub packages: Vec<LibraryPackage>,
    /// What programs could import if it could be had, and why it cannot.
    pub absent: BTreeMap<String, String>,
}

/// A package of a library set.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LibraryPackage {
    /// Its name, as imports begin with it.
    pub name: String,
    /// Its version; `None` for one that is built in.
    pub version: Option<String>,
}

/// A module of a library set.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LibraryModule {
    /// The name by which it is loaded, and imported by programs if it is exported.
    pub specifier: String,
    /// An ECMAScript module, in JavaScript.
    pub source: String,
    /// What its imports mean: the text of each, and the specifier of a module of the set.
    pub imports: BTreeMap<String, String>,
    /// Whether programs can import it; else only other modules of the set can.
    pub exported: bool,
}

impl LibrarySet {
    /// Whether a program can import a module.
    pub fn exports(&self, specifier: &str) -> bool {
        self.modules.iter().any(|module| module.exported && module.specifier == specifier)
    }

    /// The names that a program can import, in the order of the modules.
    pub fn exported(&self) -> impl Iterator<Item = &str> {
        let exported = self.modules.iter().filter(|module| module.exported);
        exported.map(|module| module.specifier.as_str())
    }

    /// The package that an import is of.
    pub fn package(&self, specifier: &str) -> Option<&LibraryPackage> {
        self.packages.iter().find(|package| {
            let below = specifier.strip_prefix(package.name.as_str());
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        })
    }

    /// The bytes of source in it.
    pub fn source_bytes(&self) -> usize {
        self.modules.iter().map(|module| module.source.len()).sum()
    }
}
