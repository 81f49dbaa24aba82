//! The keys of tasks in a run.

use std::fmt;

/// A task of a run. In a loop, each iteration is a different key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The id of the task; in nested loops, combined with the iterations of the outer ones.
    pub node: String,
    /// The iteration of the innermost loop, or else 0.
    pub iteration: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.node, self.iteration)
    }
}

/// The key of a task in these loops, the outermost first.
pub(super) fn key(id: &str, scope: &[(&str, u32)]) -> Key {
    let (inner, outer) = match scope.split_last() {
        Some((inner, outer)) => (inner.1, outer),
        None => (0, &[][..]),
    };
    Key { node: scoped(id, outer), iteration: inner }
}

/// An id combined with the iterations of these loops.
pub(super) fn scoped(id: &str, loops: &[(&str, u32)]) -> String {
    let mut name = id.to_owned();
    for (outer, iteration) in loops {
        name.push_str(&format!("@@{outer}={iteration}"));
    }
    name
}
