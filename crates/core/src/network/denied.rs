//! The denied connections of one sandbox so far: each kind once, with a count, and the argument
//! that would allow it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::misdirected::{MAX_MISDIRECTED, Misdirection};
use super::{AllowedHost, Host, Reason, is_host_loopback};
use crate::error::Code;
use crate::names::names;

/// How many kinds are listed. Further ones are only counted.
pub const MAX_DENIED: usize = 256;

names! {
    /// How a process inside made the request.
    pub enum Transport: "transport" {
        /// A connection to an address.
        Direct = "direct",
        /// A request to the egress proxy.
        Proxy = "proxy",
        /// A DNS query.
        Dns = "dns",
    }
}

/// One kind of denied connection, with a count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeniedConnection {
    /// The requested host, if it could be parsed.
    pub host: Option<Host>,
    /// The port; none for a name that was looked up.
    pub port: Option<u16>,
    /// How it was requested first.
    pub way: Transport,
    /// The name of the reason.
    pub reason: Reason,
    /// The code of the corresponding problem.
    pub code: Code,
    /// The refusal in words.
    pub message: String,
    /// How often it was denied.
    pub times: u64,
    /// The argument of `stockade run` and `stockade create` that allows it, if there is one.
    pub allow: Option<String>,
}

/// Two refusals with the same key are one kind; the message is part of it if no host could be
/// parsed.
type Key = (Option<Host>, Option<u16>, Reason, Option<String>);

impl DeniedConnection {
    /// A connection that was denied once.
    pub fn new(
        (host, port): (Option<Host>, Option<u16>),
        transport: Transport,
        (reason, code, message): (Reason, Code, String),
    ) -> Self {
        let allow = host.as_ref().and_then(|host| allow_argument(host, port, reason));
        Self { host, port, way: transport, reason, code, message, times: 1, allow }
    }

    /// The same, with the argument that allows it, if its reason alone does not say which.
    #[must_use]
    pub fn with_allow(self, allow: Option<String>) -> Self {
        Self { allow: allow.or(self.allow), ..self }
    }

    fn key(&self) -> Key {
        let words = self.host.is_none().then(|| self.message.clone());
        (self.host.clone(), self.port, self.reason, words)
    }
}

fn allow_argument(host: &Host, port: Option<u16>, reason: Reason) -> Option<String> {
    // A name that stands for addresses is no host: a query for it tells about the sandbox's own
    // addresses. The host's loopback is allowed at a port only.
    if let Host::Name(name) = host
        && (name.as_str().ends_with(".arpa") || is_host_loopback(name) && port.is_none())
    {
        return None;
    }
    let can_be_allowed =
        matches!(reason, Reason::NotAllowed | Reason::PortNotAllowed | Reason::AddressNotAllowed);
    can_be_allowed.then(|| format!("--allow {}", AllowedHost::new(host, port)))
}

/// All denied connections of one sandbox.
#[derive(Debug, Clone, Default)]
pub struct DeniedConnections {
    connections: Vec<DeniedConnection>,
    lost: u64,
    misdirections: Vec<Misdirection>,
    indexes: HashMap<Key, usize>,
}

impl DeniedConnections {
    /// Counts one more. Returns whether it is the first of its kind and is listed.
    pub fn add(&mut self, denied: DeniedConnection) -> bool {
        let key = denied.key();
        let known = self.indexes.get(&key).copied();
        if let Some(known) = known.and_then(|place| self.connections.get_mut(place)) {
            known.times = known.times.saturating_add(denied.times);
            return false;
        }
        if self.connections.len() >= MAX_DENIED {
            self.add_lost(denied.times);
            return false;
        }
        self.indexes.insert(key, self.connections.len());
        self.connections.push(denied);
        true
    }

    /// Adds to the count of denied connections that are not listed.
    pub const fn add_lost(&mut self, times: u64) {
        self.lost = self.lost.saturating_add(times);
    }

    /// The listed kinds, in the order in which they first occurred.
    pub fn connections(&self) -> &[DeniedConnection] {
        &self.connections
    }

    /// Counts a secret whose placeholder was sent elsewhere. Returns whether it is the first of its
    /// kind and is listed.
    pub fn add_misdirection(&mut self, new: Misdirection) -> bool {
        let own = self.misdirections.iter_mut().find(|own| own.is_like(&new));
        if let Some(own) = own {
            own.times = own.times.saturating_add(new.times);
            return false;
        }
        let is_listed = self.misdirections.len() < MAX_MISDIRECTED;
        if is_listed {
            self.misdirections.push(new);
        }
        is_listed
    }

    /// The secrets whose placeholder was sent elsewhere, in the order in which that first occurred.
    pub fn misdirections(&self) -> &[Misdirection] {
        &self.misdirections
    }

    /// The number of denied connections that are not listed.
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_understood_is_told_apart_by_its_words() {
        let denied = |words: &str| {
            let why = (Reason::NotAllowed, Code::EgressDenied, words.to_owned());
            DeniedConnection::new((None, None), Transport::Proxy, why)
        };
        let mut all = DeniedConnections::default();
        let first = ["one", "other", "one"].map(|words| all.add(denied(words)));
        assert_eq!(first, [true, true, false]);
        assert_eq!(all.connections()[0].times, 2);
    }

    #[test]
    fn refusals_are_told_once_with_how_to_allow_them() {
        let denied = |host: &str, port, reason| {
            let host = Some(host.parse().unwrap());
            DeniedConnection::new(
                (host, port),
                Transport::Direct,
                (reason, Code::EgressDenied, "no".into()),
            )
        };
        let mut all = DeniedConnections::default();
        for is_first in [true, false, false] {
            assert_eq!(all.add(denied("a.example", None, Reason::NotAllowed)), is_first);
        }
        all.add(denied("a.example", Some(443), Reason::NotAllowed));
        all.add(denied("2001:db8::1", Some(80), Reason::AddressNotAllowed));
        all.add(denied("b.example", Some(80), Reason::InternalAddress));
        let told: Vec<_> = all
            .connections()
            .iter()
            .map(|refused| (refused.times, refused.allow.as_deref()))
            .collect();
        let expected = [
            (3, Some("--allow a.example")),
            (1, Some("--allow a.example:443")),
            (1, Some("--allow [2001:db8::1]:80")),
            (1, None),
        ];
        assert_eq!(told, expected);
        all.add_lost(6);
        for number in 0..1000 {
            all.add(denied(&format!("n{number}.example"), None, Reason::NotAllowed));
        }
        assert_eq!((all.connections().len(), all.lost()), (MAX_DENIED, 6 + 1000 - 252));
        let json = serde_json::to_string(&all.connections()[0]).unwrap();
        assert_eq!(serde_json::from_str::<DeniedConnection>(&json).unwrap(), all.connections()[0]);
    }
}
