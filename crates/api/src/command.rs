//! Commands in a sandbox, and their output.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::SandboxId;
pub use stockade_core::ending::Kind as Ending;

use crate::operation::OperationId;
use crate::vault::SecretMapping;
use stockade_core::Bytes;

/// A command line: in JSON a string for a shell, or a list of the program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CommandLine {
    /// A line for `/bin/sh -c`.
    Shell(String),
    /// A program, found as `execvp(3)` does, and its arguments.
    Program(Vec<String>),
    /// The same, if some of the words are not UTF-8.
    Words(Vec<Bytes>),
}

/// A command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Execute {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The command line.
    pub command: CommandLine,
    /// Additions to the sandbox's environment. Never recorded.
    #[serde(default)]
    pub environment: BTreeMap<String, Bytes>,
    /// Variables with fields of stored secrets, for this command only. The record has no value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretMapping>,
    /// Its working directory.
    #[serde(default)]
    pub working_directory: Option<Bytes>,
    /// The user id that it runs as.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The group id that it runs as; needs `uid`.
    #[serde(default)]
    pub gid: Option<u32>,
    /// The name of the sandbox user that it runs as.
    #[serde(default)]
    pub user: Option<String>,
    /// Its standard input. The command runs with all of it or not at all: if a process is killed
    /// meanwhile, the command never reads a part. No more than 64 MiB. Never recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Bytes>,
    /// Its timeout, in seconds.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// How many bytes it may write to both streams together before it is killed; the limit of the
    /// sandbox when absent.
    #[serde(default)]
    pub output_limit_bytes: Option<u64>,
    /// A terminal of this size instead of pipes; for `execute_stream` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// Whether clients that join it may write to its standard input; for `execute_stream` only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub input: bool,
    /// Whether it waits for its turn in the queue of sandbox operations; for `execute_stream` only.
    /// A command with its own environment or input is not started if its server ends before.
    #[serde(default)]
    pub queued: bool,
    /// Whether its output is left out of the record; for `execute_stream` only. It is read from the
    /// sandbox while that exists, with [`ReadOutput::from_sandbox`]; the record has its length and its
    /// end. A sandbox has at most 1024 such commands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unrecorded: bool,
}

impl Execute {
    /// A command with defaults for everything but its line.
    pub fn new(sandbox_id: SandboxId, command: CommandLine) -> Self {
        Self {
            sandbox_id,
            command,
            environment: BTreeMap::new(),
            secrets: Vec::new(),
            working_directory: None,
            uid: None,
            gid: None,
            user: None,
            stdin: None,
            timeout_seconds: None,
            output_limit_bytes: None,
            terminal: None,
            input: false,
            queued: false,
            unrecorded: false,
        }
    }
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecuteResult {
    /// The id of the recorded operation.
    pub workflow_id: OperationId,
    /// How it ended.
    #[serde(flatten)]
    pub end: OutputEnd,
    /// The end of its standard output.
    pub stdout: Bytes,
    /// The end of its standard error.
    pub stderr: Bytes,
    /// Whether earlier standard output is omitted here.
    #[serde(alias = "truncated")]
    pub stdout_truncated: bool,
    /// Whether earlier standard error is omitted here.
    #[serde(default)]
    pub stderr_truncated: bool,
}

/// How a command ended, the last item of its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputEnd {
    /// How it ended.
    pub ending: Ending,
    /// The exit code, as a shell reports it: 124 for a timeout, 126 and 127 for a command that
    /// cannot be executed, 128 plus the signal number for a signal; absent if it is unknown.
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Details, such as why it could not be executed.
    pub reason: Option<String>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The number of bytes that it wrote to its standard output.
    pub stdout_bytes: u64,
    /// The number of bytes that it wrote to its standard error.
    pub stderr_bytes: u64,
    /// The names of the system calls that the sandbox refused while it ran.
    #[serde(default)]
    pub refused_calls: Vec<String>,
}

/// Reads the output of an operation, beginning at an offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadOutput {
    /// The operation.
    pub workflow_id: OperationId,
    /// The number of the first item.
    #[serde(default)]
    pub from: u64,
    /// Whether to wait for further output.
    #[serde(default)]
    pub follow: bool,
    /// Whether to read the output of a command with [`Execute::unrecorded`] from its sandbox, from the
    /// first byte that is kept there to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_sandbox: bool,
}

/// One item of a command's output, with its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputItem {
    /// Its number, without gaps.
    pub sequence: u64,
    /// Its content.
    #[serde(flatten)]
    pub chunk: OutputChunk,
}

/// A part of a command's output. The last one is always its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum OutputChunk {
    /// Bytes of its standard output.
    Stdout {
        /// The bytes.
        data: Bytes,
    },
    /// Bytes of its standard error.
    Stderr {
        /// The bytes.
        data: Bytes,
    },
    /// Output bytes that are not stored any more.
    Truncated {
        /// The number of bytes.
        bytes: u64,
    },
    /// The end of the command.
    Exit(OutputEnd),
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Terminal {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}
