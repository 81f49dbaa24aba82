//! Unified diffs in git's format: writing them for display and for `git apply`, and parsing
//! untrusted ones.
//!
//! Parsing only checks and splits the text; nothing here changes a file.

mod error;
mod header;
mod hunk;
mod name;
mod parse;
mod render;
mod sides;

pub use error::{Error, Fault};
pub use hunk::{Hunk, Line, Side};
pub use parse::{FilePatch, Operation, parse};
pub use render::{Rendered, rename_sources, render};
pub use sides::{Content, Sides};

#[cfg(test)]
mod tests;
