//! A proxy of the host's own network, through which the egress process reaches the hosts that a policy
//! allows, where nothing else leads to them.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use url::Url;

use super::name::as_text;
use super::{AllowedHost, Host};

/// A proxy that is asked with CONNECT (RFC 9110, 9.3.6), and always by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Upstream {
    url: Url,
    host: Host,
}

impl Upstream {
    /// Its host.
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(80)
    }

    /// The value of its `Proxy-Authorization` header, if it wants one.
    pub fn authorization(&self) -> Option<String> {
        if self.url.username().is_empty() {
            return None;
        }
        let decode = |text: &str| percent_decoded(text);
        let user = decode(self.url.username());
        let password = decode(self.url.password().unwrap_or_default());
        let pair = [user.as_slice(), b":", password.as_slice()].concat();
        Some(format!("Basic {}", STANDARD.encode(pair)))
    }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let hex = more.get(..2).filter(|_| *first == b'%');
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            bytes.push(byte);
            rest = more.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = more;
        }
    }
    bytes
}

impl FromStr for Upstream {
    type Err = String;

    /// The error does not contain the text, which may have a password.
    fn from_str(text: &str) -> Result<Self, String> {
        let with_scheme =
            if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&with_scheme).map_err(|error| format!("it is no URL: {error}"))?;
        if url.scheme() != "http" {
            return Err(format!(
                "a proxy of the scheme `{}` is not supported: use http://HOST:PORT",
                url.scheme()
            ));
        }
        let has_more = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
        if has_more {
            return Err("a proxy has no path: use http://HOST:PORT".to_owned());
        }
        let name = url.host_str().ok_or("it names no host")?;
        let host = Host::parse(name).map_err(|error| error.to_string())?;
        Ok(Self { url, host })
    }
}

impl fmt::Display for Upstream {
    /// All of it, for the process that uses it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

impl fmt::Debug for Upstream {
    /// Without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({})", AllowedHost::new(&self.host, Some(self.port())))
    }
}

as_text!(Upstream);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_host_a_port_and_credentials() {
        let of = |text: &str| text.parse::<Upstream>();
        let proxy = of("http://ann:p%40ss@proxy.example:3128/").unwrap();
        assert_eq!((proxy.host().to_string().as_str(), proxy.port()), ("proxy.example", 3128));
        assert_eq!(proxy.authorization().as_deref(), Some("Basic YW5uOnBAc3M="));
        assert!(!format!("{proxy:?}").contains("p%40ss"), "{proxy:?}");
        assert_eq!(proxy.to_string().parse(), Ok(proxy));
        let bare = of("127.0.0.1:8080").unwrap();
        assert_eq!((bare.port(), bare.authorization()), (8080, None));
        assert_eq!(of("http://proxy.example").unwrap().port(), 80);
        for bad in [
            "https://p:1",
            "socks5://p:1",
            "http://p:1/x",
            "http://p:1/?a",
            "",
            "http://",
            "http://a b:1",
        ] {
            let error = of(bad).unwrap_err();
            assert!(!error.is_empty(), "{bad}");
        }
        assert!(!of("http://u:secret@p:1/x").unwrap_err().contains("secret"));
    }
}
