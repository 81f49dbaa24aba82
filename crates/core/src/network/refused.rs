//! The denied connections of one sandbox so far: each kind once, with a count, and the argument
//! that would allow it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Allowed, Host, Reason};
use crate::error::Code;
use crate::names::names;

/// How many kinds are listed. Further ones are only counted.
pub const MAX_REFUSED: usize = 256;

names! {
    /// How a process inside made the request.
    pub enum Way: "transport" {
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
pub struct Refused {
    /// The requested host, if it could be parsed.
    pub host: Option<Host>,
    /// The port; none for a name that was looked up.
    pub port: Option<u16>,
    /// How it was requested first.
    pub way: Way,
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

impl Refused {
    /// A connection that was denied once.
    pub fn new(
        (host, port): (Option<Host>, Option<u16>),
        way: Way,
        (reason, code, message): (Reason, Code, String),
    ) -> Self {
        let allow = host.as_ref().and_then(|host| allowing(host, port, reason));
        Self { host, port, way, reason, code, message, times: 1, allow }
    }

    fn key(&self) -> Key {
        let words = self.host.is_none().then(|| self.message.clone());
        (self.host.clone(), self.port, self.reason, words)
    }
}

fn allowing(host: &Host, port: Option<u16>, reason: Reason) -> Option<String> {
    let is_to_be_named =
        matches!(reason, Reason::NotAllowed | Reason::PortNotAllowed | Reason::AddressNotAllowed);
    is_to_be_named.then(|| format!("--allow {}", Allowed::of(host, port)))
}

/// All denied connections of one sandbox.
#[derive(Debug, Clone, Default)]
pub struct Refusals {
    refused: Vec<Refused>,
    lost: u64,
    places: HashMap<Key, usize>,
}

impl Refusals {
    /// Counts one more. Returns whether it is the first of its kind and is listed.
    pub fn add(&mut self, refused: Refused) -> bool {
        let key = refused.key();
        let known = self.places.get(&key).copied();
        if let Some(known) = known.and_then(|place| self.refused.get_mut(place)) {
            known.times = known.times.saturating_add(refused.times);
            return false;
        }
        if self.refused.len() >= MAX_REFUSED {
            self.lose(refused.times);
            return false;
        }
        self.places.insert(key, self.refused.len());
        self.refused.push(refused);
        true
    }

    /// Adds to the count of denied connections that are not listed.
    pub const fn lose(&mut self, times: u64) {
        self.lost = self.lost.saturating_add(times);
    }

    /// The listed kinds, in the order in which they first occurred.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
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
        let refused = |words: &str| {
            let why = (Reason::NotAllowed, Code::EgressDenied, words.to_owned());
            Refused::new((None, None), Way::Proxy, why)
        };
        let mut all = Refusals::default();
        let first = ["one", "other", "one"].map(|words| all.add(refused(words)));
        assert_eq!(first, [true, true, false]);
        assert_eq!(all.refused()[0].times, 2);
    }

    #[test]
    fn refusals_are_told_once_with_how_to_allow_them() {
        let refused = |host: &str, port, reason| {
            let host = Some(host.parse().unwrap());
            Refused::new((host, port), Way::Direct, (reason, Code::EgressDenied, "no".into()))
        };
        let mut all = Refusals::default();
        for is_first in [true, false, false] {
            assert_eq!(all.add(refused("a.example", None, Reason::NotAllowed)), is_first);
        }
        all.add(refused("a.example", Some(443), Reason::NotAllowed));
        all.add(refused("2001:db8::1", Some(80), Reason::AddressNotAllowed));
        all.add(refused("b.example", Some(80), Reason::InternalAddress));
        let told: Vec<_> =
            all.refused().iter().map(|refused| (refused.times, refused.allow.as_deref())).collect();
        let expected = [
            (3, Some("--allow a.example")),
            (1, Some("--allow a.example:443")),
            (1, Some("--allow [2001:db8::1]:80")),
            (1, None),
        ];
        assert_eq!(told, expected);
        all.lose(6);
        for number in 0..1000 {
            all.add(refused(&format!("n{number}.example"), None, Reason::NotAllowed));
        }
        assert_eq!((all.refused().len(), all.lost()), (MAX_REFUSED, 6 + 1000 - 252));
        let json = serde_json::to_string(&all.refused()[0]).unwrap();
        assert_eq!(serde_json::from_str::<Refused>(&json).unwrap(), all.refused()[0]);
    }
}
