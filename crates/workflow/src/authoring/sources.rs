//! The sources of a program, as they were when its run started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stockade_script::SourceFile;

/// Finds the files that a program imports.
pub(crate) trait Modules: Send {
    /// The file that an import resolves to, or the reason why there is none.
    fn import(&mut self, importer: &str, specifier: &str) -> Result<SourceFile, String>;
}

/// A program as it was read when its run started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The name of the file that exports the workflow.
    pub entry: String,
    /// The content of each file, by its name.
    pub files: BTreeMap<String, String>,
    /// The file of each import: the importing file, the specifier, the file.
    pub links: Vec<(String, String, String)>,
}

impl Sources {
    /// The hash of all files.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (name, source) in &self.files {
            for text in [name, source] {
                hasher.update(&text.len().to_le_bytes()).update(text.as_bytes());
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    pub(crate) fn file(&self, name: &str) -> Option<SourceFile> {
        let source = self.files.get(name)?.clone();
        Some(SourceFile { path: name.to_owned(), source })
    }
}

impl Modules for Sources {
    fn import(&mut self, importer: &str, specifier: &str) -> Result<SourceFile, String> {
        let link = self.links.iter().find(|(from, said, _)| from == importer && said == specifier);
        let file = link.and_then(|(.., name)| self.file(name));
        file.ok_or_else(|| format!("\"{specifier}\" did not exist when the run started"))
    }
}
