//! Makes new inputs from the seeds of a target: some bytes changed, pieces moved, words of the
//! format put in, numbers made extreme.

use std::ops::Range;

use crate::random::Random;

/// How large an input may grow, in bytes.
const MAX_LENGTH: usize = 1 << 16;

/// Numbers that parsers get wrong.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "127",
    "255",
    "256",
    "511",
    "1023",
    "4096",
    "65535",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "0.1",
];

/// Makes inputs for one target.
#[derive(Debug)]
pub(crate) struct Mutator<'a> {
    random: Random,
    words: &'a [&'a str],
    corpus: &'a [Vec<u8>],
}

impl<'a> Mutator<'a> {
    /// A mutator with the words of the format and its seeds.
    pub(crate) fn new(random: Random, words: &'a [&'a str], corpus: &'a [Vec<u8>]) -> Self {
        Self { random, words, corpus }
    }

    /// The next input: a seed with none to seven changes.
    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        let mut bytes = self.random.choose(self.corpus).cloned().unwrap_or_default();
        for _ in 0..self.random.below(8) {
            self.change(&mut bytes);
            bytes.truncate(MAX_LENGTH);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let range = self.range(bytes);
        match self.random.below(8) {
            0 => {
                if let Some(byte) = bytes.get_mut(range.start) {
                    *byte ^= 1 << self.random.below(8);
                }
            }
            1 => {
                if let Some(byte) = bytes.get_mut(range.start) {
                    *byte = self.random.next().to_le_bytes()[0];
                }
            }
            2 => drop(bytes.drain(range)),
            3 => {
                let piece = bytes[range].to_vec();
                let at = self.random.below(bytes.len() + 1);
                bytes.splice(at..at, piece);
            }
            4 => {
                let word = self.random.choose(self.words).copied().unwrap_or_default();
                bytes.splice(range.start..range.start, word.bytes());
            }
            5 => {
                let word = self.random.choose(self.words).copied().unwrap_or_default();
                bytes.splice(range, word.bytes());
            }
            6 => {
                let other = self.random.choose(self.corpus).cloned().unwrap_or_default();
                let piece = self.range(&other);
                bytes.splice(range, other[piece].iter().copied());
            }
            _ => {
                let number = self.random.choose(NUMBERS).copied().unwrap_or_default();
                if let Some(digits) = digits_from(bytes, range.start) {
                    bytes.splice(digits, number.bytes());
                }
            }
        }
    }

    /// A piece of the bytes, most often a short one.
    fn range(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.random.below(bytes.len() + 1);
        let longest = if self.random.below(4) == 0 { bytes.len() } else { 16 };
        let end = (start + self.random.below(longest + 1)).min(bytes.len());
        start..end
    }
}

/// The first run of digits at or after `from`.
fn digits_from(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let start = from + bytes.get(from..)?.iter().position(u8::is_ascii_digit)?;
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(start..start + length)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn inputs_differ_and_stay_within_bounds() {
        let corpus = [b"a 12 b".to_vec(), Vec::new(), vec![b'x'; MAX_LENGTH]];
        let inputs: BTreeSet<_> = (0..2000)
            .map(|input| Mutator::new(Random::new(7, input), &["word"], &corpus).next_input())
            .inspect(|input| assert!(input.len() <= MAX_LENGTH))
            .collect();
        assert!(inputs.len() > 1000, "{}", inputs.len());
        assert!(inputs.iter().any(|input| input.windows(4).any(|w| w == b"word")));
        assert!(Mutator::new(Random::new(1, 1), &[], &[]).next_input().is_empty());
    }

    #[test]
    fn digits_are_found() {
        assert_eq!(digits_from(b"a 12 b 3", 0), Some(2..4));
        assert_eq!(digits_from(b"a 12 b 3", 4), Some(7..8));
        assert_eq!(digits_from(b"none", 0), None);
        assert_eq!(digits_from(b"", 3), None);
    }
}
