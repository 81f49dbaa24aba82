//! The URLs that sandboxed code may fetch: of public hosts, by HTTP. Parsed as browsers do
//! (WHATWG), so that every notation of an address has one form before it is checked.
//!
//! A fetcher calls [`check`] for each URL, also for those of redirects, then [`check_resolved`] for
//! the addresses of its host, and connects to one of the checked addresses.

use std::net::IpAddr;

use url::{Host, Url};

use super::{classify, is_internal_name};

/// Why a URL may not be fetched. The texts are those of the reference sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The text is not a URL.
    #[error("not a valid URL: \"{0}\"")]
    Invalid(String),
    /// Not HTTP.
    #[error("protocol \"{0}:\" is not allowed (only http:, https:)")]
    Protocol(String),
    /// A name of the local machine or of a private network.
    #[error("hostname \"{0}\" resolves to localhost or internal-only")]
    Internal(String),
    /// An address that is not public.
    #[error("IPv{version} {host} is in a private / loopback / link-local range")]
    Address {
        /// 4 or 6.
        version: u8,
        /// As in the URL, in canonical form.
        host: String,
    },
    /// A name with an address that is not public.
    #[error("hostname \"{host}\" resolves to private IPv{} {address}", version(*.address))]
    Resolved {
        /// The name.
        host: String,
        /// The first such address.
        address: IpAddr,
    },
}

/// Parses a URL and does all checks that need no name resolution.
///
/// Credentials in it are allowed: they do not change the host.
///
/// # Errors
/// Why it may not be fetched.
pub fn check(url: &str) -> Result<Url, UrlError> {
    // The parser also rejects an empty host of HTTP.
    let parsed = Url::parse(url).map_err(|_| UrlError::Invalid(url.to_owned()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(UrlError::Protocol(parsed.scheme().to_owned()));
    }
    let address = match parsed.host() {
        None => return Err(UrlError::Invalid(url.to_owned())),
        Some(Host::Domain(name)) if is_internal_name(name) => {
            return Err(UrlError::Internal(name.to_owned()));
        }
        Some(Host::Domain(_)) => return Ok(parsed),
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
    };
    if classify(address).is_public() {
        return Ok(parsed);
    }
    let host = parsed.host_str().unwrap_or_default().to_owned();
    Err(UrlError::Address { version: version(address), host })
}

/// Checks the addresses of a host. A host that is an address itself passes, because [`check`] has
/// checked it; so does a host without addresses, to which no connection is possible.
///
/// # Errors
/// The first address that is not public: one such address makes the name refused.
pub fn check_resolved(host: &str, addresses: &[IpAddr]) -> Result<(), UrlError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if bare.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    match addresses.iter().find(|address| !classify(**address).is_public()) {
        None => Ok(()),
        Some(address) => Err(UrlError::Resolved { host: host.to_owned(), address: *address }),
    }
}

const fn version(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}
