//! The key of the host of a workspace: it must be the one that Codeplane names, or one in the file of known
//! hosts. Any other key is refused, and so is a host of which nothing is known.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use russh::client::Handler;
use russh::keys::known_hosts::known_host_keys_path;
use russh::keys::{HashAlg, PublicKey};

use crate::address::KNOWN_HOSTS;

/// Why a key was refused, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

/// Which keys a host may have.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The key that the service names.
    pub(crate) named: Option<String>,
    pub(crate) known_hosts: Option<PathBuf>,
}

impl Expected {
    /// Whether a host with this key is the right one.
    pub(crate) fn check(&self, key: &PublicKey) -> Result<(), Refusal> {
        let shown = key.fingerprint(HashAlg::Sha256);
        let host = &self.host;
        if let Some(named) = &self.named {
            let is_same = PublicKey::from_openssh(named)
                .is_ok_and(|named| named.key_data() == key.key_data());
            return if is_same {
                Ok(())
            } else {
                let reason = format!("{host} has the key {shown}, and Codeplane names another one");
                let remedy =
                    "compare the key with the operator of Codeplane: another host may answer \
                              in its place"
                        .to_owned();
                Err(Refusal { reason, remedy })
            };
        }
        let port = self.port;
        let Some(file) = &self.known_hosts else {
            let reason = format!(
                "Codeplane names no key of {host}, and {KNOWN_HOSTS} names no file with it"
            );
            let scan = format!("ssh-keyscan -p {port} {host} > /etc/stockade-known-hosts");
            let remedy =
                format!("{scan}; compare the keys; export {KNOWN_HOSTS}=/etc/stockade-known-hosts");
            return Err(Refusal { reason, remedy });
        };
        let shown_file = file.display();
        let remedy = format!(
            "compare {shown} with the key that Codeplane publishes, then change {shown_file}"
        );
        // The library takes a file that cannot be read for an empty one.
        let known = std::fs::metadata(file)
            .map_err(|error| error.to_string())
            .and_then(|_| known_host_keys_path(host, port, file).map_err(|e| e.to_string()));
        let known = known.map_err(|error| Refusal {
            reason: format!("{shown_file} cannot be used: {error}"),
            remedy: remedy.clone(),
        })?;
        if known.iter().any(|(_, known)| known.key_data() == key.key_data()) {
            return Ok(());
        }
        let reason = if known.is_empty() {
            format!("{shown_file} has no key of {host}, port {port}")
        } else {
            format!("{host} has the key {shown}, which is none of those in {shown_file}")
        };
        Err(Refusal { reason, remedy })
    }
}

/// Checks the key of a connection, and keeps the reason of a refusal.
#[derive(Debug, Clone)]
pub(crate) struct KeyCheck {
    expected: Expected,
    refusal: Arc<Mutex<Option<Refusal>>>,
}

impl KeyCheck {
    pub(crate) fn new(expected: Expected) -> Self {
        Self { expected, refusal: Arc::default() }
    }

    /// Why the key was refused, if it was.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Handler for KeyCheck {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKey) -> Result<bool, Self::Error> {
        let Err(refusal) = self.expected.check(key) else { return Ok(true) };
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const TWO: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB5ZqEqS0uhJ9nYcWiYSbYlTfQpb1Q2QkHq1p5dG8e8D";

    fn expected(named: Option<&str>, known_hosts: Option<PathBuf>) -> Expected {
        let named = named.map(str::to_owned);
        Expected { host: "vm.example".to_owned(), port: 2222, named, known_hosts }
    }

    #[test]
    fn only_a_known_key_is_accepted() {
        let key = PublicKey::from_openssh(ONE).unwrap();
        assert_eq!(expected(Some(ONE), None).check(&key), Ok(()));
        let other = expected(Some(TWO), None).check(&key).unwrap_err();
        assert!(other.reason.contains("names another one"), "{other:?}");
        assert!(expected(Some("nonsense"), None).check(&key).is_err());
        let none = expected(None, None).check(&key).unwrap_err();
        assert!(none.remedy.contains(KNOWN_HOSTS), "{none:?}");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("known");
        let check = || expected(None, Some(file.clone())).check(&key);
        assert!(check().unwrap_err().reason.contains("cannot be used"));
        for (text, is_known) in [
            (format!("[vm.example]:2222 {ONE}\n"), true),
            (format!("other {TWO}\n[vm.example]:2222 {TWO}\n[vm.example]:2222 {ONE}\n"), true),
            (format!("[vm.example]:2222 {TWO}\n"), false),
            (format!("vm.example {ONE}\n"), false),
            (format!("@revoked [vm.example]:2222 {ONE}\n"), false),
            (String::new(), false),
        ] {
            std::fs::write(&file, &text).unwrap();
            assert_eq!(check().is_ok(), is_known, "{text}");
        }
    }
}
