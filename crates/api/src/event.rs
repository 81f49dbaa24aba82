//! Reading of sandbox events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::SandboxId;
use stockade_core::event::Event;

/// Reads events, beginning at an offset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ReadEvents {
    /// Only those of this sandbox; of all sandboxes of the caller when absent.
    pub sandbox_id: Option<SandboxId>,
    /// Only those after this number.
    pub after: u64,
    /// Whether to wait for further events.
    pub follow: bool,
}

/// An event with its number.
pub type RecordedEvent = Event;
