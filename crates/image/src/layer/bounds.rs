//! Limits on what is read from a layer, whatever its compression makes of it.

use std::cell::Cell;
use std::io::{self, Read};

use crate::limits::Limits;

/// The most bytes per entry that an archive may hold besides contents: headers and padding.
const ENTRY_OVERHEAD_BYTES: u64 = 8 << 10;
/// How much content a blob of any size may have, whatever its ratio.
const FREE_BYTES: u64 = 1 << 30;

/// Counts what is read.
#[derive(Debug)]
pub(crate) struct Counted<'a, R> {
    pub(crate) inner: R,
    pub(crate) read: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.set(self.read.get().saturating_add(read as u64));
        Ok(read)
    }
}

/// A limit that was exceeded: its name and value.
pub(crate) type Exceeded = Option<(&'static str, u64)>;

/// Ends with an error beyond the limits.
pub(crate) struct Bounded<'a, R> {
    inner: R,
    read: u64,
    compressed: &'a Cell<u64>,
    exceeded: &'a Cell<Exceeded>,
    most: u64,
    ratio: u64,
}

impl<'a, R> Bounded<'a, R> {
    pub(crate) fn new(
        inner: R,
        compressed: &'a Cell<u64>,
        exceeded: &'a Cell<Exceeded>,
        limits: &Limits,
    ) -> Self {
        let overhead = limits.layer_entries.saturating_mul(ENTRY_OVERHEAD_BYTES);
        let most = limits.layer_bytes.saturating_add(overhead);
        Self { inner, read: 0, compressed, exceeded, most, ratio: limits.ratio }
    }
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read = self.read.saturating_add(read as u64);
        let by_ratio = self.compressed.get().saturating_mul(self.ratio);
        let exceeded = if self.read > self.most {
            Some(("bytes", self.most))
        } else if self.read > FREE_BYTES.min(self.most).max(by_ratio) {
            Some(("ratio", self.ratio))
        } else {
            None
        };
        if exceeded.is_some() {
            self.exceeded.set(exceeded);
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(read)
    }
}
