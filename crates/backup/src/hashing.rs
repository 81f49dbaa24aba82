//! SHA-256 and the length of what passes through.

use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

/// A reader or writer that hashes what passes.
#[derive(Debug)]
pub(crate) struct Hashing<T> {
    inner: T,
    hash: Sha256,
    bytes: u64,
}

impl<T> Hashing<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, hash: Sha256::new(), bytes: 0 }
    }

    /// The hash in hexadecimal digits, and the length.
    pub(crate) fn finish(self) -> (String, u64) {
        (text(&self.hash.finalize()), self.bytes)
    }

    fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.add(&buffer[..length]);
        Ok(length)
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.inner.write(bytes)?;
        self.add(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The hash of bytes in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    text(&Sha256::digest(bytes))
}

fn text(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
