//! The envelope of FireFlow's predecessor, for import only: ECDH on P-256 with uncompressed points,
//! HKDF-SHA256 with the nonce as salt and no info, AES-256-GCM without associated data. It is bound to
//! nothing, so nothing is sealed in this form.

use aes_gcm::aead::{Aead as _, KeyInit as _};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hkdf::Hkdf;
use p256::{PublicKey, SecretKey};
use serde::Deserialize;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::error::{Error, Part};
use crate::fields::Fields;
use crate::kind::Kind;

/// The bytes of an uncompressed point.
const POINT: usize = 65;
const NONCE: usize = 32;
const IV: usize = 12;
const TAG: usize = 16;

/// A sealed secret in the form of the predecessor.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PredecessorEnvelope {
    /// Initialization vector, ciphertext and tag, as base64.
    pub encrypted: String,
    /// The salt, as base64.
    pub hkdf_nonce: String,
    /// The public key of the sender, as base64.
    pub public_key: String,
}

/// The private key of the recipient.
pub struct PredecessorKey(SecretKey);

impl std::fmt::Debug for PredecessorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PredecessorKey")
    }
}

impl PredecessorKey {
    /// Reads the scalar `d` of a JSON Web Key: base64url without padding.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| Error::Key("it is not base64url"))?;
        SecretKey::from_slice(&bytes)
            .map(Self)
            .map_err(|_| Error::Key("it is no scalar of the curve P-256"))
    }
}

impl PredecessorEnvelope {
    /// Reads an envelope from JSON.
    ///
    /// # Errors
    /// [`Error::Envelope`]; the text has nothing of the content.
    pub fn parse(json: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(json).map_err(|_| Error::Envelope {
            part: Part::Members,
            why: "they are not exactly `encrypted`, `hkdfNonce` and `publicKey`",
        })
    }

    /// Opens a secret of some type.
    ///
    /// # Errors
    /// [`Error::Envelope`] for an invalid form, [`Error::Key`] for an invalid point,
    /// [`Error::Open`] if it was sealed for another key, or was changed.
    pub fn open(&self, key: &PredecessorKey, kind: Kind) -> Result<Fields, Error> {
        Fields::from_json(kind, &self.decrypt(key)?)
    }

    fn decrypt(&self, key: &PredecessorKey) -> Result<Zeroizing<Vec<u8>>, Error> {
        let decoded = |part, text: &str| {
            STANDARD.decode(text).map_err(|_| Error::Envelope { part, why: "it is not base64" })
        };
        let encrypted = decoded(Part::Encrypted, &self.encrypted)?;
        let salt = decoded(Part::Nonce, &self.hkdf_nonce)?;
        let point = decoded(Part::PublicKey, &self.public_key)?;
        if salt.len() != NONCE {
            return Err(Error::Envelope { part: Part::Nonce, why: "it has not 32 bytes" });
        }
        if encrypted.len() < IV + TAG {
            return Err(Error::Envelope {
                part: Part::Encrypted,
                why: "it has less than 28 bytes",
            });
        }
        // A compressed point would be valid for the library; the predecessor never sends one.
        if point.len() != POINT || point.first() != Some(&4) {
            return Err(Error::Key("it is not an uncompressed point of 65 bytes"));
        }
        let point = PublicKey::from_sec1_bytes(&point)
            .map_err(|_| Error::Key("it is no point of the curve P-256"))?;
        let shared = key.0.diffie_hellman(&point);
        let mut derived = Zeroizing::new([0_u8; 32]);
        Hkdf::<Sha256>::new(Some(&salt), shared.raw_secret_bytes())
            .expand(&[], derived.as_mut_slice())
            .map_err(|_| Error::Open)?;
        let (iv, sealed) = encrypted.split_at(IV);
        let iv = <[u8; IV]>::try_from(iv).map_err(|_| Error::Open)?;
        let cipher = Aes256Gcm::new(&(*derived).into());
        let opened = cipher.decrypt(&Nonce::from(iv), sealed);
        opened.map(Zeroizing::new).map_err(|_| Error::Open)
    }
}
