//! A secret by its name and one host that receives it, in the form of arguments: `NAME@HOST`,
//! `NAME@HOST:PORT`. Values are not here.

pub mod value;

use std::fmt;
use std::str::FromStr;

use super::binding::{Binding, CredentialSlot, PORT};
use super::name::as_text;
use super::variables;
use super::{AllowedHost, Requests, Target};

/// The longest name, in bytes.
const NAME_BYTES: usize = 128;

/// A secret, bound to one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundSecret {
    /// The variable in which programs inside find its placeholder.
    pub name: String,
    /// The host that receives it, and the port if it is not 443.
    pub host: AllowedHost,
}

/// Secrets that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecrets {
    /// One secret has different ports for its hosts.
    #[error("the secret {name} has hosts with different ports")]
    Ports {
        /// The secret.
        name: String,
    },
}

/// The bindings of secrets, one for each name in the order of first occurrence, with the
/// placeholder that programs inside have instead of the value.
///
/// # Errors
/// [`InvalidSecrets`] for the first contradiction.
pub fn bindings(
    secrets: &[BoundSecret],
    mut placeholder: impl FnMut(&str) -> String,
) -> Result<Vec<Binding>, InvalidSecrets> {
    let mut all: Vec<Binding> = Vec::new();
    for BoundSecret { name, host } in secrets {
        let ports = vec![host.port().unwrap_or(PORT)];
        match all.iter_mut().find(|binding| binding.credential == *name) {
            Some(binding) if binding.ports != ports => {
                return Err(InvalidSecrets::Ports { name: name.clone() });
            }
            Some(binding) => binding.hosts.push(host.target().clone()),
            None => all.push(Binding {
                credential: name.clone(),
                hosts: vec![host.target().clone()],
                ports,
                place: CredentialSlot::Placeholder(placeholder(name)),
                requests: Requests::default(),
                strict: false,
            }),
        }
    }
    Ok(all)
}

impl FromStr for BoundSecret {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, host) = text.split_once('@').ok_or("expected NAME@HOST")?;
        let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
        let begins = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !begins || name.len() > NAME_BYTES || !name.bytes().all(is_word) {
            return Err(format!("`{name}` is not a valid variable name"));
        }
        if let Some(family) = variables::obeyed_by(name) {
            return Err(format!(
                "the variable {name} is obeyed by {}, and cannot be a secret; use the name that the \
                 service has for it, which ends in _TOKEN or _KEY",
                family.program
            ));
        }
        let host: AllowedHost = host
            .parse()
            .map_err(|error: String| error.replace("--allow ", &format!("--secret {name}@")))?;
        if host.is_addresses() || *host.target() == Target::Any {
            return Err("a secret can be bound to a name only, not to an address or to all hosts"
                .to_owned());
        }
        Ok(Self { name: name.to_owned(), host })
    }
}

impl fmt::Display for BoundSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.host)
    }
}

as_text!(BoundSecret);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_a_name_and_a_host() {
        for text in ["API_KEY@api.example", "_k1@*.example:8443"] {
            let secret: BoundSecret = text.parse().unwrap();
            assert_eq!(secret.to_string(), text);
        }
        for text in [
            "API_KEY",
            "@api.example",
            "1KEY@api.example",
            "A-B@api.example",
            "KEY=value@api.example",
            "KEY@",
            "KEY@*",
            "KEY@10.0.0.1",
            "KEY@10.0.0.0/8",
            "KEY@api.*.com",
            "KEY@https://api.example",
            "LD_PRELOAD@api.example",
            "PATH@api.example",
            "node_options@api.example",
        ] {
            assert!(text.parse::<BoundSecret>().is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_of_one_secret_share_its_placeholder() {
        let secrets = |texts: &[&str]| -> Vec<BoundSecret> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let mut number = 0;
        let mut next = |_: &str| {
            number += 1;
            format!("placeholder-{number:06}")
        };
        let made = bindings(&secrets(&["A@a.test", "B@b.test:444", "A@c.test"]), &mut next);
        let listed: Vec<_> = made
            .unwrap()
            .iter()
            .map(|binding| (binding.credential.clone(), binding.hosts.len(), binding.ports.clone()))
            .collect();
        assert_eq!(listed, [("A".to_owned(), 2, vec![443]), ("B".to_owned(), 1, vec![444])]);
        let refused = bindings(&secrets(&["A@a.test", "A@c.test:444"]), &mut next);
        assert_eq!(refused, Err(InvalidSecrets::Ports { name: "A".to_owned() }));
        assert_eq!(number, 3, "one for each name");
    }
}
