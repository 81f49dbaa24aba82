//! The URLs that code from inside may fetch: of a public host, by HTTP. Parsed as browsers do
//! (WHATWG), so that every way to write an address comes to one form before it is judged.
//!
//! Whoever fetches asks [`check`] for each URL, those of redirects too, then [`check_resolved`] for
//! the addresses of its host, and connects to one of the addresses that were checked.

use std::net::IpAddr;

use url::{Host, Url};

use super::{classify, is_internal_name};

/// Why a URL may not be fetched. The texts are those of the reference sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The text is no URL.
    #[error("not a valid URL: \"{0}\"")]
    Invalid(String),
    /// Not HTTP.
    #[error("protocol \"{0}:\" is not allowed (only http:, https:)")]
    Protocol(String),
    /// A name of the machine or of a network of one's own.
    #[error("hostname \"{0}\" resolves to localhost or internal-only")]
    Internal(String),
    /// An address that no public host has.
    #[error("IPv{version} {host} is in a private / loopback / link-local range")]
    Address {
        /// 4 or 6.
        version: u8,
        /// As the URL has it, in its canonical form.
        host: String,
    },
    /// A name with an address that no public host has.
    #[error("hostname \"{host}\" resolves to private IPv{} {address}", version(*.address))]
    Resolved {
        /// The name.
        host: String,
        /// The first such address.
        address: IpAddr,
    },
}

/// Parses a URL and checks everything that can be told without resolving its host.
///
/// Credentials in it are no reason to refuse: they do not change which host is meant.
///
/// # Errors
/// Why it may not be fetched.
pub fn check(url: &str) -> Result<Url, Refused> {
    // The parser takes an empty host of HTTP for an error as well.
    let parsed = Url::parse(url).map_err(|_| Refused::Invalid(url.to_owned()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(Refused::Protocol(parsed.scheme().to_owned()));
    }
    let address = match parsed.host() {
        None => return Err(Refused::Invalid(url.to_owned())),
        Some(Host::Domain(name)) if is_internal_name(name) => {
            return Err(Refused::Internal(name.to_owned()));
        }
        Some(Host::Domain(_)) => return Ok(parsed),
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
    };
    if classify(address).is_public() {
        return Ok(parsed);
    }
    let host = parsed.host_str().unwrap_or_default().to_owned();
    Err(Refused::Address { version: version(address), host })
}

/// Checks what a host resolved to. A host that is an address itself passes, since [`check`] has
/// judged it; so does one with no addresses, which nobody can connect to.
///
/// # Errors
/// The first address that no public host has: one such address spoils the name.
pub fn check_resolved(host: &str, addresses: &[IpAddr]) -> Result<(), Refused> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if bare.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    match addresses.iter().find(|address| !classify(**address).is_public()) {
        None => Ok(()),
        Some(address) => Err(Refused::Resolved { host: host.to_owned(), address: *address }),
    }
}

const fn version(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}
