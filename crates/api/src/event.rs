//! The events of sandboxes, as they are read.

use serde::{Deserialize, Serialize};
use stockade_core::SandboxId;
use stockade_core::event::Event;

/// Events, from an offset on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ReadEvents {
    /// Only those of this sandbox; of all of the caller's when absent.
    pub sandbox_id: Option<SandboxId>,
    /// Only those after this number.
    pub after: u64,
    /// Whether to wait for what is still to come.
    pub follow: bool,
}

/// An event under its number.
pub type RecordedEvent = Event;
