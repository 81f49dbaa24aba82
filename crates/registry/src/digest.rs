//! Digests of content: SHA-256 and SHA-512 as OCI writes them.

use sha2::{Digest as _, Sha256, Sha512};

/// A digest with a known algorithm and the right number of digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Digest(String);

impl Digest {
    /// Parses `sha256:HEX` or `sha512:HEX`; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (algorithm, digits) = text.split_once(':')?;
        let length = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => return None,
        };
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (digits.len() == length && digits.bytes().all(is_hex)).then(|| Self(text.to_owned()))
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

    /// A hasher for this digest's algorithm.
    pub(crate) fn hasher(&self) -> Hasher {
        match self.parts().0 {
            "sha512" => Hasher::Sha512(Box::default()),
            _ => Hasher::Sha256(Box::default()),
        }
    }

    /// Whether a content has this digest.
    pub(crate) fn is_of(&self, content: &[u8]) -> bool {
        let mut hasher = self.hasher();
        hasher.update(content);
        hasher.finish() == *self
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hashes a content that arrives in parts.
#[derive(Debug, Clone)]
pub(crate) enum Hasher {
    Sha256(Box<Sha256>),
    Sha512(Box<Sha512>),
}

impl Hasher {
    pub(crate) fn update(&mut self, part: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(part),
            Self::Sha512(hasher) => hasher.update(part),
        }
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(match self {
            Self::Sha256(hasher) => format!("sha256:{}", hex(&hasher.finalize())),
            Self::Sha512(hasher) => format!("sha512:{}", hex(&hasher.finalize())),
        })
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
        let long = format!("sha512:{}", "0".repeat(128));
        assert!(!Digest::parse(&long).unwrap().is_of(b""));
        for bad in ["", "sha256:", "md5:00", "sha256:../../x", &empty.to_uppercase(), &empty[..70]]
        {
            assert_eq!(Digest::parse(bad), None, "{bad}");
        }
    }
}
