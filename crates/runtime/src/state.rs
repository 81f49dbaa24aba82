//! The states of a sandbox.

use serde::{Deserialize, Serialize};

/// The state of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is being created.
    Creating,
    /// Commands can be started in it.
    Running,
    /// Its processes are stopped.
    Paused,
    /// Its processes have ended; its files still exist.
    Ended,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Creating => "being created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Ended => "ended",
        })
    }
}
