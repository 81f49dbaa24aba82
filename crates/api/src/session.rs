//! Commands that somebody sits in front of: their streams are passed on as they come, and not
//! recorded.

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::bytes::Bytes;
use crate::command::{Execute, OutputEnd, Terminal};
use crate::operation::OperationId;
use crate::stream::Items;

/// A command whose streams the caller takes over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenSession {
    /// The command. What it reads comes from the session.
    pub execute: Execute,
    /// A terminal of this size instead of three pipes.
    #[serde(default)]
    pub terminal: Option<Terminal>,
    /// Whether the session will write to its standard input.
    #[serde(default)]
    pub input: bool,
}

/// The streams of a command.
#[derive(Debug)]
pub struct Session {
    /// The operation, for its record.
    pub workflow_id: OperationId,
    /// What comes from it. The last one is [`SessionEvent::Ended`] or an error.
    pub events: Items<SessionEvent>,
    /// What goes to it. Dropping it ends the input and leaves the command alone.
    pub input: mpsc::Sender<SessionInput>,
}

/// Something that comes from a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Bytes that are lost. A command waits for a caller that is slow; but what cannot be kept for want
    /// of room, or went with the sandbox, is told here.
    Lost {
        /// How many.
        bytes: u64,
    },
    /// The end.
    Ended(OutputEnd),
}

/// Something that goes to a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum SessionInput {
    /// Bytes for its standard input.
    Stdin {
        /// The bytes.
        data: Bytes,
    },
    /// The end of its standard input.
    End,
    /// Another size of its terminal.
    Resize(Terminal),
    /// A signal for its process group.
    Signal {
        /// The signal's number.
        signal: i32,
    },
}
