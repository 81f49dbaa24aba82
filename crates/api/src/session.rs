//! Interactive commands: their streams are passed on immediately, and not recorded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::command::{Execute, OutputEnd, Terminal};
use crate::operation::OperationId;
use crate::stream::Items;
use stockade_core::Bytes;

/// Runs a command whose streams the caller controls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenSession {
    /// The command. Its input comes from the session.
    pub execute: Execute,
    /// A terminal of this size instead of three pipes.
    #[serde(default)]
    pub terminal: Option<Terminal>,
    /// Whether the session will write to its standard input.
    #[serde(default)]
    pub input: bool,
    /// Whether the command continues when the server exits, for clients that join it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub survives: bool,
}

/// The streams of a command.
#[derive(Debug)]
pub struct Session {
    /// The operation, for its record.
    pub workflow_id: OperationId,
    /// The events of the command. The last one is [`SessionEvent::Ended`] or an error.
    pub events: Items<SessionEvent>,
    /// The input for the command. Dropping it ends the input, but not the command.
    pub input: mpsc::Sender<SessionInput>,
}

/// An event of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum SessionEvent {
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
    /// Lost bytes. A command waits for a slow caller; but output that could not be stored for lack
    /// of space, or was lost with the sandbox, is reported here.
    Lost {
        /// The number of bytes.
        bytes: u64,
    },
    /// The end of the command.
    Ended(OutputEnd),
}

/// An input for a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum SessionInput {
    /// Bytes for its standard input.
    Stdin {
        /// The bytes.
        data: Bytes,
    },
    /// The end of its standard input.
    End,
    /// A new size of its terminal.
    Resize(Terminal),
    /// A signal for its process group.
    Signal {
        /// The signal's number.
        signal: i32,
    },
}
