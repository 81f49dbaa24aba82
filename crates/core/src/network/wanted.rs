//! The hosts that programs in a sandbox without network access asked for. They are the sandbox's own
//! words: nothing was resolved or connected to, and only a user may decide to allow them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{AllowedHost, Host};
use crate::address::{Class, classify, is_internal_name};

/// The most hosts that are listed. Further ones are only counted.
pub const MAX_WANTED: usize = 64;

/// The top-level names below which there is no host of the internet: of addresses and services, and
/// those of RFC 6761, RFC 7686 and RFC 9476.
const NO_HOSTS: &[&str] = &["arpa", "invalid", "onion", "alt"];

/// One host that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedHost {
    /// The host.
    pub host: Host,
    /// The port; none for a name that was only looked up.
    pub port: Option<u16>,
}

impl WantedHost {
    /// The host, if it is one that a user can know: not the sandbox itself, and no name that is none of
    /// a host.
    pub fn new(host: Host, port: Option<u16>) -> Option<Self> {
        let is_host = match &host {
            Host::Address(address) => {
                !matches!(classify(*address), Class::Loopback | Class::Unspecified)
            }
            Host::Name(name) => {
                let name = name.as_str();
                let top = name.rsplit('.').next().unwrap_or_default();
                top != "localhost" && !NO_HOSTS.contains(&top) && !name.starts_with('_')
            }
        };
        is_host.then_some(Self { host, port })
    }

    /// Whether it is one of the public internet.
    pub fn is_public(&self) -> bool {
        match &self.host {
            Host::Address(address) => classify(*address).is_public(),
            Host::Name(name) => !is_internal_name(name.as_str()),
        }
    }

    /// The argument that allows it. Programs can name any host; one of a private network or of this
    /// machine is never offered.
    pub fn allow(&self) -> Option<String> {
        self.is_public().then(|| format!("--allow {}", AllowedHost::new(&self.host, self.port)))
    }
}

impl fmt::Display for WantedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        AllowedHost::new(&self.host, self.port).fmt(f)
    }
}

/// All hosts that were asked for, each once, in the order in which that first happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedHosts {
    hosts: Vec<WantedHost>,
    unlisted: u64,
}

impl WantedHosts {
    /// Adds a host. Returns whether it is new and listed.
    pub fn add(&mut self, wanted: WantedHost) -> bool {
        if self.hosts.contains(&wanted) {
            return false;
        }
        let is_listed = self.hosts.len() < MAX_WANTED;
        if is_listed {
            self.hosts.push(wanted);
        } else {
            self.add_unlisted(1);
        }
        is_listed
    }

    /// Adds to the number of requests that are not listed.
    pub const fn add_unlisted(&mut self, count: u64) {
        self.unlisted = self.unlisted.saturating_add(count);
    }

    /// The listed hosts. A name that was looked up and then asked for with a port is listed with the
    /// port only.
    pub fn listed(&self) -> impl Iterator<Item = &WantedHost> {
        self.hosts.iter().filter(|wanted| {
            let has_port = |other: &&WantedHost| other.host == wanted.host && other.port.is_some();
            wanted.port.is_some() || !self.hosts.iter().any(|other| has_port(&other))
        })
    }

    /// How many requests are not listed.
    pub const fn unlisted(&self) -> u64 {
        self.unlisted
    }

    /// Whether no host was asked for.
    pub const fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(host: &str, port: Option<u16>) -> Option<WantedHost> {
        WantedHost::new(Host::parse(host).unwrap(), port)
    }

    #[test]
    fn only_public_hosts_are_offered() {
        for host in ["a.example.com", "93.184.216.34", "2606:2800::1", "xn--bcher-kva.example.org"]
        {
            assert!(wanted(host, Some(443)).unwrap().allow().is_some(), "{host}");
        }
        for host in [
            "10.0.0.5",
            "169.254.169.254",
            "100.64.0.1",
            "fd00::1",
            "::ffff:10.0.0.5",
            "64:ff9b::a00:5",
            "db",
            "printer.local",
            "host.stockade.internal",
            "metadata.google.internal",
            "metadata.goog",
        ] {
            let named = wanted(host, Some(443)).unwrap();
            assert_eq!(named.allow(), None, "{host}");
            assert!(named.to_string().ends_with(":443"), "{named}");
        }
        for host in [
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "localhost",
            "a.localhost",
            "_http._tcp.deb.example.org",
            "1.0.18.198.in-addr.arpa",
            "8.b.d.0.1.0.0.2.ip6.arpa",
            "x.onion",
            "x.invalid",
        ] {
            assert!(wanted(host, Some(443)).is_none(), "{host}");
        }
    }

    #[test]
    fn each_is_listed_once_with_its_port_and_their_number_is_bounded() {
        let mut all = WantedHosts::default();
        for (host, port, is_new) in [
            ("a.example.com", None, true),
            ("a.example.com", None, false),
            ("a.example.com", Some(443), true),
            ("b.example.com", None, true),
        ] {
            assert_eq!(all.add(wanted(host, port).unwrap()), is_new);
        }
        let listed: Vec<_> = all.listed().filter_map(WantedHost::allow).collect();
        assert_eq!(listed, ["--allow a.example.com:443", "--allow b.example.com"]);
        for number in 0..1000 {
            all.add(wanted(&format!("n{number}.example.com"), None).unwrap());
        }
        assert_eq!((all.hosts.len(), all.unlisted()), (MAX_WANTED, 1000 + 3 - MAX_WANTED as u64));
    }
}
