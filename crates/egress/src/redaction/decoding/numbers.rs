//! Text that is written as the numbers of its characters: an array of JSON, or a dump of bytes. Only
//! sequences of several numbers count, and only they are decoded.

use super::Decoded;

/// How many numbers follow each other at least.
const LEAST: usize = 6;
/// The most characters between two numbers.
const MOST_BETWEEN: usize = 4;

/// A byte that no value has.
const NO_CHARACTER: u8 = 0xff;

/// How numbers are written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Numbers {
    /// `115, 107`.
    Decimal,
    /// `73 6b`, `73:6b`, `0x73, 0x6b`, `736b 2d6c`.
    Hexadecimal,
}

/// One group of digits.
struct Group {
    start: usize,
    end: usize,
}

impl Numbers {
    /// Both ways.
    pub(super) const ALL: [Self; 2] = [Self::Decimal, Self::Hexadecimal];

    const fn is_digit(self, byte: u8) -> bool {
        match self {
            Self::Decimal => byte.is_ascii_digit(),
            Self::Hexadecimal => byte.is_ascii_hexdigit(),
        }
    }

    /// Whether so many digits are the numbers of characters.
    const fn has_length(self, length: usize) -> bool {
        match self {
            Self::Decimal => matches!(length, 1..=3),
            Self::Hexadecimal => matches!(length, 2 | 4 | 6 | 8),
        }
    }

    /// The bytes that a group of digits stands for.
    fn bytes(self, digits: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Decimal => Some(vec![super::number(digits, 10)?]),
            Self::Hexadecimal => digits.chunks(2).map(|pair| super::number(pair, 16)).collect(),
        }
    }

    /// The next group at or after a place: digits that are no part of a word.
    fn next(self, text: &[u8], mut at: usize) -> Option<Group> {
        let is_of_word = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        loop {
            at += text.get(at..)?.iter().position(|byte| self.is_digit(*byte))?;
            if let (Self::Hexadecimal, Some([b'0', b'x' | b'X', ..])) = (self, text.get(at..)) {
                at += 2;
                continue;
            }
            let length = text.get(at..)?.iter().take_while(|byte| self.is_digit(**byte)).count();
            let (start, end) = (at, at + length);
            let before = text.get(..start)?;
            let is_begin =
                before.ends_with(b"0x") || before.ends_with(b"0X") || !is_of_word(before.last());
            if is_begin && self.has_length(length) && !is_of_word(text.get(end)) {
                return Some(Group { start, end });
            }
            at = end;
        }
    }

    /// The sequences of a text, with a byte in between that no value has.
    pub(super) fn decode(self, text: &[u8]) -> Option<Decoded> {
        let mut decoded = Decoded::default();
        let mut sequence: Vec<Group> = Vec::new();
        let mut at = 0;
        while let Some(group) = self.next(text, at) {
            at = group.end;
            if sequence.last().is_some_and(|last| !is_between(text.get(last.end..group.start))) {
                self.add(text, &mut decoded, &mut sequence);
            }
            sequence.push(group);
        }
        self.add(text, &mut decoded, &mut sequence);
        (!decoded.bytes.is_empty()).then_some(decoded)
    }

    /// Adds a sequence, if it is long enough.
    fn add(self, text: &[u8], decoded: &mut Decoded, sequence: &mut Vec<Group>) {
        let groups = std::mem::take(sequence);
        let Some(end) = groups.last().map(|group| group.end) else { return };
        if groups.len() < LEAST {
            return;
        }
        for Group { start, end } in groups {
            // A number that is too large is no character.
            let bytes = text.get(start..end).and_then(|digits| self.bytes(digits));
            let bytes = bytes.unwrap_or_else(|| vec![NO_CHARACTER]);
            bytes.iter().for_each(|byte| decoded.push(*byte, start..end));
        }
        decoded.push(NO_CHARACTER, end..end);
    }
}

/// Whether two numbers follow each other.
fn is_between(text: Option<&[u8]>) -> bool {
    let is_separator = |byte: &u8| byte.is_ascii_whitespace() || b",;:|-.\"'".contains(byte);
    let Some(text) = text else { return false };
    let text = text.strip_suffix(b"0x").or_else(|| text.strip_suffix(b"0X")).unwrap_or(text);
    // Between lines, any number of blanks.
    let length = text.iter().filter(|byte| **byte != b' ').count();
    !text.is_empty() && length <= MOST_BETWEEN && text.iter().all(is_separator)
}

/// Whether a line is one number, as in an array of JSON with a line for each.
pub(super) fn is_line(text: &[u8]) -> bool {
    let text = text.strip_suffix(b",").unwrap_or(text);
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let rest = text.get(..text.len() - digits).unwrap_or_default();
    let rest = rest.trim_ascii_end();
    let is_first = |rest: &[u8]| matches!(rest.last(), None | Some(b',' | b'['));
    (1..=4).contains(&digits) && (is_first(rest) || rest.ends_with(b"0x"))
        || digits == 0 && rest.ends_with(b"[")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_decoded_with_their_places() {
        for (numbers, text, expected) in [
            (Numbers::Decimal, "x [97,98, 99,\n  100,101,102] 7", &b"abcdef\xff"[..]),
            (Numbers::Decimal, "97 98 99", b""),
            (Numbers::Hexadecimal, "61 62:63-64 0x65, 0x66", b"abcdef\xff"),
            (Numbers::Hexadecimal, "6162 6364 6566 6768 696a 6b6c", b"abcdefghijkl\xff"),
        ] {
            let decoded = numbers.decode(text.as_bytes());
            let bytes = decoded.as_ref().map(|decoded| decoded.bytes.as_slice()).unwrap_or(b"");
            assert_eq!(bytes, expected, "{text}");
        }
        let decoded = Numbers::Decimal.decode(b"[97,98,99,100,101,102]").unwrap();
        assert_eq!(decoded.place(0, 6), 1..21);
    }
}
