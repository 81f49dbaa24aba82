//! Tools that run in a sandbox (Orbiter's `run_tool`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stockade_core::SandboxId;

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunTool {
    /// Where.
    pub sandbox_id: SandboxId,
    /// Which tool.
    pub tool: String,
    /// What it is called with.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// How long it may take, in seconds; 30 when absent.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The tool.
    pub tool: String,
    /// What it was called with.
    pub arguments: Map<String, Value>,
    /// `ok` or `error`.
    pub status: String,
    /// What it gave.
    pub result: Value,
}

/// A tool that can be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
}
