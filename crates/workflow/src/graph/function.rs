//! How functions of a workflow's author are named.

use serde::{Deserialize, Serialize};

/// A function of the author's, by its number: the same in each rendering that has its element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Function(pub u64);

impl Function {
    /// None: where one may be absent.
    pub const NONE: Self = Self(0);

    /// That of a workflow in Rust, which gave it this name.
    pub fn named(name: &str) -> Self {
        let mut number = [0; 8];
        number.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..8]);
        Self(u64::from_le_bytes(number).max(1))
    }
}
