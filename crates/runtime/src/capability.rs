//! The optional features of a backend, so that a caller can query them beforehand.

pub use stockade_core::runtime::Capability;

/// Why a backend does not support a feature here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The reason, in one sentence.
    pub reason: String,
    /// How to make it possible: a command that can be pasted where there is one.
    pub remedy: Option<String>,
}
