//! One connection of a program inside: each message gets one answer. What is not listed here is refused:
//! keys are neither added nor removed, and the agent of the caller is not locked.

use std::sync::Arc;

use signature::Verifier as _;
use ssh_key::public::KeyData;
use ssh_key::{Fingerprint, HashAlg, PublicKey, Signature};

use crate::policy::Checked;
use crate::purpose::{self, Content, Login, Purpose};
use crate::record::{Decision, Record, Records};
use crate::signer::Signer;
use crate::wire::{self, Reader, put};

/// The extension by which a client says at which host it logs in (OpenSSH, PROTOCOL.agent).
const SESSION_BIND: &str = "session-bind@openssh.com";
/// The comment of each key: the caller's own may say something about the caller.
const COMMENT: &[u8] = b"stockade";

/// What all connections have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) policy: Checked,
    pub(crate) signer: Box<dyn Signer>,
    pub(crate) records: Records,
}

/// The session of ssh that a connection is for.
#[derive(Debug)]
struct Bound {
    session: Vec<u8>,
    host_key: Fingerprint,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Session {
    shared: Arc<Shared>,
    bound: Option<Bound>,
    /// It was to be used for another host: nothing more is signed.
    is_forwarded: bool,
}

impl Session {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared, bound: None, is_forwarded: false }
    }

    /// The answer to a message.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Vec<u8> {
        let mut reader = Reader(message);
        let number = reader.byte().unwrap_or_default();
        match number {
            wire::REQUEST_IDENTITIES => self.identities(reader),
            wire::SIGN_REQUEST => self.sign(reader),
            wire::EXTENSION => self.extension(reader),
            _ => {
                self.refuse(wire::name(number), None, "only listing keys and signing is permitted");
                vec![wire::FAILURE]
            }
        }
    }

    fn refuse(&self, request: &str, key: Option<Fingerprint>, reason: &'static str) {
        self.record(request, key, Decision::Refused(reason));
    }

    fn record(&self, request: &str, key: Option<Fingerprint>, decision: Decision) {
        let key = key.map(|key| key.to_string());
        self.shared.records.add(Record { request: request.to_owned(), key, decision });
    }

    /// The keys that the policy names.
    fn identities(&self, reader: Reader<'_>) -> Vec<u8> {
        let what = wire::name(wire::REQUEST_IDENTITIES);
        if reader.end().is_none() {
            self.refuse(what, None, "the message is malformed");
            return vec![wire::FAILURE];
        }
        let keys = match self.shared.signer.keys() {
            Ok(keys) => keys,
            Err(error) => {
                self.record(what, None, Decision::Failed(error.to_string()));
                return vec![wire::FAILURE];
            }
        };
        let is_named = |key: &&Vec<u8>| {
            fingerprint(key).is_some_and(|(own, _)| self.shared.policy.has_key(own))
        };
        let keys: Vec<_> = keys.iter().filter(is_named).collect();
        let mut answer = vec![wire::IDENTITIES_ANSWER];
        let count = u32::try_from(keys.len()).unwrap_or_default();
        answer.extend_from_slice(&count.to_be_bytes());
        for key in keys {
            put(&mut answer, key);
            put(&mut answer, COMMENT);
        }
        answer
    }

    fn sign(&self, mut reader: Reader<'_>) -> Vec<u8> {
        let what = wire::name(wire::SIGN_REQUEST);
        let parts = (reader.string(), reader.string(), reader.number(), reader.end());
        let (Some(key), Some(data), Some(flags), Some(())) = parts else {
            self.refuse(what, None, "the message is malformed");
            return vec![wire::FAILURE];
        };
        let Some((own, algorithm)) = fingerprint(key) else {
            self.refuse(what, None, "the key is malformed");
            return vec![wire::FAILURE];
        };
        let (request, purpose) = match self.purpose(key, data) {
            Ok(purpose) => (purpose.line(), purpose),
            Err(reason) => {
                self.refuse(what, Some(own), reason);
                return vec![wire::FAILURE];
            }
        };
        let permitted =
            self.shared.policy.permits(own, &purpose).and_then(|()| check_flags(algorithm, flags));
        if let Err(reason) = permitted {
            self.refuse(&request, Some(own), reason);
            return vec![wire::FAILURE];
        }
        match self.shared.signer.sign(key, data, flags) {
            Ok(signature) => {
                self.record(&request, Some(own), Decision::Signed);
                let mut answer = vec![wire::SIGN_RESPONSE];
                put(&mut answer, &signature);
                answer
            }
            Err(error) => {
                self.record(&request, Some(own), Decision::Failed(error.to_string()));
                vec![wire::FAILURE]
            }
        }
    }

    /// What a signature would be for.
    fn purpose(&self, key: &[u8], data: &[u8]) -> Result<Purpose, &'static str> {
        let login = match purpose::read(data)? {
            Content::Message { namespace } => {
                return Ok(Purpose::Message { namespace: namespace.to_owned() });
            }
            Content::Login(login) => login,
        };
        let Login { session, user, key: named, host_key } = login;
        if self.is_forwarded {
            return Err("the connection was forwarded to another host");
        }
        let Some(bound) = &self.bound else {
            return Err(
                "the host is unknown: the client did not bind the session, as OpenSSH 8.9 does",
            );
        };
        if named != key {
            return Err("the login is with another key");
        }
        if session != bound.session {
            return Err("the login is in another session");
        }
        if let Some(host_key) = host_key
            && fingerprint(host_key).map(|(own, _)| own) != Some(bound.host_key)
        {
            return Err("the login is at another host");
        }
        Ok(Purpose::Login { host_key: bound.host_key.to_string(), user: user.to_owned() })
    }

    fn extension(&mut self, mut reader: Reader<'_>) -> Vec<u8> {
        let what = wire::name(wire::EXTENSION);
        if reader.text() != Some(SESSION_BIND) {
            self.refuse(what, None, "only the binding of sessions is permitted");
            return vec![wire::EXTENSION_FAILURE];
        }
        match self.bind(reader) {
            Ok(()) => vec![wire::SUCCESS],
            Err(reason) => {
                // What follows could be for any host.
                self.is_forwarded = true;
                self.refuse("bind a session", None, reason);
                vec![wire::EXTENSION_FAILURE]
            }
        }
    }

    /// Binds the connection to a session: the host has signed its id.
    fn bind(&mut self, mut reader: Reader<'_>) -> Result<(), &'static str> {
        let parts = (reader.string(), reader.string(), reader.string(), reader.boolean());
        let (Some(host_key), Some(session), Some(signature), Some(is_forwarding)) = parts else {
            return Err("the message is malformed");
        };
        reader.end().ok_or("the message is malformed")?;
        if is_forwarding {
            return Err("an agent is not forwarded to another host");
        }
        if self.bound.is_some() || self.is_forwarded {
            return Err("the connection was bound before");
        }
        let key =
            PublicKey::from_bytes(host_key).map_err(|_| "the key of the host is malformed")?;
        let signature =
            Signature::try_from(signature).map_err(|_| "the signature of the host is malformed")?;
        key.key_data()
            .verify(session, &signature)
            .map_err(|_| "the host has not signed the session")?;
        let host_key = key.fingerprint(HashAlg::Sha256);
        self.bound = Some(Bound { session: session.to_vec(), host_key });
        Ok(())
    }
}

/// Whether a key is of RSA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Rsa,
    Other,
}

fn fingerprint(key: &[u8]) -> Option<(Fingerprint, Algorithm)> {
    let key = PublicKey::from_bytes(key).ok()?;
    let algorithm = match key.key_data() {
        KeyData::Rsa(_) => Algorithm::Rsa,
        // A certificate is another key, with powers that no fingerprint names.
        KeyData::Certificate(_) => return None,
        _ => Algorithm::Other,
    };
    Some((key.fingerprint(HashAlg::Sha256), algorithm))
}

fn check_flags(algorithm: Algorithm, flags: u32) -> Result<(), &'static str> {
    match algorithm {
        Algorithm::Rsa if wire::RSA_FLAGS.contains(&flags) => Ok(()),
        Algorithm::Rsa => Err("signatures with SHA-1 are not made"),
        Algorithm::Other if flags == 0 || wire::RSA_FLAGS.contains(&flags) => Ok(()),
        Algorithm::Other => Err("the flags are unknown"),
    }
}

#[cfg(test)]
mod tests;
