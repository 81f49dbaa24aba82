//! What a connection to a host carries, as far as it was read, so that a new policy decides on it
//! again.

use std::sync::OnceLock;

use stockade_core::network::{Name, Policy, Refusal};

use crate::first_bytes::http::Head;

/// Why bytes that no one reads are refused.
pub(crate) const UNREAD: Refusal =
    Refusal::InvalidRequest { what: "a rule is about requests to this host, which cannot be read" };

/// What a connection carries; nothing until its first bytes are read.
#[derive(Debug, Default)]
pub(crate) struct Carried(OnceLock<Option<(String, String)>>);

impl Carried {
    /// It carries bytes that are not read.
    pub(crate) fn is_unread(&self) {
        let _ = self.0.set(None);
    }

    /// It carries a single request, with a target without authority.
    pub(crate) fn is_request(&self, head: &Head) {
        let _ = self.0.set(Some((head.method.clone(), head.target.clone())));
    }

    /// Whether a policy allows it on a connection to a port of a host.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self, policy: &Policy, name: &Name, port: u16) -> Result<(), Refusal> {
        match self.0.get() {
            Some(Some((method, target))) => policy.check_request(name, port, (method, target)),
            Some(None) if policy.reads_requests(name, port) => Err(UNREAD),
            // What is not sent yet is checked under the policy of that moment.
            Some(None) | None => Ok(()),
        }
    }
}
