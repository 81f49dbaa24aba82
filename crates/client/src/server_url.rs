//! The URL of a server on another machine.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;
use stockade_core::address::classify;

/// The URL of a server: `https://HOST[:PORT]` or `http://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerUrl {
    secure: bool,
    host: String,
    port: u16,
}

/// Why a text is no URL of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// It is no URL.
    #[error("it is no URL of the form https://HOST[:PORT]")]
    Form,
    /// It has a user name or a password.
    #[error("a URL must not contain a user name or password")]
    Credentials,
    /// It has a path or query.
    #[error("the URL of a server has no path and no query")]
    Path,
}

impl ServerUrl {
    /// Whether the connection has TLS.
    pub const fn is_secure(&self) -> bool {
        self.secure
    }

    /// The host: a name, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether the host is the machine of the client itself, so that nothing is sent over a network.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => classify(address) == stockade_core::address::Class::Loopback,
            Err(_) => self.host == "localhost",
        }
    }

    /// The host and port, as in the header `host`.
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port == default_port(self.secure) {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }
}

const fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl FromStr for ServerUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        // The parser of URIs drops what follows `#`.
        if text.contains(['#', '?']) {
            return Err(InvalidUrl::Path);
        }
        let uri: Uri = text.parse().map_err(|_| InvalidUrl::Form)?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(InvalidUrl::Form),
        };
        let authority = uri.authority().ok_or(InvalidUrl::Form)?;
        if authority.as_str().contains('@') {
            return Err(InvalidUrl::Credentials);
        }
        if !matches!(uri.path(), "" | "/") {
            return Err(InvalidUrl::Path);
        }
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let host = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(InvalidUrl::Form);
        }
        let after = authority.as_str().strip_prefix(authority.host()).ok_or(InvalidUrl::Form)?;
        let port = match after.strip_prefix(':') {
            Some(digits) => digits.parse().ok().filter(|port| *port != 0),
            None => Some(default_port(secure)),
        };
        Ok(Self { secure, host, port: port.ok_or(InvalidUrl::Form)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_one_form() {
        for (text, shown) in [
            ("https://box.example", "https://box.example"),
            ("https://localhost:443/", "https://localhost"),
            ("http://localhost:8080", "http://localhost:8080"),
            ("https://10.0.0.5:8443", "https://10.0.0.5:8443"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
        ] {
            assert_eq!(text.parse::<ServerUrl>().unwrap().to_string(), shown, "{text}");
        }
        for (text, error) in [
            ("", InvalidUrl::Form),
            ("box.example", InvalidUrl::Form),
            ("ftp://box.example", InvalidUrl::Form),
            ("https://", InvalidUrl::Form),
            ("https://box.example:", InvalidUrl::Form),
            ("https://box.example:0", InvalidUrl::Form),
            ("https://box.example:70000", InvalidUrl::Form),
            ("https://b%2fx", InvalidUrl::Form),
            ("https://user@box.example", InvalidUrl::Credentials),
            ("https://e2b_key:x@box.example", InvalidUrl::Credentials),
            ("https://box.example/v1", InvalidUrl::Path),
            ("https://box.example?x", InvalidUrl::Path),
            ("https://box.example#x", InvalidUrl::Path),
        ] {
            assert_eq!(text.parse::<ServerUrl>(), Err(error), "{text}");
        }
    }

    #[test]
    fn only_the_loopback_is_this_machine() {
        for (text, expected) in [
            ("http://localhost", true),
            ("http://127.0.0.1:8080", true),
            ("http://127.3.2.1", true),
            ("http://[::1]:1", true),
            ("http://localhost.example", false),
            ("http://10.0.0.1", false),
            ("http://[::]", false),
        ] {
            assert_eq!(text.parse::<ServerUrl>().unwrap().is_loopback(), expected, "{text}");
        }
    }
}
