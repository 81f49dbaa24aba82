//! Text that is written as a whole in base64 or in hexadecimal digits. A value in it may be escaped or
//! encoded once more, so that none of its own forms is among the digits.

use super::Decoded;

/// The fewest bytes that are kept: no value is shorter.
const LEAST_BYTES: usize = 12;
/// The fewest digits that are decoded.
const LEAST_DIGITS: usize = 16;

/// A byte that no value has.
const NO_CHARACTER: u8 = 0xff;

/// How a text is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Digits {
    /// In either alphabet.
    Base64,
    Hexadecimal,
}

impl Digits {
    /// Both ways.
    pub(super) const ALL: [Self; 2] = [Self::Base64, Self::Hexadecimal];

    /// How many bits a digit has.
    const fn bits(self) -> usize {
        match self {
            Self::Base64 => 6,
            Self::Hexadecimal => 4,
        }
    }

    /// How many digits there are until one begins with a byte again: what precedes a text on its line
    /// may look like digits.
    pub(super) const fn phases(self) -> usize {
        match self {
            Self::Base64 => 4,
            Self::Hexadecimal => 2,
        }
    }

    const fn value(self, character: u8) -> Option<u8> {
        Some(match (self, character) {
            (Self::Base64, b'A'..=b'Z') => character - b'A',
            (Self::Base64, b'a'..=b'z') => character - b'a' + 26,
            (Self::Base64, b'0'..=b'9') => character - b'0' + 52,
            (Self::Base64, b'+' | b'-') => 62,
            (Self::Base64, b'/' | b'_') => 63,
            (Self::Hexadecimal, b'0'..=b'9') => character - b'0',
            (Self::Hexadecimal, b'a'..=b'f') => character - b'a' + 10,
            (Self::Hexadecimal, b'A'..=b'F') => character - b'A' + 10,
            _ => return None,
        })
    }

    /// The readable parts of all sequences of digits, each of which is decoded from its digit number
    /// `phase`; nothing if there is none.
    pub(super) fn decode(self, text: &[u8], phase: usize) -> Option<Decoded> {
        let mut decoded = Decoded::default();
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let length = rest.iter().take_while(|byte| self.value(**byte).is_some()).count();
            if length >= LEAST_DIGITS {
                self.add(text, at + phase..at + length, &mut decoded);
            }
            at += length + 1;
        }
        (!decoded.bytes.is_empty()).then_some(decoded)
    }

    /// Adds the readable parts of one sequence.
    fn add(self, text: &[u8], place: std::ops::Range<usize>, decoded: &mut Decoded) {
        let start = place.start;
        let (mut bits, mut count, mut number) = (0_u32, 0, 0_usize);
        let mut begin = decoded.bytes.len();
        for digit in text.get(place).unwrap_or_default() {
            bits = bits << self.bits() | u32::from(self.value(*digit).unwrap_or_default());
            count += self.bits();
            if count < 8 {
                continue;
            }
            count -= 8;
            let byte = u8::try_from(bits >> count & 0xff).unwrap_or_default();
            let first_bit = 8 * number;
            number += 1;
            if matches!(byte, 0 | b'\t' | b'\n' | b'\r' | b' '..=b'~') {
                let end = (first_bit + 8).div_ceil(self.bits());
                decoded.push(byte, start + first_bit / self.bits()..start + end);
            } else {
                decoded.end_part(begin);
                begin = decoded.bytes.len();
            }
        }
        decoded.end_part(begin);
    }
}

impl Decoded {
    /// Ends a part that begins with the byte of this number. One that is too short for a value is left
    /// out.
    fn end_part(&mut self, begin: usize) {
        if self.bytes.len() - begin < LEAST_BYTES {
            self.bytes.truncate(begin);
            self.places.truncate(begin);
        } else if let Some(last) = self.places.last().cloned() {
            self.push(NO_CHARACTER, last.end..last.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

    use super::*;

    fn found(text: &str, what: &str) -> Option<std::ops::Range<usize>> {
        let ways = Digits::ALL.iter().flat_map(|own| (0..own.phases()).map(|phase| (*own, phase)));
        let decoded = ways.filter_map(|(own, phase)| own.decode(text.as_bytes(), phase));
        decoded.into_iter().find_map(|decoded| {
            let at = decoded.bytes.windows(what.len()).position(|own| own == what.as_bytes())?;
            Some(decoded.place(at, at + what.len()))
        })
    }

    #[test]
    fn a_text_is_decoded_wherever_it_begins() {
        let what = "a text?> of some length";
        for before in ["", "/", "ab", "path", "x=", "{\"a\": \""] {
            for (encoded, length) in [
                (STANDARD.encode(what), 31),
                (URL_SAFE_NO_PAD.encode(what), 31),
                (what.bytes().map(|byte| format!("{byte:02x}")).collect(), 46),
                (what.bytes().map(|byte| format!("{byte:02X}")).collect(), 46),
            ] {
                let text = format!("{before}{encoded}\"");
                let place = before.len()..before.len() + length;
                assert_eq!(found(&text, what), Some(place), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_text_is_left_out() {
        let image: Vec<u8> = (0..3000_u32).map(|at| ((at * 89) >> 3 & 0xff) as u8 | 0x80).collect();
        let text = STANDARD.encode(image);
        assert!(Digits::Base64.decode(text.as_bytes(), 0).is_none());
        assert!(Digits::Base64.decode(b"short", 0).is_none());
        // A phase behind the end of a sequence.
        assert!(Digits::Base64.decode(b"0123456789012345", 3).is_none());
    }
}
