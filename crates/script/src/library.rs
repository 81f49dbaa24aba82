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
    /// What whoever uses something of the set should know.
    pub remark: Option<String>,
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

    /// The bytes of source in it.
    pub fn source_bytes(&self) -> usize {
        self.modules.iter().map(|module| module.source.len()).sum()
    }
}
