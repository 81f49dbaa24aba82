//! A content that is read in parts, so that its size does not decide whether it can be compared.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// How much of a file is read at once.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// A content in memory, or in a file that does not change.
#[derive(Debug)]
pub(crate) struct Source {
    bytes: Bytes,
    size: u64,
}

#[derive(Debug)]
enum Bytes {
    Memory(Vec<u8>),
    File(File),
}

impl Source {
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self { size: bytes.len() as u64, bytes: Bytes::Memory(bytes) }
    }

    /// A file with this many bytes.
    pub(crate) fn of_file(file: File, size: u64) -> Self {
        Self { bytes: Bytes::File(file), size }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Appends up to `length` bytes from a position to a buffer; fewer only at the end.
    pub(super) fn read(&self, at: u64, length: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
        match &self.bytes {
            Bytes::Memory(bytes) => {
                let at = usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
                let end = at.saturating_add(length).min(bytes.len());
                buffer.extend_from_slice(&bytes[at..end]);
                Ok(())
            }
            Bytes::File(file) => {
                let left = self.size.saturating_sub(at);
                let length = usize::try_from(left).map_or(length, |left| left.min(length));
                let start = buffer.len();
                buffer.resize(start + length, 0);
                file.read_exact_at(&mut buffer[start..], at)
            }
        }
    }

    /// Calls a function with each part of the content, in order.
    pub(super) fn each(&self, mut part: impl FnMut(&[u8])) -> io::Result<()> {
        if let Bytes::Memory(bytes) = &self.bytes {
            bytes.chunks(CHUNK_BYTES).for_each(part);
            return Ok(());
        }
        let mut buffer = Vec::new();
        let mut at = 0;
        while at < self.size {
            buffer.clear();
            self.read(at, CHUNK_BYTES, &mut buffer)?;
            part(&buffer);
            at += buffer.len() as u64;
        }
        Ok(())
    }
}
