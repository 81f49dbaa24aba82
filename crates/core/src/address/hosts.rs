//! The hosts that a program may fetch from ([`Hosts`]), as they are written in an argument or a
//! variable. Addresses are not checked here: internal ones are refused whatever this list allows
//! ([`url`](super::url)).

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use url::Host;

/// The hosts that programs may fetch from. Internal names and addresses are never allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosts {
    /// Every public host.
    #[default]
    Public,
    /// No host.
    Nowhere,
    /// These: exact names, or everything below a name as `*.example.com`.
    Only(Vec<String>),
}

/// A text that is not a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not `public`, `none`, or a list of host names as `example.com,*.example.org`")]
pub struct InvalidHosts(String);

impl FromStr for Hosts {
    type Err = InvalidHosts;

    /// `public`, `none`, or names separated by commas.
    fn from_str(text: &str) -> Result<Self, InvalidHosts> {
        match text {
            "public" => Ok(Self::Public),
            "none" => Ok(Self::Nowhere),
            list => {
                let names: Vec<String> = list.split(',').map(|one| one.trim().to_owned()).collect();
                // The form that URLs use, except that the first label may be an asterisk.
                let is_name = |name: &String| {
                    let bare = name.strip_prefix("*.").unwrap_or(name);
                    let is_host = |host: Host| host.to_string().eq_ignore_ascii_case(bare);
                    !bare.contains('*') && Host::parse(bare).is_ok_and(is_host)
                };
                if names.iter().all(is_name) {
                    Ok(Self::Only(names))
                } else {
                    Err(InvalidHosts(text.to_owned()))
                }
            }
        }
    }
}

impl Hosts {
    /// Whether this list allows fetching a URL with this host.
    #[must_use]
    pub fn allow(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        let fits = |rule: &String| match rule.strip_prefix("*.") {
            Some(parent) => host
                .strip_suffix(&parent.to_ascii_lowercase())
                .is_some_and(|rest| rest.ends_with('.')),
            None => host.eq_ignore_ascii_case(rule),
        };
        match self {
            Self::Public => true,
            Self::Nowhere => false,
            Self::Only(rules) => rules.iter().any(fits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_in_words_and_lists() {
        let named = |text: &str| text.parse::<Hosts>().ok();
        assert_eq!(named("public"), Some(Hosts::Public));
        assert_eq!(named("none"), Some(Hosts::Nowhere));
        let only = vec!["one.example".to_owned(), "*.example.org".to_owned()];
        assert_eq!(named("one.example, *.example.org"), Some(Hosts::Only(only)));
        for wrong in ["", "one.example,", "a b", "https://one.example", "one.example/x", "*", "a:1"]
        {
            assert_eq!(named(wrong), None, "{wrong}");
        }
    }
}
