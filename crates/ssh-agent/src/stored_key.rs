//! A private key in memory, from a file or the vault. It is erased when it is dropped.

use getrandom::SysRng;
use sha2::{Sha256, Sha512};
use signature::Signer as _;
use ssh_key::private::{KeypairData, RsaKeypair};
use ssh_key::{Algorithm, HashAlg, PrivateKey, Signature};

use crate::error::Error;
use crate::signer::{SignError, Signer};
use crate::wire;

/// The sizes of the keys of RSA that are used, in bits: smaller ones are weak, and a larger one
/// would keep a processor busy.
const RSA_BITS: std::ops::RangeInclusive<u32> = 2048..=8192;

/// A private key in memory.
#[derive(Debug)]
pub struct StoredKey {
    key: Key,
    public: Vec<u8>,
}

/// The key, for the library that signs with it.
#[derive(Debug)]
enum Key {
    /// One of ed25519 or ecdsa.
    Curve(Box<PrivateKey>),
    Rsa(Box<rsa::PrivateKey>),
}

impl StoredKey {
    /// Reads a private key in the format of OpenSSH.
    ///
    /// # Errors
    /// [`Error::PrivateKey`], without a part of the text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = Error::PrivateKey;
        let key = PrivateKey::from_openssh(text.trim())
            .map_err(|_| wrong("it is not in the format of OpenSSH"))?;
        if key.is_encrypted() {
            return Err(wrong("it has a passphrase: `ssh-keygen -p` removes it"));
        }
        let public = key.public_key().to_bytes().map_err(|_| wrong("it has no public key"))?;
        let key = match (key.key_data(), key.algorithm()) {
            (KeypairData::Rsa(pair), _) => Key::Rsa(Box::new(rsa_key(pair)?)),
            (_, Algorithm::Ed25519 | Algorithm::Ecdsa { .. }) => Key::Curve(Box::new(key)),
            _ => return Err(wrong("its type is neither ed25519, ecdsa nor rsa")),
        };
        Ok(Self { key, public })
    }
}

fn rsa_key(pair: &RsaKeypair) -> Result<rsa::PrivateKey, Error> {
    if !RSA_BITS.contains(&pair.key_size()) {
        return Err(Error::PrivateKey("a key of rsa must have 2048 to 8192 bits"));
    }
    rsa::PrivateKey::try_from(pair).map_err(|_| Error::PrivateKey("its numbers do not fit"))
}

impl Signer for StoredKey {
    fn keys(&self) -> Result<Vec<Vec<u8>>, SignError> {
        Ok(vec![self.public.clone()])
    }

    fn sign(&self, key: &[u8], data: &[u8], flags: u32) -> Result<Vec<u8>, SignError> {
        if key != self.public {
            return Err(SignError("there is no such key".to_owned()));
        }
        let made = match &self.key {
            Key::Curve(key) => key.try_sign(data).ok(),
            Key::Rsa(key) => sign_with_rsa(key, data, flags),
        };
        let unable = || SignError("the key cannot sign".to_owned());
        Vec::try_from(made.ok_or_else(unable)?).map_err(|_| unable())
    }
}

/// A signature with RSA. It is blinded with random numbers, so that its duration tells nothing about the key.
fn sign_with_rsa(key: &rsa::PrivateKey, data: &[u8], flags: u32) -> Option<Signature> {
    let random = &mut SysRng;
    let (hash, made) = match flags {
        wire::RSA_SHA2_256 => {
            (HashAlg::Sha256, key.pkcs1v15_sign_with_rng::<Sha256, _>(random, data))
        }
        wire::RSA_SHA2_512 => {
            (HashAlg::Sha512, key.pkcs1v15_sign_with_rng::<Sha512, _>(random, data))
        }
        _ => return None,
    };
    Signature::new(Algorithm::Rsa { hash: Some(hash) }, made.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use getrandom::rand_core::UnwrapErr;
    use signature::Verifier as _;
    use ssh_key::LineEnding;

    use super::*;

    fn generated(bits: usize) -> PrivateKey {
        let pair = RsaKeypair::random(&mut UnwrapErr(SysRng), bits).unwrap();
        PrivateKey::new(KeypairData::Rsa(pair), "a@b").unwrap()
    }

    #[test]
    fn a_key_of_rsa_signs_with_sha2_and_never_with_sha1() {
        let key = generated(2048);
        let stored = StoredKey::parse(&key.to_openssh(LineEnding::LF).unwrap()).unwrap();
        let public = key.public_key().to_bytes().unwrap();
        for (flags, name) in [(2, "rsa-sha2-256"), (4, "rsa-sha2-512")] {
            let made = stored.sign(&public, b"data", flags).unwrap();
            let made = Signature::try_from(made.as_slice()).unwrap();
            assert_eq!(made.algorithm().as_str(), name);
            assert!(key.public_key().key_data().verify(b"data", &made).is_ok());
            assert!(key.public_key().key_data().verify(b"other", &made).is_err());
        }
        for flags in [0, 1, 3, 6, 8] {
            assert!(stored.sign(&public, b"data", flags).is_err(), "{flags}");
        }
        assert!(stored.sign(b"other", b"data", 2).is_err());
    }

    #[test]
    fn a_small_key_of_rsa_is_refused() {
        let text = generated(1024).to_openssh(LineEnding::LF).unwrap();
        assert!(matches!(StoredKey::parse(&text), Err(Error::PrivateKey(_))));
    }
}
