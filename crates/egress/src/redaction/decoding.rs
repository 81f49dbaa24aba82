//! Escaped text as it is meant: percent-encoding, escapes with a backslash as in JSON, and character
//! references of HTML. Each decoded byte keeps its place in the text. Which bytes are escaped does not
//! matter: every writer chooses others.

use std::ops::Range;

/// The longest escape of one character that is decoded, in bytes: `&#x000041;`.
pub(super) const LONGEST_ESCAPE: usize = 10;

/// How a text is escaped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Escapes {
    /// `%41`.
    Percent,
    /// `\u0041`, `\x41`, `\"`, `\/`.
    Backslash,
    /// `&#65;`, `&#x41;`, `&amp;`.
    References,
}

impl Escapes {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Percent, Self::Backslash, Self::References];

    /// The byte that each of its escapes begins with.
    const fn first(self) -> u8 {
        match self {
            Self::Percent => b'%',
            Self::Backslash => b'\\',
            Self::References => b'&',
        }
    }

    /// The escape at the beginning of a text: its character, and its length.
    fn read(self, text: &[u8]) -> Option<(u8, usize)> {
        match self {
            Self::Percent => number(text.get(1..3)?, 16).map(|byte| (byte, 3)),
            Self::Backslash => match text.get(1)? {
                b'u' => number(text.get(2..6)?, 16).map(|byte| (byte, 6)),
                b'x' => number(text.get(2..4)?, 16).map(|byte| (byte, 4)),
                other if other.is_ascii_punctuation() => Some((*other, 2)),
                _ => None,
            },
            Self::References => {
                let most = text.get(..LONGEST_ESCAPE).unwrap_or(text);
                let end = most.iter().position(|byte| *byte == b';')?;
                let byte = match text.get(1..end)? {
                    b"amp" => b'&',
                    b"lt" => b'<',
                    b"gt" => b'>',
                    b"quot" => b'"',
                    b"apos" => b'\'',
                    [b'#', b'x' | b'X', digits @ ..] => number(digits, 16)?,
                    [b'#', digits @ ..] => number(digits, 10)?,
                    _ => return None,
                };
                Some((byte, end + 1))
            }
        }
    }
}

/// A number of visible ASCII, which is what values consist of.
fn number(digits: &[u8], radix: u32) -> Option<u8> {
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

/// A decoded text.
pub(super) struct Decoded {
    pub(super) bytes: Vec<u8>,
    /// Where each byte begins in the text, and where the last one ends.
    places: Vec<usize>,
}

impl Decoded {
    /// Decodes a text; nothing if it has no escape of this kind.
    pub(super) fn of(text: &[u8], escapes: Escapes) -> Option<Self> {
        if !text.contains(&escapes.first()) {
            return None;
        }
        let mut decoded = Self { bytes: Vec::with_capacity(text.len()), places: Vec::new() };
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            let escape = match *byte == escapes.first() {
                true => text.get(at..).and_then(|rest| escapes.read(rest)),
                false => None,
            };
            let (byte, length) = escape.unwrap_or((*byte, 1));
            decoded.bytes.push(byte);
            decoded.places.push(at);
            at += length;
        }
        decoded.places.push(at);
        Some(decoded)
    }

    /// The place in the text of some decoded bytes.
    pub(super) fn place(&self, start: usize, end: usize) -> Range<usize> {
        let at = |index: usize| self.places.get(index).copied().unwrap_or_default();
        at(start)..at(end)
    }
}

impl Drop for Decoded {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_with_their_places() {
        for (escapes, text, expected) in [
            (Escapes::Percent, "a%41%2fb%zz%4", "aA/b%zz%4"),
            (Escapes::Backslash, r#"\u0041\x42\"\/\\u0043\n\u00"#, r#"AB"/\u0043\n\u00"#),
            (
                Escapes::References,
                "&#65;&#x42;&#X0043;&amp;&lt;&bad;&#999;&#65",
                "ABC&<&bad;&#999;&#65",
            ),
        ] {
            let decoded = Decoded::of(text.as_bytes(), escapes).unwrap();
            assert_eq!(String::from_utf8_lossy(&decoded.bytes), expected);
            assert_eq!(decoded.place(0, decoded.bytes.len()), 0..text.len());
        }
        let decoded = Decoded::of(b"x%41y", Escapes::Percent).unwrap();
        assert_eq!(decoded.place(1, 2), 1..4);
        assert!(Decoded::of(b"plain", Escapes::Percent).is_none());
    }
}
