//! The hosts of registries and mirrors: from a name in a reference or in the configuration to a base
//! URL.

use stockade_core::address::{Class, classify};
use stockade_registry_control::Access;
use url::{Host as UrlHost, Url};

use crate::error::Error;

/// Docker's registry: its name in references, the host that serves it, and its name in the Docker
/// configuration.
const DOCKER: &str = "docker.io";
const DOCKER_HOST: &str = "registry-1.docker.io";
pub(crate) const DOCKER_KEYS: [&str; 4] =
    ["https://index.docker.io/v1/", "index.docker.io", DOCKER, DOCKER_HOST];

/// A host that serves a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// As the reference or the configuration names it, without a scheme.
    pub(crate) name: String,
    /// The base of its URLs, with `https` unless `http` was written.
    pub(crate) base: Url,
    /// Whether it may be reached without TLS if it does not speak it.
    pub(crate) may_be_plain: bool,
}

/// The hosts whose credentials a download may need: those of the registry and its mirrors.
///
/// # Errors
/// [`Error::Invalid`] for a name that is no host.
pub fn hosts(registry: &str, access: &Access) -> Result<Vec<String>, Error> {
    Ok(Host::all(registry, access)?.into_iter().map(|host| host.name).collect())
}

impl Host {
    /// The mirrors in their order, then the registry itself.
    pub(crate) fn all(registry: &str, access: &Access) -> Result<Vec<Self>, Error> {
        let mut all = Vec::new();
        for name in access.mirrors.iter().map(String::as_str).chain([registry]) {
            all.push(Self::parse(name, access)?);
        }
        Ok(all)
    }

    fn parse(text: &str, access: &Access) -> Result<Self, Error> {
        let invalid = || Error::Invalid {
            host: text.to_owned(),
            reason: "it is not the name of a host, with a port if it has one".to_owned(),
        };
        let (is_plain, name) = match text.split_once("://") {
            Some(("https", rest)) => (false, rest),
            Some(("http", rest)) => (true, rest),
            Some(_) => return Err(invalid()),
            None => (false, text),
        };
        let name = name.trim_end_matches('/');
        if name.is_empty() || name.contains(['/', '?', '#', '@', '\\', ' ']) {
            return Err(invalid());
        }
        let scheme = if is_plain { "http" } else { "https" };
        let served_by = if name == DOCKER { DOCKER_HOST } else { name };
        let base = Url::parse(&format!("{scheme}://{served_by}/")).map_err(|_| invalid())?;
        let is_named = access.insecure.iter().any(|host| host == name);
        let may_be_plain = is_plain || is_named || is_loopback(&base);
        Ok(Self { name: name.to_owned(), base, may_be_plain })
    }

    /// The names under which the Docker configuration may have credentials for it.
    pub(crate) fn keys(name: &str) -> Vec<String> {
        if DOCKER_KEYS.contains(&name) {
            return DOCKER_KEYS.iter().map(|&key| key.to_owned()).collect();
        }
        vec![name.to_owned(), format!("https://{name}"), format!("http://{name}")]
    }
}

/// Whether a URL names the loopback by itself, without a resolver's answer.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(UrlHost::Ipv4(address)) => classify(address.into()) == Class::Loopback,
        Some(UrlHost::Ipv6(address)) => classify(address.into()) == Class::Loopback,
        Some(UrlHost::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// The host and port of a URL, for messages and comparisons.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_loopback_and_named_hosts_may_be_reached_without_tls() {
        let access = Access {
            mirrors: vec!["http://mirror:80/".to_owned(), "m.example".to_owned()],
            insecure: vec!["lab:5000".to_owned()],
        };
        let hosts = Host::all("docker.io", &access).unwrap();
        let plain: Vec<_> = hosts.iter().map(|h| (h.base.as_str(), h.may_be_plain)).collect();
        assert_eq!(
            plain,
            [
                ("http://mirror/", true),
                ("https://m.example/", false),
                ("https://registry-1.docker.io/", false)
            ]
        );
        for (name, expected) in [
            ("lab:5000", true),
            ("lab:5001", false),
            ("localhost:5000", true),
            ("127.8.0.1:5000", true),
            ("[::1]:5000", true),
            ("localhost.example.com", false),
            ("10.0.0.1:5000", false),
        ] {
            let host = Host::parse(name, &access).unwrap();
            assert_eq!(host.may_be_plain, expected, "{name}");
        }
        for bad in ["", "a/b", "user@host", "ftp://a", "a b", "http://"] {
            assert!(Host::parse(bad, &access).is_err(), "{bad}");
        }
    }

    #[test]
    fn docker_has_several_names_in_the_configuration() {
        assert!(Host::keys("docker.io").contains(&"https://index.docker.io/v1/".to_owned()));
        assert_eq!(Host::keys("a:1"), ["a:1", "https://a:1", "http://a:1"]);
    }
}
