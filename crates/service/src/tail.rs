//! The tail of a stream, within a bound.

use std::collections::VecDeque;

/// The last bytes of a stream.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: VecDeque<u8>,
    limit: usize,
    cut: bool,
}

impl Tail {
    /// A tail of at most this many bytes.
    pub(crate) const fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit, cut: false }
    }

    /// Appends bytes, and drops the oldest if there are too many.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(self.limit)..];
        let excess = (self.bytes.len() + kept.len()).saturating_sub(self.limit);
        self.cut |= excess > 0 || kept.len() < bytes.len();
        self.bytes.drain(..excess.min(self.bytes.len()));
        self.bytes.extend(kept);
    }

    /// Skips lost bytes: earlier bytes do not belong to the tail then.
    pub(crate) fn skip(&mut self, length: u64) {
        if length > 0 {
            self.bytes.clear();
            self.cut = true;
        }
    }

    /// Whether bytes were dropped.
    pub(crate) const fn is_cut(&self) -> bool {
        self.cut
    }

    /// The bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_stay() {
        let mut tail = Tail::new(4);
        tail.push(b"abc");
        assert!(!tail.is_cut());
        tail.push(b"de");
        assert!(tail.is_cut());
        assert_eq!(tail.into_bytes(), b"bcde");
        let mut tail = Tail::new(4);
        tail.push(b"0123456789");
        assert_eq!((tail.is_cut(), tail.into_bytes()), (true, b"6789".to_vec()));
        let mut tail = Tail::new(4);
        tail.push(b"ab");
        tail.skip(7);
        tail.push(b"c");
        assert_eq!((tail.is_cut(), tail.into_bytes()), (true, b"c".to_vec()));
    }
}
