//! A secret at rest: XChaCha20-Poly1305 under a key that is derived from the vault's, bound to the
//! secret's id, version, owner, name and type. A record that is moved to another row does not open.

use chacha20poly1305::aead::{Aead as _, Generate as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::batch::Label;
use crate::error::Error;
use crate::fields::Fields;
use crate::key::MasterKey;

/// Distinguishes the key for records from every other one.
const PURPOSE: &str = "stockade 2026-11 records of a vault";
/// Distinguishes what is bound to a record.
const DOMAIN: &str = "stockade/secret/rest/v2";
/// The same for records that are not bound to the name.
const DOMAIN_WITHOUT_NAME: &str = "stockade/secret/rest/v1";
/// The first byte of a record.
const VERSION: u8 = 2;
/// That of a record that is not bound to the name.
const VERSION_WITHOUT_NAME: u8 = 1;
/// The bytes of a nonce.
const NONCE: usize = 24;

/// A sealed secret as it is stored: version, nonce and ciphertext.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedRecord(pub Vec<u8>);

impl SealedRecord {
    /// Seals a secret.
    ///
    /// # Errors
    /// [`Error::Seal`].
    pub fn seal(key: &MasterKey, label: &Label, fields: &Fields) -> Result<Self, Error> {
        let nonce = XNonce::generate();
        let json = fields.to_json()?;
        let aad = label.bytes(DOMAIN);
        let sealed = cipher(key).encrypt(&nonce, Payload { msg: &json, aad: &aad });
        let sealed = sealed.map_err(|_| Error::Seal)?;
        Ok(Self([&[VERSION], nonce.as_slice(), &sealed].concat()))
    }

    /// Whether it is bound to the name of its secret. One that is not is sealed again when it is opened.
    pub fn is_bound_to_name(&self) -> bool {
        self.0.first() == Some(&VERSION)
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`Error::Record`] if it was sealed under another key or for another row, or was changed.
    pub fn open(&self, key: &MasterKey, label: &Label) -> Result<Fields, Error> {
        let invalid = || Error::Record(label.secret.clone());
        let (version, rest) = self.0.split_first().ok_or_else(invalid)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE).ok_or_else(invalid)?;
        let aad = match *version {
            VERSION => label.bytes(DOMAIN),
            VERSION_WITHOUT_NAME => label.bytes_without_name(DOMAIN_WITHOUT_NAME),
            _ => return Err(invalid()),
        };
        let nonce = <[u8; NONCE]>::try_from(nonce).map_err(|_| invalid())?;
        let opened = cipher(key).decrypt(&XNonce::from(nonce), Payload { msg: sealed, aad: &aad });
        let json = Zeroizing::new(opened.map_err(|_| invalid())?);
        Fields::from_json(label.kind, &json)
    }
}

fn cipher(key: &MasterKey) -> XChaCha20Poly1305 {
    let key = key.derived(PURPOSE);
    XChaCha20Poly1305::new(&(*key).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use crate::testing::{fields, label};

    #[test]
    fn a_record_opens_for_its_own_row_only() {
        let key = MasterKey::new(Zeroizing::new([1; 32]));
        let (own, value) = (label("a", "u1"), fields("canary-7f3a"));
        let sealed = SealedRecord::seal(&key, &own, &value).unwrap();
        assert!(!String::from_utf8_lossy(&sealed.0).contains("canary"));
        let opened = sealed.open(&key, &own).unwrap();
        assert_eq!(opened.get(None).unwrap().as_str(), "canary-7f3a");
        assert_ne!(SealedRecord::seal(&key, &own, &value).unwrap(), sealed, "another nonce");

        let other_key = MasterKey::new(Zeroizing::new([2; 32]));
        assert!(sealed.open(&other_key, &own).is_err());
        for other in [
            label("b", "u1"),
            label("a", "u2"),
            Label { version: 2, ..label("a", "u1") },
            Label { kind: Kind::OpenAi, ..label("a", "u1") },
            Label { name: "other".to_owned(), ..label("a", "u1") },
        ] {
            assert!(sealed.open(&key, &other).is_err(), "{other:?}");
        }
        for at in 0..sealed.0.len() {
            let mut changed = sealed.clone();
            changed.0[at] ^= 1;
            assert!(changed.open(&key, &own).is_err(), "byte {at}");
        }
        for length in 0..sealed.0.len() {
            let short = SealedRecord(sealed.0[..length].to_vec());
            assert!(short.open(&key, &own).is_err(), "length {length}");
        }
    }

    #[test]
    fn a_record_of_the_first_form_opens_and_is_not_bound_to_the_name() {
        let key = MasterKey::new(Zeroizing::new([1; 32]));
        let own = label("a", "u1");
        let (nonce, json) = (XNonce::generate(), fields("canary-7f3a").to_json().unwrap());
        let aad = own.bytes_without_name(DOMAIN_WITHOUT_NAME);
        let sealed = cipher(&key).encrypt(&nonce, Payload { msg: &json, aad: &aad }).unwrap();
        let first = SealedRecord([&[VERSION_WITHOUT_NAME], nonce.as_slice(), &sealed].concat());
        let opened = first.open(&key, &own).unwrap();
        assert_eq!(opened.get(None).unwrap().as_str(), "canary-7f3a");
        assert!(!first.is_bound_to_name());
        assert!(SealedRecord::seal(&key, &own, &opened).unwrap().is_bound_to_name());
        // The version byte alone does not make it one of the other form.
        let mut changed = first;
        changed.0[0] = VERSION;
        assert!(changed.open(&key, &own).is_err());
    }
}
