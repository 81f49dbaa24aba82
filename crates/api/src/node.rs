//! FireFlow's nodes: operations with named ports, which can be chained.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stockade_core::sandbox::ServerElsewhere;

/// A request that runs a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunNode {
    /// The name, such as `SandboxExecuteNode`.
    pub node: String,
    /// The values of its input ports.
    #[serde(default)]
    pub inputs: Map<String, Value>,
    /// The server elsewhere that holds the sandbox which it creates, if it names no runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerElsewhere>,
}

/// The values of a node's output ports, including those that it passes through.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOutputs {
    /// The values, by port.
    pub outputs: Map<String, Value>,
}

/// A node that can be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeType {
    /// Its name.
    pub name: String,
    /// What it does, in one sentence.
    pub description: String,
    /// Its category: `sandbox`.
    pub category: String,
    /// Its input ports.
    pub inputs: Vec<String>,
    /// Its output ports.
    pub outputs: Vec<String>,
    /// The ports that are both: their values go through.
    pub passthrough: Vec<String>,
}
