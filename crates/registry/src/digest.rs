//! Digests of content: SHA-256 as OCI writes it. The other registered algorithm, SHA-512, is used by
//! no registry that is known, and the store has none either.

use sha2::{Digest as _, Sha256};

/// A digest of the known algorithm with the right number of digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Digest(String);

impl Digest {
    /// Parses `sha256:HEX`; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (digits.len() == 64 && digits.bytes().all(is_hex)).then(|| Self(text.to_owned()))
    }

    /// The SHA-256 digest of a content.
    pub(crate) fn of(content: &[u8]) -> Self {
        Self(format!("sha256:{}", hex(&Sha256::digest(content))))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The algorithm and the digits.
    pub(crate) fn parts(&self) -> (&str, &str) {
        self.0.split_once(':').unwrap_or_default()
    }

    /// Whether a content has this digest.
    pub(crate) fn is_of(&self, content: &[u8]) -> bool {
        Self::of(content) == *self
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hashes a content that arrives in parts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(format!("sha256:{}", hex(&self.0.finalize())))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_parsed_strictly_and_checked() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").as_str(), empty);
        assert!(Digest::parse(empty).unwrap().is_of(b""));
        assert!(!Digest::parse(empty).unwrap().is_of(b"x"));
        for bad in [
            "",
            "sha256:",
            "md5:00",
            "sha512:00",
            "sha256:../../x",
            &empty.to_uppercase(),
            &empty[..70],
        ] {
            assert_eq!(Digest::parse(bad), None, "{bad}");
        }
    }
}
