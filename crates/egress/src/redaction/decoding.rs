//! Text as it is meant: without percent-encoding, escapes with a backslash as in JSON, character references
//! of HTML, and all else that writers put between or instead of characters. Each decoded byte keeps its
//! place in the text. Which bytes are escaped does not matter: every writer chooses others.

mod digits;
mod numbers;

use std::ops::Range;

use self::digits::Digits;
use self::numbers::Numbers;

/// The longest escape of one character that is decoded, in bytes: `&#x000041;`.
pub(super) const LONGEST_ESCAPE: usize = 10;

/// The minimal length of a line of base64 that the next line may continue.
const LEAST_LINE: usize = 32;

/// How a text is escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escapes {
    /// `%41`.
    Percent,
    /// `\u0041`, `\u{41}`, `\x41`, `\101`, `\"`, `\/`, `\n`.
    Backslash,
    /// `&#65;`, `&#x41;`, `&amp;`.
    References,
    /// `=41`, and lines that end with `=` (RFC 2045, section 6.7).
    Quoted,
    /// Characters of two or four bytes, of which all but one are zero.
    Zeros,
    /// Lines of base64 or hexadecimal digits.
    Lines,
}

/// Those that are within each other: JSON in JSON, a link in a page, a page in JSON.
const NESTED: &[Escapes] = &[Escapes::Percent, Escapes::Backslash, Escapes::References];

/// Those that are within these, or within a text in digits.
const DEEPER: &[Escapes] =
    &[Escapes::Percent, Escapes::Backslash, Escapes::References, Escapes::Zeros, Escapes::Lines];

/// How many escapes within each other are decoded.
const LEVELS: usize = 3;

impl Escapes {
    /// Whether a text may have one.
    fn may_be_in(self, text: &[u8]) -> bool {
        let first = match self {
            Self::Percent => b'%',
            Self::Backslash => b'\\',
            Self::References => b'&',
            Self::Quoted => b'=',
            Self::Zeros => 0,
            Self::Lines => b'\n',
        };
        text.contains(&first)
    }

    /// The escape at a place of a text: what it stands for, and its length.
    fn read(self, text: &[u8], at: usize) -> Option<(Option<u8>, usize)> {
        let rest = text.get(at..)?;
        let character = |(byte, length)| (Some(byte), length);
        match (self, *rest.first()?) {
            (Self::Percent, b'%') => number(rest.get(1..3)?, 16).map(|byte| (Some(byte), 3)),
            (Self::Backslash, b'\\') => backslash(rest).map(character),
            (Self::References, b'&') => reference(rest).map(character),
            (Self::Quoted, b'=') => match rest.get(1)? {
                b'\n' => Some((None, 2)),
                b'\r' if rest.get(2) == Some(&b'\n') => Some((None, 3)),
                _ => number(rest.get(1..3)?, 16).map(|byte| (Some(byte), 3)),
            },
            (Self::Zeros, 0) => Some((None, 1)),
            (Self::Lines, b'\r' | b'\n') if is_line_of_base64(before(text, at)) => Some((None, 1)),
            _ => None,
        }
    }
}

/// The text before a place, without the ends of lines at its end.
fn before(text: &[u8], at: usize) -> &[u8] {
    let mut before = text.get(..at).unwrap_or_default();
    while let [rest @ .., b'\r' | b'\n'] = before {
        before = rest;
    }
    before
}

/// Whether a text ends with so many characters of base64 that the next line may continue them.
fn is_line_of_base64(text: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    text.len() >= LEAST_LINE && text.iter().rev().take(LEAST_LINE).all(is_digit)
}

/// Whether the end of a line after a text may be within a value: the line is one of base64, of numbers, or
/// ends with `=`.
pub(super) fn is_broken_line(text: &[u8]) -> bool {
    let text = before(text, text.len());
    text.ends_with(b"=") || is_line_of_base64(text) || numbers::is_line(text)
}

/// An escape with a backslash. That of the end of a line stands for it.
fn backslash(text: &[u8]) -> Option<(u8, usize)> {
    match text.get(1)? {
        b'u' if text.get(2) == Some(&b'{') => {
            let digits = text.get(3..LONGEST_ESCAPE.min(text.len()))?;
            let end = digits.iter().position(|byte| *byte == b'}')?;
            number(digits.get(..end)?, 16).map(|byte| (byte, end + 4))
        }
        b'u' => number(text.get(2..6)?, 16).map(|byte| (byte, 6)),
        b'x' => number(text.get(2..4)?, 16).map(|byte| (byte, 4)),
        b'0'..=b'7' => number(text.get(1..4)?, 8).map(|byte| (byte, 4)),
        b'n' => Some((b'\n', 2)),
        b'r' => Some((b'\r', 2)),
        other if other.is_ascii_punctuation() => Some((*other, 2)),
        _ => None,
    }
}

/// The names of visible ASCII characters (HTML, "Named character references").
const NAMES: &[(&[u8], u8)] = &[
    (b"amp", b'&'),
    (b"lt", b'<'),
    (b"gt", b'>'),
    (b"quot", b'"'),
    (b"apos", b'\''),
    (b"sol", b'/'),
    (b"bsol", b'\\'),
    (b"equals", b'='),
    (b"plus", b'+'),
    (b"lowbar", b'_'),
    (b"UnderBar", b'_'),
    (b"period", b'.'),
    (b"colon", b':'),
    (b"semi", b';'),
    (b"comma", b','),
    (b"excl", b'!'),
    (b"num", b'#'),
    (b"dollar", b'$'),
    (b"percnt", b'%'),
    (b"lpar", b'('),
    (b"rpar", b')'),
    (b"ast", b'*'),
    (b"midast", b'*'),
    (b"quest", b'?'),
    (b"commat", b'@'),
    (b"lsqb", b'['),
    (b"lbrack", b'['),
    (b"rsqb", b']'),
    (b"rbrack", b']'),
    (b"Hat", b'^'),
    (b"grave", b'`'),
    (b"lcub", b'{'),
    (b"lbrace", b'{'),
    (b"rcub", b'}'),
    (b"rbrace", b'}'),
    (b"verbar", b'|'),
    (b"vert", b'|'),
];

/// A character reference.
fn reference(text: &[u8]) -> Option<(u8, usize)> {
    let most = text.get(..LONGEST_ESCAPE).unwrap_or(text);
    let end = most.iter().position(|byte| *byte == b';')?;
    let byte = match text.get(1..end)? {
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16)?,
        [b'#', digits @ ..] => number(digits, 10)?,
        name => NAMES.iter().find(|(known, _)| *known == name)?.1,
    };
    Some((byte, end + 1))
}

/// A number of visible ASCII, which is what values consist of.
fn number(digits: &[u8], radix: u32) -> Option<u8> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

/// A decoded text.
#[derive(Default)]
pub(super) struct Decoded {
    pub(super) bytes: Vec<u8>,
    /// Where each byte is in the text.
    places: Vec<Range<usize>>,
}

impl Decoded {
    /// Calls `found` with each way in which a text can be read.
    pub(super) fn each(text: &[u8], mut found: impl FnMut(&Self)) {
        let mut count = 0;
        for escapes in [NESTED, &[Escapes::Zeros, Escapes::Lines]].concat() {
            let decoded = Self::of(text, &[escapes]);
            count += usize::from(decoded.is_some() && NESTED.contains(&escapes));
            decoded.iter().for_each(&mut found);
            // Lines of base64 are one text.
            if let (Escapes::Lines, Some(decoded)) = (escapes, &decoded) {
                decoded.digits(&mut found);
            }
        }
        for numbers in Numbers::ALL {
            numbers.decode(text).iter().for_each(&mut found);
        }
        if let Some(quoted) = Self::of(text, &[Escapes::Quoted]) {
            found(&quoted);
            quoted.again(NESTED).iter().for_each(&mut found);
        }
        for decoded in Self::of_digits(text) {
            found(&decoded);
            decoded.again(DEEPER).iter().for_each(&mut found);
        }
        // Without any escape there is none within another one.
        let Some(once) = (count > 0).then(|| Self::of(text, NESTED)).flatten() else { return };
        if count > 1 {
            found(&once);
        }
        once.digits(&mut found);
        let mut last = once;
        for _ in 1..LEVELS {
            let Some(next) = last.again(DEEPER) else { return };
            found(&next);
            last = next;
        }
    }

    /// Decodes a text; nothing if it has no such escape.
    fn of(text: &[u8], escapes: &[Escapes]) -> Option<Self> {
        if !escapes.iter().any(|kind| kind.may_be_in(text)) {
            return None;
        }
        let mut decoded =
            Self { bytes: Vec::with_capacity(text.len()), places: Vec::with_capacity(text.len()) };
        let (mut at, mut is_other) = (0, false);
        while let Some(byte) = text.get(at) {
            let escape = escapes.iter().find_map(|kind| kind.read(text, at));
            is_other |= escape.is_some();
            let (byte, length) = escape.unwrap_or((Some(*byte), 1));
            if let Some(byte) = byte {
                decoded.push(byte, at..at + length);
            }
            at += length;
        }
        is_other.then_some(decoded)
    }

    /// The texts that are written in digits within a text.
    fn of_digits(text: &[u8]) -> impl Iterator<Item = Self> {
        let ways = Digits::ALL.iter().flat_map(|own| (0..own.phases()).map(|phase| (*own, phase)));
        ways.filter_map(|(own, phase)| own.decode(text, phase))
    }

    /// Calls `found` with the texts that are written in digits within this one.
    fn digits(&self, mut found: impl FnMut(&Self)) {
        for decoded in Self::of_digits(&self.bytes) {
            let decoded = decoded.within(self);
            found(&decoded);
            decoded.again(DEEPER).iter().for_each(&mut found);
        }
    }

    /// The same text decoded once more.
    fn again(&self, escapes: &[Escapes]) -> Option<Self> {
        Some(Self::of(&self.bytes, escapes)?.within(self))
    }

    /// The same with places in the text that another one was decoded from.
    fn within(mut self, outer: &Self) -> Self {
        for place in &mut self.places {
            *place = outer.place(place.start, place.end);
        }
        self
    }

    fn push(&mut self, byte: u8, place: Range<usize>) {
        self.bytes.push(byte);
        self.places.push(place);
    }

    /// The place in the text of some decoded bytes.
    pub(super) fn place(&self, start: usize, end: usize) -> Range<usize> {
        let last = end.checked_sub(1).and_then(|last| self.places.get(last));
        let start = self.places.get(start).map(|place| place.start);
        let end = last.map_or(0, |place| place.end);
        start.unwrap_or(end)..end
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
            (
                Escapes::Backslash,
                r#"\u0041\u{42}\x42\103\"\/\\u0043\q\u00"#,
                r#"ABBC"/\u0043\q\u00"#,
            ),
            (Escapes::Quoted, "a=2Fb=3d=\r\nc=\nd=x", "a/b=cd=x"),
            (Escapes::Zeros, "a\0b\0\0\0c", "abc"),
            (
                Escapes::References,
                "&#65;&#x42;&#X0043;&amp;&lt;&bad;&#999;&#65",
                "ABC&<&bad;&#999;&#65",
            ),
        ] {
            let decoded = Decoded::of(text.as_bytes(), &[escapes]).unwrap();
            assert_eq!(String::from_utf8_lossy(&decoded.bytes), expected);
            assert_eq!(decoded.place(0, decoded.bytes.len()), 0..text.len());
        }
        let decoded = Decoded::of(b"x%41y", &[Escapes::Percent]).unwrap();
        assert_eq!(decoded.place(1, 2), 1..4);
        assert!(Decoded::of(b"pl%ain", &[Escapes::Percent]).is_none());
    }
}
