//! Ports of the host that lead into a sandbox as long as it lives.

use std::net::{IpAddr, Ipv4Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A port of the host that leads to a port inside. On the loopback, processes of other users are
/// refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublishedPort {
    /// The address of the host; `127.0.0.1` also stands for `::1`.
    #[serde(default = "loopback")]
    pub address: IpAddr,
    /// The port of the host.
    pub host: u16,
    /// The port inside.
    pub inside: u16,
}

const fn loopback() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

/// A published port, and whether it is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Publication {
    /// The port.
    #[serde(flatten)]
    pub port: PublishedPort,
    /// Why it is not served now; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
