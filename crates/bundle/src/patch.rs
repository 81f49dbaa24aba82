//! Unified diffs in git's format: writing them for display and for `git apply`, and parsing
//! untrusted ones.
//!
//! Parsing only checks and splits the text; nothing here changes a file.

mod binary;
mod binary_data;
mod code;
mod error;
mod header;
mod hunk;
mod hunks;
mod measure;
mod name;
mod parse;
mod pieces;
mod render;
mod sides;
mod similarity;
mod source;
mod unseen;

pub use binary_data::BinaryData;
pub use error::{Error, Fault};
pub use hunk::{Hunk, Line, Side};
pub use measure::Encoding;
pub use parse::{FilePatch, Operation, parse};
pub use render::{Rendered, rename_sources, render};
pub use sides::{Content, Sides, Text};
pub(crate) use similarity::Fingerprint;
pub use unseen::unseen;

/// A path as git reads it in a diff and in `git fast-import`.
pub fn quoted(path: &crate::path::RelativePath) -> Vec<u8> {
    name::quote("", path)
}

#[cfg(test)]
mod tests;
