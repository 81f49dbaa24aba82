//! The digest of a part of an image. Only SHA-256 is accepted, the algorithm that every registry
//! and every tool uses.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The name of the algorithm in a digest.
const PREFIX: &str = "sha256:";
/// The length of the hexadecimal part.
const HEX_LENGTH: usize = 64;

/// A SHA-256 digest; its text is `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a digest of the form sha256:<64 lower-case hexadecimal digits>", .0.escape_debug())]
pub struct InvalidDigest(String);

impl Digest {
    /// The digest of a text.
    pub fn of(content: &[u8]) -> Self {
        let mut writer = Sha256Stream::new(io::sink());
        writer.update(content);
        writer.finish().0
    }

    /// The digest of what can be read, and how many bytes that are.
    ///
    /// # Errors
    /// The error of the reader.
    pub fn of_reader(mut content: impl Read) -> io::Result<(Self, u64)> {
        let mut writer = Sha256Stream::new(io::sink());
        io::copy(&mut content, &mut writer)?;
        Ok(writer.finish())
    }

    /// The hexadecimal digits.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let hex = text.strip_prefix(PREFIX).filter(|hex| {
            hex.len() == HEX_LENGTH
                && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        hex.map(|hex| Self(hex.to_owned())).ok_or_else(|| InvalidDigest(text.to_owned()))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Passes on what is written or read, and computes its digest and length.
#[derive(Debug)]
pub struct Sha256Stream<W> {
    to: W,
    hash: Sha256,
    length: u64,
}

impl<W> Sha256Stream<W> {
    /// Writes to `to`, or reads from it.
    pub fn new(to: W) -> Self {
        Self { to, hash: Sha256::new(), length: 0 }
    }

    /// How many bytes have passed.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// The digest and the length of what was written.
    pub fn finish(self) -> (Digest, u64) {
        let (_, digest, length) = self.into_parts();
        (digest, length)
    }

    /// What was written to, and the digest and the length.
    pub fn into_parts(self) -> (W, Digest, u64) {
        let hex = self.hash.finalize().iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = fmt::Write::write_fmt(&mut hex, format_args!("{byte:02x}"));
            hex
        });
        (self.to, Digest(hex), self.length)
    }

    fn update(&mut self, content: &[u8]) {
        self.hash.update(content);
        self.length = self.length.saturating_add(content.len() as u64);
    }
}

impl<W: Write> Write for Sha256Stream<W> {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        let written = self.to.write(content)?;
        self.update(&content[..written.min(content.len())]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<R: Read> Read for Sha256Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.to.read(buffer)?;
        self.update(&buffer[..read.min(buffer.len())]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_sha256_digest_is_accepted() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse::<Digest>().unwrap(), Digest::of(b""));
        for wrong in [
            "",
            "sha256:",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha256:E3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha256:../../../../../../../../../../../../../../../../../etc/passwd00",
            "sha512:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
