//! The limits on the traffic of a sandbox as clients of the dialects write them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::network::TrafficLimits;

/// The limits; what is absent has none, or the usual one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// Connections at a time; 256 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connections: Option<u16>,
    /// Bytes in both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Bytes for each second, in both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bandwidth: Option<u64>,
}

impl From<Limits> for TrafficLimits {
    fn from(limits: Limits) -> Self {
        let Limits { connections, bytes, bandwidth } = limits;
        Self { connections, bytes, bandwidth }
    }
}
