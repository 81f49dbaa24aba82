//! The key under which secrets are sealed at rest: 32 random bytes, written as base64 or as
//! hexadecimal digits.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::error::Error;

/// The bytes of a key.
const BYTES: usize = 32;

/// The key of a vault.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; BYTES]>);

impl MasterKey {
    /// A key of these bytes.
    pub const fn new(bytes: Zeroizing<[u8; BYTES]>) -> Self {
        Self(bytes)
    }

    /// Reads a key as its owner writes it, with white space around it.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let bytes = if text.len() == BYTES * 2 {
            let digits = text.as_bytes().chunks(2).map(|pair| {
                std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
            });
            digits.collect::<Option<Vec<u8>>>().map(Zeroizing::new)
        } else {
            STANDARD.decode(text).ok().map(Zeroizing::new)
        };
        let bytes = bytes.ok_or(Error::Key("it is neither base64 nor hexadecimal digits"))?;
        let bytes = <[u8; BYTES]>::try_from(bytes.as_slice());
        bytes
            .map(|bytes| Self(Zeroizing::new(bytes)))
            .map_err(|_| Error::Key("it has not 32 bytes"))
    }

    /// As text, for a file.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.0.as_slice()))
    }

    /// An id of the key, which reveals nothing of it.
    pub fn id(&self) -> String {
        let id = blake3::derive_key("stockade 2026-11 id of the key of a vault", self.0.as_slice());
        id[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A key for one purpose.
    pub(crate) fn derived(&self, purpose: &str) -> Zeroizing<[u8; BYTES]> {
        Zeroizing::new(blake3::derive_key(purpose, self.0.as_slice()))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_two_spellings() {
        let bytes = [7_u8; 32];
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let one = MasterKey::parse(&format!(" {digits}\n")).unwrap();
        let other = MasterKey::parse(&one.to_text()).unwrap();
        assert_eq!(one.id(), other.id());
        for bad in ["", "short", "AAAA", &"g".repeat(64), &"a".repeat(63)] {
            assert!(MasterKey::parse(bad).is_err(), "{bad}");
        }
    }
}
