//! Merges are compared with those of git.

mod parents;
mod texts;
