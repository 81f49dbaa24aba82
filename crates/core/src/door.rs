//! Through what a request came.

use serde::{Deserialize, Serialize};

/// Through what a request came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Door {
    /// A command, in its own process.
    Command,
    /// The socket of the data directory.
    Socket,
    /// HTTP over TCP.
    Http,
    /// The Model Context Protocol.
    Mcp,
    /// A browser.
    Web,
    /// A workflow run.
    Workflow,
    /// The server itself.
    #[default]
    Server,
}
