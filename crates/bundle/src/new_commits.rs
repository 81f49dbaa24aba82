//! The new commits of a command, and taking them to a branch of the project. Of the objects that git
//! has printed ([`crate::commits`]), every change on the way from the recorded base is checked by the
//! rules for bundles ([`check`]); [`import`] writes the new objects, and one branch.

mod check;
mod import;

pub use check::{Commits, FileChange, NewCommit};
pub use import::{Branch, import};
