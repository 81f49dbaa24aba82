//! The commands of sandboxes as things that can be listed, ended and joined.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::SandboxId;
use stockade_core::Time;

use crate::command::{CommandLine, Ending};
use crate::operation::{OperationId, OperationStatus};

/// Lists commands, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ListCommands {
    /// Only those of this sandbox; those of all sandboxes of the caller when absent.
    pub sandbox_id: Option<SandboxId>,
    /// Also those that have ended.
    pub ended: bool,
}

/// Commands of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandList {
    /// The commands, the newest first.
    pub commands: Vec<CommandInfo>,
    /// Whether older ones are not listed.
    pub more: bool,
}

/// One command of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandInfo {
    /// Its short id, which follows from the operation's id.
    pub id: String,
    /// The operation that runs it.
    pub workflow_id: OperationId,
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The command line.
    pub command: CommandLine,
    /// The status of the operation.
    pub status: OperationStatus,
    /// Whether its output is stored, because no client had its streams when it was started.
    pub detached: bool,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// Whether it takes input.
    pub input: bool,
    /// When it was requested.
    pub created_at: Time,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// Its exit code, when it has ended and the code is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// Ends a command with all processes that it has started, or sends a signal to its process group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KillCommand {
    /// The operation that runs it.
    pub workflow_id: OperationId,
    /// The number of the signal to send instead of ending the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// Joins a command: its output from these offsets on, and its input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachCommand {
    /// The operation that runs it.
    pub workflow_id: OperationId,
    /// How many bytes of its standard output are known.
    #[serde(default)]
    pub stdout_offset: u64,
    /// How many bytes of its standard error are known.
    #[serde(default)]
    pub stderr_offset: u64,
}
