//! What a request with values is recognized by when it is repeated. It is computed with a key of the
//! vault, so that nobody who reads it can try values.

use zeroize::Zeroizing;

use crate::joined;
use crate::key::MasterKey;

/// Distinguishes the key for fingerprints from every other one.
const PURPOSE: &str = "stockade 2026-11 fingerprints of requests to a vault";

/// The fingerprint of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// That of a request with values, in parts.
    pub fn of<'a>(
        key: &MasterKey,
        operation: &'a str,
        parts: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let parts = Zeroizing::new(joined(operation, parts.into_iter().map(str::as_bytes)));
        Self(*blake3::keyed_hash(&key.derived(PURPOSE), &parts).as_bytes())
    }

    /// Its bytes, as they are stored.
    pub const fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_of_one_request_under_one_key() {
        let key = |byte| MasterKey::new(Zeroizing::new([byte; 32]));
        let own = Fingerprint::of(&key(1), "create_secret", ["a", "bc"]);
        assert_eq!(own, Fingerprint::of(&key(1), "create_secret", ["a", "bc"]));
        for other in [
            Fingerprint::of(&key(2), "create_secret", ["a", "bc"]),
            Fingerprint::of(&key(1), "rotate_secret", ["a", "bc"]),
            Fingerprint::of(&key(1), "create_secret", ["ab", "c"]),
            Fingerprint::of(&key(1), "create_secret", ["a", "bc", ""]),
        ] {
            assert_ne!(own, other);
        }
    }
}
