//! One form of a value, and the search for it. A form in base64 that begins or ends in the middle of a
//! character has edges there, whose bits are compared too: only a whole value is found.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use zeroize::Zeroizing;

/// Values with fewer bytes have no form in base64 that is certain.
const LEAST_BYTES: usize = 6;

/// One form of a value.
pub(super) struct Pattern {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// Its replacement in a head.
    pub(super) instead: Vec<u8>,
    hash: u64,
    before: Option<Edge>,
    after: Option<Edge>,
}

/// The bits of a neighboring base64 character that belong to the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edge {
    mask: u8,
    bits: u8,
}

impl Edge {
    fn is_of(self, character: Option<&u8>) -> bool {
        let digit = character.and_then(|character| digit(*character));
        digit.is_some_and(|digit| digit & self.mask == self.bits)
    }
}

/// The value of a base64 character, in either alphabet.
const fn digit(character: u8) -> Option<u8> {
    Some(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

/// The odd base of the rolling hash.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of some bytes.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |hash: u64, byte| hash.wrapping_mul(BASE).wrapping_add(u64::from(*byte) + 1))
}

impl Pattern {
    /// A form that is these bytes.
    pub(super) fn new(bytes: &[u8], instead: &[u8]) -> Self {
        Self {
            bytes: Zeroizing::new(bytes.to_vec()),
            instead: instead.to_vec(),
            hash: hash(bytes),
            before: None,
            after: None,
        }
    }

    /// The forms of a value in base64 of a text that has it anywhere: each of the three positions in a
    /// group, in both alphabets.
    pub(super) fn in_base64(value: &[u8], instead: &[u8]) -> Vec<Self> {
        if value.len() < LEAST_BYTES {
            return Vec::new();
        }
        let mut all = Vec::new();
        for offset in 0..3_usize {
            // The bytes before and after are zero, so that only bits of the value are set.
            let mut group = Zeroizing::new(vec![0; offset]);
            group.extend_from_slice(value);
            let end = group.len();
            group.resize(end.next_multiple_of(3), 0);
            let text = Zeroizing::new(STANDARD_NO_PAD.encode(group.as_slice()).into_bytes());
            // Whole characters are those whose six bits are all of the value.
            let (first, last) = ((offset * 8).div_ceil(6), end * 8 / 6);
            let edge = |at: usize, mask: u8| {
                let bits = text.get(at).and_then(|character| digit(*character));
                bits.map(|bits| Edge { mask, bits: bits & mask })
            };
            let before = match offset {
                0 => None,
                1 => edge(1, 0b00_1111),
                _ => edge(2, 0b00_0011),
            };
            let after = match end % 3 {
                0 => None,
                1 => edge(last, 0b11_0000),
                _ => edge(last, 0b11_1100),
            };
            let Some(whole) = text.get(first..last) else { continue };
            let in_urls: Zeroizing<Vec<u8>> = Zeroizing::new(
                whole
                    .iter()
                    .map(|character| match character {
                        b'+' => b'-',
                        b'/' => b'_',
                        other => *other,
                    })
                    .collect(),
            );
            let is_other = in_urls.as_slice() != whole;
            all.push(Self { before, after, ..Self::new(whole, instead) });
            if is_other {
                all.push(Self { before, after, ..Self::new(&in_urls, instead) });
            }
        }
        all
    }

    /// How many bytes of a text it covers.
    pub(super) fn length(&self) -> usize {
        let edges = [self.before, self.after];
        self.bytes.len() + edges.into_iter().flatten().count()
    }

    /// Whether it is the same form of the same value.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.bytes == other.bytes && (self.before, self.after) == (other.before, other.after)
    }

    /// The place of an occurrence of its bytes, if the bits at its edges are its own.
    fn at(&self, bytes: &[u8], start: usize) -> Option<(usize, usize)> {
        let end = start + self.bytes.len();
        let before = self
            .before
            .map(|edge| start.checked_sub(1).is_some_and(|at| edge.is_of(bytes.get(at))));
        let after = self.after.map(|edge| edge.is_of(bytes.get(end)));
        let is_own = before != Some(false) && after != Some(false);
        is_own.then(|| (start - usize::from(before.is_some()), end + usize::from(after.is_some())))
    }
}

/// Calls `found` with the start and the end of each occurrence of patterns that have equally many
/// bytes.
///
/// The search compares hashes of whole windows, so that its duration does not depend on how
/// long a part of a value the bytes begin with.
pub(super) fn find<'a>(
    patterns: &'a [Pattern],
    bytes: &[u8],
    mut found: impl FnMut(usize, usize, &'a Pattern),
) {
    let length = patterns.first().map_or(0, |pattern| pattern.bytes.len());
    let Some((first, _)) = bytes.split_at_checked(length) else { return };
    // The weight of the byte that leaves the window.
    let leaving = (1..length).fold(1_u64, |weight, _| weight.wrapping_mul(BASE));
    let mut window = hash(first);
    for start in 0..=bytes.len() - length {
        let end = start + length;
        for pattern in patterns {
            if window == pattern.hash
                && bytes.get(start..end) == Some(pattern.bytes.as_slice())
                && let Some((start, end)) = pattern.at(bytes, start)
            {
                found(start, end, pattern);
            }
        }
        if let (Some(old), Some(new)) = (bytes.get(start), bytes.get(end)) {
            window = window
                .wrapping_sub((u64::from(*old) + 1).wrapping_mul(leaving))
                .wrapping_mul(BASE)
                .wrapping_add(u64::from(*new) + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use base64::engine::general_purpose::URL_SAFE;

    use super::*;

    fn found(value: &[u8], text: &[u8]) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        for pattern in Pattern::in_base64(value, b"") {
            find(&[pattern], text, |start, end, _| all.push((start, end)));
        }
        all
    }

    #[test]
    fn a_value_is_found_at_each_place_of_a_text_in_base64() {
        let value = b"s3cr3t-V@lue~?>";
        for before in 0..7 {
            for after in 0..7 {
                for cut in 0..3 {
                    let value = &value[cut..];
                    let text = [&vec![b'x'; before], value, &vec![0xff; after]].concat();
                    for encoded in [STANDARD.encode(&text), URL_SAFE.encode(&text)] {
                        let found = found(value, encoded.as_bytes());
                        assert_eq!(found.len(), 1, "{before} {after} {encoded}");
                        let (start, end) = found[0];
                        // What is left has no whole byte of the value.
                        assert!(start <= (before * 8).div_ceil(6));
                        assert!(end * 6 >= (before + value.len()) * 8);
                    }
                }
            }
        }
    }

    #[test]
    fn another_value_is_not_found_in_base64() {
        let value = b"s3cr3t-value";
        for at in 0..value.len() {
            for bit in 0..8 {
                let mut other = value.to_vec();
                other[at] ^= 1 << bit;
                for before in 0..3 {
                    let text = [&vec![b'x'; before], other.as_slice(), b"xx"].concat();
                    assert!(
                        found(value, STANDARD.encode(text).as_bytes()).is_empty(),
                        "{at} {bit}"
                    );
                }
            }
        }
    }
}
