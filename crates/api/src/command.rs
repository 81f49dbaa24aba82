//! Commands in a sandbox, and what they write.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stockade_core::SandboxId;
pub use stockade_core::ending::Kind as Ending;

use crate::bytes::Bytes;
use crate::operation::OperationId;

/// What is run: in JSON a string for a shell to read, or a list of the program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// A line for `/bin/sh -c`.
    Shell(String),
    /// A program, found as `execvp(3)` does, and its arguments.
    Program(Vec<String>),
}

/// A command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Execute {
    /// Where.
    pub sandbox_id: SandboxId,
    /// What.
    pub command: CommandLine,
    /// What is added to the sandbox's environment. Never recorded.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Where it starts.
    #[serde(default)]
    pub working_directory: Option<String>,
    /// Whom it runs as, by number.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The group it runs as; needs `uid`.
    #[serde(default)]
    pub gid: Option<u32>,
    /// Whom it runs as, by a name of the sandbox's users.
    #[serde(default)]
    pub user: Option<String>,
    /// What it reads on its standard input, all of it or the command is not run: whoever is killed
    /// meanwhile, it never reads a part. No more than 64 MiB. Never recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Bytes>,
    /// How long it may take, in seconds.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// How much it may write to both streams together, in bytes, until it is killed; what the sandbox
    /// was created with when absent.
    #[serde(default)]
    pub output_limit_bytes: Option<u64>,
    /// Whether it waits in the queue of sandbox operations until it is its turn; for
    /// `execute_stream` only. A command with an environment or input of its own is not started when
    /// its server ends before.
    #[serde(default)]
    pub queued: bool,
}

impl Execute {
    /// A command with nothing but its line.
    pub fn new(sandbox_id: SandboxId, command: CommandLine) -> Self {
        Self {
            sandbox_id,
            command,
            environment: BTreeMap::new(),
            working_directory: None,
            uid: None,
            gid: None,
            user: None,
            stdin: None,
            timeout_seconds: None,
            output_limit_bytes: None,
            queued: false,
        }
    }
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Executed {
    /// The operation, for its record.
    pub workflow_id: OperationId,
    /// How it ended.
    #[serde(flatten)]
    pub end: OutputEnd,
    /// The last of what it wrote to its standard output.
    pub stdout: Bytes,
    /// The last of what it wrote to its standard error.
    pub stderr: Bytes,
    /// Whether it wrote more to its standard output than is given here.
    #[serde(alias = "truncated")]
    pub stdout_truncated: bool,
    /// Whether it wrote more to its standard error than is given here.
    #[serde(default)]
    pub stderr_truncated: bool,
}

/// The end of a command, as it is told last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputEnd {
    /// How it ended.
    pub ending: Ending,
    /// The exit code as a shell would give it: 124 for a time-out, 126 and 127 for what cannot be
    /// run, 128 and the signal's number for a signal; absent when it is not known.
    pub exit_code: Option<i32>,
    /// The signal that ended it, where one did.
    #[serde(default)]
    pub signal: Option<i32>,
    /// What is known besides, such as why it could not be run.
    pub reason: Option<String>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// How much it wrote to its standard output.
    pub stdout_bytes: u64,
    /// How much it wrote to its standard error.
    pub stderr_bytes: u64,
}

/// The output of an operation, from an offset on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadOutput {
    /// The operation.
    pub workflow_id: OperationId,
    /// The number of the first item that is wanted.
    #[serde(default)]
    pub from: u64,
    /// Whether to wait for what is still to come.
    #[serde(default)]
    pub follow: bool,
}

/// One item of a command's output, under its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputItem {
    /// Its number; they have no gaps.
    pub sequence: u64,
    /// What it is.
    #[serde(flatten)]
    pub chunk: OutputChunk,
}

/// A part of a command's output. The last one is always its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Bytes that it wrote and that are not kept.
    Truncated {
        /// How many.
        bytes: u64,
    },
    /// The end.
    Exit(OutputEnd),
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Terminal {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}
