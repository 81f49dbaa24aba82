//! How functions of the workflow's author are identified.

use serde::{Deserialize, Serialize};

/// A function of the author, by a number that is the same in each rendering that contains its element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Function(pub u64);

impl Function {
    /// No function, where the function is optional.
    pub const NONE: Self = Self(0);

    /// The function that a workflow in Rust registered under this name.
    pub fn named(name: &str) -> Self {
        let mut number = [0; 8];
        number.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..8]);
        Self(u64::from_le_bytes(number).max(1))
    }
}
