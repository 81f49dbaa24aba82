//! An allowed host as people write it: `HOST`, or `HOST:PORT`.

use std::fmt;

use super::name::as_text;
use super::{Block, HOST_LOOPBACK, Host, Name, Rule, Target, is_host_loopback};
use crate::access::Effect;

/// An allowed host, at one port or at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    target: Target,
    port: Option<u16>,
}

impl AllowedHost {
    /// The value that allows a requested host.
    pub fn new(host: &Host, port: Option<u16>) -> Self {
        let target = match host {
            Host::Name(name) => Target::Exact(name.clone()),
            Host::Address(address) => Target::Block(Block::from_address(*address)),
        };
        Self { target, port }
    }

    /// The hosts.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// The port, if it is a single one.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether it allows addresses rather than names.
    pub const fn is_addresses(&self) -> bool {
        matches!(self.target, Target::Block(_))
    }
}

impl From<AllowedHost> for Rule {
    fn from(AllowedHost { target, port }: AllowedHost) -> Self {
        Self { ports: port.into_iter().collect(), ..Self::new(Effect::Allow, target) }
    }
}

impl AllowedHost {
    /// The rule that lets the name lead to a private network.
    ///
    /// # Errors
    /// It is no name.
    pub fn into_internal_rule(self) -> Result<Rule, String> {
        match self.target {
            Target::Exact(_) | Target::Subdomains(_) => {
                Ok(Rule { internal: true, ..Rule::from(self) })
            }
            Target::Any => Err("name the host that may lead to a private network".to_owned()),
            Target::Block(_) => {
                Err(format!("it is an address, not a name: write `--allow {self}`"))
            }
        }
    }
}

/// Parses `HOST` or `HOST:PORT`. IPv6 addresses are in brackets if there is a port.
pub(super) fn parse(text: &str) -> Result<AllowedHost, String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => {
            let port = port
                .strip_prefix(':')
                .ok_or("after `]` there must be nothing, or a colon and a port")?;
            (host, Some(port))
        }
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = port.map(|port| {
        let number = port.parse().ok().filter(|port: &u16| *port > 0);
        number.ok_or_else(|| format!("`{port}` is not a port"))
    });
    let (target, port) = (host.parse()?, port.transpose()?);
    if let Target::Exact(name) | Target::Subdomains(name) = &target {
        refuse_loopback(name, port)?;
    }
    Ok(AllowedHost { target, port })
}

/// Refuses the names of the loopback: inside they are the sandbox's own.
fn refuse_loopback(name: &Name, port: Option<u16>) -> Result<(), String> {
    let text = name.as_str();
    if text == "localhost" || text.ends_with(".localhost") {
        let port = port.map_or_else(|| "PORT".to_owned(), |port| port.to_string());
        return Err(format!(
            "inside it is the sandbox's own loopback; for the host's write `--allow {HOST_LOOPBACK}:{port}`"
        ));
    }
    if is_host_loopback(name) && port.is_none() {
        return Err(format!("its port must be named: write `--allow {HOST_LOOPBACK}:PORT`"));
    }
    Ok(())
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(port) = self.port else { return self.target.fmt(f) };
        let target = self.target.to_string();
        if target.contains(':') {
            write!(f, "[{target}]:{port}")
        } else {
            write!(f, "{target}:{port}")
        }
    }
}

as_text!(AllowedHost);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_have_a_port() {
        for (text, target, ports) in [
            ("API.example.com", "api.example.com", vec![]),
            ("api.example.com:443", "api.example.com", vec![443]),
            ("*.example.com:443", "*.example.com", vec![443]),
            ("10.1.2.3:5432", "10.1.2.3", vec![5432]),
            ("10.0.0.0/8", "10.0.0.0/8", vec![]),
            ("2001:db8::1", "2001:db8::1", vec![]),
            ("2001:db8::/32", "2001:db8::/32", vec![]),
            ("[2001:db8::1]", "2001:db8::1", vec![]),
            ("[2001:db8::1]:443", "2001:db8::1", vec![443]),
            ("[2001:db8::/32]:443", "2001:db8::/32", vec![443]),
            ("*", "*", vec![]),
            ("*:443", "*", vec![443]),
            ("a.example.", "a.example", vec![]),
            ("host.stockade.internal:80", "host.stockade.internal", vec![80]),
        ] {
            let allowed: AllowedHost = text.parse().unwrap();
            assert_eq!(allowed.to_string().parse(), Ok(allowed.clone()), "{text}");
            let json = serde_json::to_string(&allowed).unwrap();
            assert_eq!(serde_json::from_str::<AllowedHost>(&json).unwrap(), allowed, "{json}");
            let rule = Rule::from(allowed);
            assert_eq!((rule.target.to_string(), rule.ports), (target.to_owned(), ports), "{text}");
        }
        for text in ["", ":443", "a.example:", "a.example:0", "a.example:65536", "a.example:x"] {
            assert!(text.parse::<AllowedHost>().is_err(), "{text}");
        }
        for text in ["https://a.example", "a.example/path", "[2001:db8::1]443", "a b", "0x7f.1"] {
            assert!(text.parse::<AllowedHost>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_asked_for_is_what_is_to_be_allowed() {
        for (host, port, text) in [
            ("a.example", None, "a.example"),
            ("a.example", Some(443), "a.example:443"),
            ("10.0.0.1", Some(80), "10.0.0.1:80"),
            ("2001:db8::1", Some(80), "[2001:db8::1]:80"),
            ("2001:db8::1", None, "2001:db8::1"),
        ] {
            let allowed = AllowedHost::new(&Host::parse(host).unwrap(), port);
            assert_eq!(allowed.to_string(), text);
        }
    }
}
