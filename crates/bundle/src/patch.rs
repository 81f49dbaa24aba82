//! Unified diffs in git's form: writing them for people and for `git apply`, and reading those
//! that a stranger wrote.
//!
//! Reading only checks and takes apart; nothing here changes a file.

mod header;
mod hunk;
mod name;
mod parse;
mod render;
mod sides;

pub use hunk::{Hunk, Line, Side};
pub use parse::{Error, Fault, FilePatch, Operation, parse};
pub use render::{Rendered, rename_sources, render};
pub use sides::{Content, Sides};

#[cfg(test)]
mod tests;
