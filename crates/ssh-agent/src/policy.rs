//! What may be signed. Everything else is refused.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use ssh_key::{Fingerprint, HashAlg, PublicKey};

use crate::error::Error;
use crate::purpose::Purpose;
use crate::signer::Signer;

/// What may be signed, as its author writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Policy {
    /// The permissions.
    #[serde(default)]
    pub allow: Vec<Allowed>,
    /// Files with private keys, in the format of OpenSSH and without a passphrase. They are read outside,
    /// and are used in addition to those of the caller's agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private_keys: Vec<PathBuf>,
    /// Secrets of the vault, of the type `ssh`, whose keys are used too. Only a server reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

/// One permission: to log in at hosts, or to sign messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Allowed {
    /// The fingerprint of the key: `SHA256:…`.
    pub key: String,
    /// The keys of the hosts at which it may log in: each as a fingerprint, or as a line of
    /// `ssh-keyscan`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<String>,
    /// The users as whom it may log in there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// The namespaces of the messages that it may sign; commits and tags of git have `git`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
}

/// A policy that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checked(Vec<CheckedPermission>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct CheckedPermission {
    key: Fingerprint,
    host_keys: Vec<Fingerprint>,
    users: BTreeSet<String>,
    namespaces: BTreeSet<String>,
}

impl Policy {
    /// Checks all permissions.
    ///
    /// # Errors
    /// The first one that is invalid.
    pub fn check(&self) -> Result<(), Error> {
        self.checked().map(drop)
    }

    /// Checks all permissions, and that their keys are there.
    ///
    /// # Errors
    /// As [`Policy::check`]; [`Error::NoKey`].
    pub fn check_keys(&self, signer: &dyn Signer) -> Result<(), Error> {
        let policy = self.checked()?;
        let there = signer.keys().map_err(|error| Error::NoKey(error.to_string()))?;
        let there: Vec<_> = there
            .iter()
            .filter_map(|key| PublicKey::from_bytes(key).ok())
            .map(|key| key.fingerprint(HashAlg::Sha256))
            .collect();
        match policy.0.iter().find(|own| !there.contains(&own.key)) {
            Some(missing) => Err(Error::NoKey(missing.key.to_string())),
            None => Ok(()),
        }
    }

    pub(crate) fn checked(&self) -> Result<Checked, Error> {
        let all = self.allow.iter().enumerate().map(|(index, allowed)| allowed.checked(index));
        all.collect::<Result<_, _>>().map(Checked)
    }
}

impl Allowed {
    fn checked(&self, index: usize) -> Result<CheckedPermission, Error> {
        let wrong = |why| Err(Error::Permission { index, why });
        match (self.host_keys.is_empty(), self.users.is_empty(), self.namespaces.is_empty()) {
            (true, true, true) => return wrong("it has neither `host-keys` nor `namespaces`"),
            (false, true, _) => return wrong("`host-keys` needs `users`"),
            (true, false, _) => return wrong("`users` needs `host-keys`"),
            _ => {}
        }
        if self.namespaces.iter().chain(&self.users).any(String::is_empty) {
            return wrong("a name is empty");
        }
        Ok(CheckedPermission {
            key: fingerprint(&self.key)?,
            host_keys: self
                .host_keys
                .iter()
                .map(|text| host_key(text))
                .collect::<Result<_, _>>()?,
            users: self.users.iter().cloned().collect(),
            namespaces: self.namespaces.iter().cloned().collect(),
        })
    }
}

fn fingerprint(text: &str) -> Result<Fingerprint, Error> {
    let invalid = || Error::Fingerprint(shortened(text));
    let parsed: Fingerprint = text.trim().parse().map_err(|_| invalid())?;
    if parsed.is_sha256() { Ok(parsed) } else { Err(invalid()) }
}

/// The fingerprint of a line like `ssh-ed25519 AAAA…`, with the name of a host before it or without.
fn host_key(text: &str) -> Result<Fingerprint, Error> {
    if text.trim().starts_with("SHA256:") {
        return fingerprint(text).map_err(|_| Error::HostKey(shortened(text)));
    }
    let words: Vec<_> = text.split_whitespace().collect();
    let keys = [words.get(..2), words.get(1..3)].into_iter().flatten();
    let found = keys.filter_map(|key| PublicKey::from_openssh(&key.join(" ")).ok()).next();
    found.map(|key| key.fingerprint(HashAlg::Sha256)).ok_or_else(|| Error::HostKey(shortened(text)))
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

impl Checked {
    /// Whether a key may be used for anything.
    pub(crate) fn has_key(&self, key: Fingerprint) -> bool {
        self.0.iter().any(|own| own.key == key)
    }

    /// Whether a key may sign for a purpose.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn permits(&self, key: Fingerprint, purpose: &Purpose) -> Result<(), &'static str> {
        let own: Vec<_> = self.0.iter().filter(|own| own.key == key).collect();
        if own.is_empty() {
            return Err("the policy does not name the key");
        }
        match purpose {
            Purpose::Login { host_key, user } => {
                let at_host: Vec<_> = own
                    .into_iter()
                    .filter(|own| own.host_keys.iter().any(|key| key.to_string() == *host_key))
                    .collect();
                if at_host.is_empty() {
                    return Err("the key may not log in at that host");
                }
                match at_host.iter().any(|own| own.users.contains(user)) {
                    true => Ok(()),
                    false => Err("the key may not log in as that user"),
                }
            }
            Purpose::Message { namespace } => {
                match own.iter().any(|own| own.namespaces.contains(namespace)) {
                    true => Ok(()),
                    false => Err("the key may not sign messages of that namespace"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "SHA256:Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE";
    const OTHER: &str = "SHA256:em9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE";
    const HOST: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";

    fn list(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn a_permission_is_for_something() {
        let host = |text: &str| Allowed {
            key: KEY.to_owned(),
            host_keys: list(&[text]),
            users: list(&["git"]),
            ..Allowed::default()
        };
        let check = |allowed: Allowed| Policy { allow: vec![allowed], ..Policy::default() }.check();
        for good in [HOST, &format!("git.example.com {HOST} comment"), OTHER] {
            assert!(check(host(good)).is_ok(), "{good}");
        }
        for bad in ["", "git.example.com", "MD5:00", "SHA256:short", "ssh-ed25519 AAAA"] {
            assert!(matches!(check(host(bad)), Err(Error::HostKey(_))), "{bad}");
        }
        let none = Allowed { key: KEY.to_owned(), ..Allowed::default() };
        let users = Allowed { users: list(&["git"]), ..none.clone() };
        let any_user = Allowed { host_keys: list(&[HOST]), ..none.clone() };
        let empty = Allowed { namespaces: list(&[""]), ..none.clone() };
        for bad in [none, users, any_user, empty] {
            assert!(matches!(check(bad), Err(Error::Permission { index: 0, .. })));
        }
        let key = Allowed { key: "SHA256:no".to_owned(), ..host(HOST) };
        assert!(matches!(check(key), Err(Error::Fingerprint(_))));
    }

    #[test]
    fn what_is_not_named_is_refused() {
        let policy = Policy {
            allow: vec![
                Allowed {
                    key: KEY.to_owned(),
                    host_keys: list(&[HOST]),
                    users: list(&["git"]),
                    ..Allowed::default()
                },
                Allowed { key: OTHER.to_owned(), namespaces: list(&["git"]), ..Allowed::default() },
            ],
            ..Policy::default()
        };
        let policy = policy.checked().unwrap();
        let (key, other) = (fingerprint(KEY).unwrap(), fingerprint(OTHER).unwrap());
        let host = host_key(HOST).unwrap().to_string();
        let login = |host_key: &str, user: &str| Purpose::Login {
            host_key: host_key.to_owned(),
            user: user.to_owned(),
        };
        let message = |namespace: &str| Purpose::Message { namespace: namespace.to_owned() };
        assert!(policy.permits(key, &login(&host, "git")).is_ok());
        assert!(policy.permits(other, &message("git")).is_ok());
        for (key, purpose) in [
            (key, login(&host, "root")),
            (key, login(OTHER, "git")),
            (key, message("git")),
            (other, message("file")),
            (other, login(&host, "git")),
        ] {
            assert!(policy.permits(key, &purpose).is_err(), "{purpose:?}");
        }
        assert!(!policy.has_key(host_key(HOST).unwrap()));
    }
}
