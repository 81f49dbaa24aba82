//! Source files and the problems in them.

use std::fmt;

/// A file of a payload, in memory only.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SourceFile {
    /// Its name, to which imports refer; relative, with `/`.
    pub path: String,
    /// Its text.
    pub source: String,
}

/// A problem at a position in a file.
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
