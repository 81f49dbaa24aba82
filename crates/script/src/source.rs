//! Source files and what is wrong in them.

use std::fmt;

/// A file of a payload: nothing of it is on disk.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SourceFile {
    /// Its name, to which imports refer; relative, with `/`.
    pub path: String,
    /// What is in it.
    pub source: String,
}

/// Something wrong at a place in a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Fault {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in UTF-16 units, from 1, as editors and engines count.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, column, message } = self;
        write!(f, "{path}:{line}:{column} — {message}")
    }
}
