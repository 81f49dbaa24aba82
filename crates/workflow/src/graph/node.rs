//! A node of FireFlow as a task: an operation on a sandbox with named ports.

use serde_json::{Map, Value};

/// An operation with named ports.
#[derive(Debug, Clone, PartialEq)]
pub struct PortNode {
    /// The name of the operation, such as `SandboxExecuteNode`.
    pub name: String,
    /// The values of its input ports.
    pub inputs: Map<String, Value>,
    /// The tasks whose outputs give the ports that pass through, and the stream, where `inputs` does
    /// not. A later one wins.
    pub from: Vec<String>,
}
