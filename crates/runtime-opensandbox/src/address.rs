//! Where the server is, and how it is asked: the five variables that clients of OpenSandbox use.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stockade_runtime_remote::Protocol;

/// The longest time of a request, unless a variable says otherwise.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time that the variable can name.
const LONGEST: u64 = 3600;

const DOMAIN: &str = "OPENSANDBOX_DOMAIN";
const KEY: &str = "OPENSANDBOX_API_KEY";
const PROTOCOL: &str = "OPENSANDBOX_PROTOCOL";
const PROXY: &str = "OPENSANDBOX_USE_SERVER_PROXY";
const REQUEST_TIMEOUT: &str = "OPENSANDBOX_REQUEST_TIMEOUT";

/// The address of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Host and port.
    pub domain: String,
    /// How it is reached.
    pub protocol: Protocol,
    /// The key that it requires, if it does.
    pub key: Option<String>,
    /// Whether sandboxes are reached through the server.
    pub use_server_proxy: bool,
    /// Authorities that its certificate may be of besides those of the system, in PEM format.
    pub authorities: Option<Arc<str>>,
    /// How long one request may take.
    pub timeout: Duration,
}

impl fmt::Debug for Address {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("domain", &self.domain)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl Address {
    /// The address in the environment; `None` without `OPENSANDBOX_DOMAIN`, which has no default here: a
    /// runtime is used only where somebody has named its server.
    ///
    /// # Errors
    /// A variable cannot be understood: its name, and what it should be. Never its value.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, String> {
        let text = |name: &'static str| -> Result<Option<String>, String> {
            let value = variable(name).filter(|value| !value.is_empty());
            value
                .map(|value| value.into_string().map_err(|_| format!("{name} is not text")))
                .transpose()
        };
        let Some(domain) = text(DOMAIN)? else { return Ok(None) };
        if !is_authority(&domain) {
            return Err(format!("{DOMAIN} must be HOST or HOST:PORT"));
        }
        let key = text(KEY)?;
        if key.as_deref().is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(format!("{KEY} has characters that no key has"));
        }
        let protocol = match text(PROTOCOL)?.as_deref() {
            None | Some("http") => Protocol::Http,
            Some("https") => Protocol::Https,
            Some(_) => return Err(format!("{PROTOCOL} must be `http` or `https`")),
        };
        let use_server_proxy = match text(PROXY)?.as_deref() {
            None | Some("false" | "0") => false,
            Some("true" | "1") => true,
            Some(_) => return Err(format!("{PROXY} must be `true` or `false`")),
        };
        let timeout = match text(REQUEST_TIMEOUT)? {
            None => TIMEOUT,
            Some(seconds) => match seconds.parse() {
                Ok(seconds @ 1..=LONGEST) => Duration::from_secs(seconds),
                _ => return Err(format!("{REQUEST_TIMEOUT} must be 1 to {LONGEST} seconds")),
            },
        };
        let authorities = None;
        Ok(Some(Self { domain, protocol, key, use_server_proxy, authorities, timeout }))
    }
}

/// Whether a text can be a host with a port.
pub(crate) fn is_authority(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Address>, String> {
        Address::from_environment(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_five_variables_are_read() {
        assert_eq!(read(&[(KEY, "secret")]), Ok(None));
        let plain = read(&[(DOMAIN, "localhost:8080")]).unwrap().unwrap();
        assert_eq!((plain.domain.as_str(), plain.timeout), ("localhost:8080", TIMEOUT));
        assert_eq!(plain.protocol, Protocol::Http);
        assert_eq!((plain.key.as_deref(), plain.use_server_proxy), (None, false));
        let all = [
            (DOMAIN, "box.example"),
            (KEY, "secret"),
            (PROTOCOL, "https"),
            (PROXY, "true"),
            (REQUEST_TIMEOUT, "5"),
        ];
        let full = read(&all).unwrap().unwrap();
        assert_eq!(full.protocol, Protocol::Https);
        assert!(full.use_server_proxy);
        assert_eq!(full.timeout, Duration::from_secs(5));
        assert!(!format!("{full:?}").contains("secret"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_its_value() {
        for (name, value) in [
            (DOMAIN, "http://box.example"),
            (DOMAIN, "box.example/path"),
            (DOMAIN, "a b"),
            (KEY, "sec\nret"),
            (PROTOCOL, "ftp"),
            (PROXY, "maybe"),
            (REQUEST_TIMEOUT, "-5"),
            (REQUEST_TIMEOUT, "soon"),
        ] {
            let variables = [(name, value), (DOMAIN, "box.example")];
            let refused = read(&variables).unwrap_err();
            assert!(refused.contains(name) && !refused.contains(value), "{refused}");
        }
    }
}
