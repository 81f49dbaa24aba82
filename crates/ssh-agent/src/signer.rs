//! Who signs: the caller's own agent, or several signers. What arrives here was permitted.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::wire::{self, Reader, put};

/// How long the caller's agent may take: it may ask its user.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Why something was not signed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SignError(pub String);

/// Has private keys.
pub trait Signer: Send + Sync + std::fmt::Debug {
    /// The public keys, in the form of ssh.
    ///
    /// # Errors
    /// Why they cannot be listed.
    fn keys(&self) -> Result<Vec<Vec<u8>>, SignError>;

    /// The signature of a key, in the form of ssh.
    ///
    /// # Errors
    /// Why it is not made.
    fn sign(&self, key: &[u8], data: &[u8], flags: u32) -> Result<Vec<u8>, SignError>;
}

/// The agent of the caller, at its socket.
#[derive(Debug, Clone)]
pub struct CallersAgent {
    path: PathBuf,
}

impl CallersAgent {
    /// The agent at a socket, which must answer.
    ///
    /// # Errors
    /// [`Error::CallersAgent`].
    pub fn new(path: PathBuf) -> Result<Self, Error> {
        let agent = Self { path };
        agent.ask(&[wire::REQUEST_IDENTITIES]).map_err(|source| Error::CallersAgent {
            path: agent.path.display().to_string(),
            source,
        })?;
        Ok(agent)
    }

    fn ask(&self, message: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(&wire::framed(message))?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > wire::MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }
}

impl Signer for CallersAgent {
    fn keys(&self) -> Result<Vec<Vec<u8>>, SignError> {
        let answer = self.ask(&[wire::REQUEST_IDENTITIES]).map_err(failed)?;
        wire::identities(&answer).ok_or_else(|| SignError("the agent's list is malformed".into()))
    }

    fn sign(&self, key: &[u8], data: &[u8], flags: u32) -> Result<Vec<u8>, SignError> {
        let mut message = vec![wire::SIGN_REQUEST];
        put(&mut message, key);
        put(&mut message, data);
        message.extend_from_slice(&flags.to_be_bytes());
        let answer = self.ask(&message).map_err(failed)?;
        let mut reader = Reader(&answer);
        let signature = match reader.byte() {
            Some(wire::SIGN_RESPONSE) => reader.string(),
            _ => None,
        };
        let refused = || SignError("the caller's agent refused to sign".to_owned());
        signature.filter(|_| reader.end().is_some()).map(<[u8]>::to_vec).ok_or_else(refused)
    }
}

fn failed(error: io::Error) -> SignError {
    SignError(format!("the caller's agent does not answer: {error}"))
}

/// Several signers: the first one that has a key uses it.
#[derive(Debug, Default)]
pub struct Signers(pub Vec<Box<dyn Signer>>);

impl Signer for Signers {
    fn keys(&self) -> Result<Vec<Vec<u8>>, SignError> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for signer in &self.0 {
            for key in signer.keys()? {
                if !all.contains(&key) {
                    all.push(key);
                }
            }
        }
        Ok(all)
    }

    fn sign(&self, key: &[u8], data: &[u8], flags: u32) -> Result<Vec<u8>, SignError> {
        for signer in &self.0 {
            if signer.keys()?.iter().any(|own| own == key) {
                return signer.sign(key, data, flags);
            }
        }
        Err(SignError("there is no such key".to_owned()))
    }
}
