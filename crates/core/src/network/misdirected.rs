//! Secrets whose placeholder was sent to a host that they are not bound to: each kind once, with a
//! count. The value never leaves for such a host.

use serde::{Deserialize, Serialize};

use super::Host;

/// The most kinds that are listed.
pub const MAX_MISDIRECTED: usize = 64;

/// One secret and one host that it is not bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Misdirection {
    /// The name of the secret.
    pub secret: String,
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// Whether the request was refused, so that the placeholder was not sent.
    pub blocked: bool,
    /// In how many connections.
    pub times: u64,
}

impl Misdirection {
    /// Whether two are of one kind.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        Self { times: 0, ..self.clone() } == Self { times: 0, ..other.clone() }
    }
}
