//! Where Codeplane is, and with which key and repository it is asked: variables of the server.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use stockade_runtime_remote::Protocol;

pub(crate) const URL: &str = "CODEPLANE_API_URL";
pub(crate) const KEY: &str = "CODEPLANE_API_KEY";
pub(crate) const REPOSITORY: &str = "CODEPLANE_REPOSITORY";
pub(crate) const KNOWN_HOSTS: &str = "CODEPLANE_KNOWN_HOSTS";
/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where Codeplane is.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// How it is reached.
    pub protocol: Protocol,
    /// Host and port.
    pub authority: String,
    /// The start of each path.
    pub path: String,
    /// The key.
    pub key: String,
    /// The repository whose workspaces are used: its owner and its name.
    pub repository: (String, String),
    /// The file with the keys of hosts, in the form of OpenSSH.
    pub known_hosts: Option<PathBuf>,
    /// How long one request may take.
    pub timeout: Duration,
}

impl fmt::Debug for Address {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("authority", &self.authority)
            .field("repository", &self.repository)
            .finish_non_exhaustive()
    }
}

impl Address {
    /// The address in the environment.
    ///
    /// # Errors
    /// Which variables are missing, or which one cannot be understood and what it should be. Never a
    /// value.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let found = |name: &'static str| variable(name).filter(|value| !value.is_empty());
        let missing: Vec<_> =
            [URL, KEY, REPOSITORY].into_iter().filter(|name| found(name).is_none()).collect();
        if !missing.is_empty() {
            return Err(format!("the runtime `codeplane` needs {}", missing.join(", ")));
        }
        let text = |name: &'static str| {
            let value = found(name).unwrap_or_default().into_string();
            value.map_err(|_| format!("{name} is not text"))
        };
        let (url, key, repository) = (text(URL)?, text(KEY)?, text(REPOSITORY)?);
        let (protocol, authority, path) = parse_url(&url)?;
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{KEY} has characters that no key has"));
        }
        let is_name = |name: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_part)
        };
        let repository = repository
            .split_once('/')
            .filter(|(owner, name)| is_name(owner) && is_name(name))
            .map(|(owner, name)| (owner.to_owned(), name.to_owned()))
            .ok_or_else(|| format!("{REPOSITORY} must be OWNER/NAME"))?;
        let known_hosts = found(KNOWN_HOSTS).map(PathBuf::from);
        if known_hosts.as_ref().is_some_and(|path| !path.is_absolute()) {
            return Err(format!("{KNOWN_HOSTS} must be an absolute path"));
        }
        Ok(Self { protocol, authority, path, key, repository, known_hosts, timeout: TIMEOUT })
    }
}

/// Protocol, authority and path of a URL. Without TLS only this machine is asked, because each request
/// has the key.
fn parse_url(url: &str) -> Result<(Protocol, String, String), String> {
    let invalid = || format!("{URL} must be https://HOST[:PORT][/PATH]");
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let protocol = match scheme {
        "http" => Protocol::Http,
        "https" => Protocol::Https,
        _ => return Err(invalid()),
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let has_host = authority.bytes().any(|byte| byte.is_ascii_alphanumeric());
    if !has_host || !authority.bytes().all(is_host) || !path.bytes().all(is_path) {
        return Err(invalid());
    }
    if protocol == Protocol::Http && !is_loopback(authority) {
        return Err(format!("{URL} must begin with https://, unless it names this machine"));
    }
    Ok((protocol, authority.to_owned(), path.trim_end_matches('/').to_owned()))
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 3] =
        [(URL, "https://api.example/api/"), (KEY, "codeplane_secret"), (REPOSITORY, "org/repo")];

    fn read(variables: &[(&str, &str)]) -> Result<Address, String> {
        Address::from_environment(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_variables_are_read() {
        let address = read(&GOOD).unwrap();
        assert_eq!((address.authority.as_str(), address.path.as_str()), ("api.example", "/api"));
        assert_eq!(address.protocol, Protocol::Https);
        assert_eq!(address.repository, ("org".to_owned(), "repo".to_owned()));
        assert!(!format!("{address:?}").contains("secret"));
        for url in ["http://127.0.0.1:8080/api", "http://[::1]:1", "http://localhost"] {
            assert!(read(&[(URL, url), GOOD[1], GOOD[2]]).is_ok(), "{url}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let told = read(&[]).unwrap_err();
        assert!([URL, KEY, REPOSITORY].iter().all(|name| told.contains(name)), "{told}");
        let told = read(&GOOD[..2]).unwrap_err();
        assert!(told.contains(REPOSITORY) && !told.contains(URL), "{told}");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_its_value() {
        for (name, value) in [
            (URL, "api.example"),
            (URL, "ftp://api.example"),
            (URL, "https://user:word@api.example"),
            (URL, "https://api.example/a?b"),
            (URL, "https:///path"),
            (URL, "http://api.example"),
            (URL, "http://127.0.0.1.evil.example"),
            (KEY, "sec\nret"),
            (REPOSITORY, "repo"),
            (REPOSITORY, "a/b/c"),
            (REPOSITORY, "../b"),
            (KNOWN_HOSTS, "relative/file"),
        ] {
            let mut variables = vec![(name, value)];
            variables.extend(GOOD);
            let refused = read(&variables).unwrap_err();
            assert!(refused.contains(name) && !refused.contains(value), "{refused}");
        }
    }
}
