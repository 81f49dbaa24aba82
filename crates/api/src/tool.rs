//! Tools that run in a sandbox (Orbiter's `run_tool`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stockade_core::SandboxId;

/// Calls a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunTool {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The tool.
    pub tool: String,
    /// The arguments.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// Its timeout, in seconds; 30 when absent.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// `ok` or `error`.
    pub status: String,
    /// Its output.
    pub result: Value,
}

/// An available tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
}
