//! The contents in the binary patches of git: base 85, deflated, whole or as differences from the old
//! content. The data is untrusted: nothing is made that is larger than it may be.

use std::io::Read as _;

use flate2::read::ZlibDecoder;

use super::binary::DIGITS;

/// The data for the new content of a file, not decoded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinaryData<'a> {
    pub(super) form: Form,
    /// How long the data is when it is inflated, in bytes.
    pub(super) size: u64,
    /// Lines of base 85.
    pub(super) lines: Vec<&'a [u8]>,
}

/// What the data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The content.
    Literal,
    /// How the content is made of the old one.
    Delta,
}

const INVALID: &str = "its binary data cannot be read";

impl BinaryData<'_> {
    /// The new content, of at most this many bytes; the error says why there is none.
    ///
    /// # Errors
    /// Data that is invalid, too long, or made for another old content.
    pub fn content(&self, old: &[u8], at_most: u64) -> Result<Vec<u8>, &'static str> {
        let mut deflated = Vec::new();
        for line in &self.lines {
            decode(line, &mut deflated).ok_or(INVALID)?;
        }
        if self.size > at_most {
            return Err("its binary data is too long");
        }
        let mut inflated = Vec::new();
        let read = ZlibDecoder::new(deflated.as_slice()).take(self.size + 1);
        { read }.read_to_end(&mut inflated).map_err(|_| INVALID)?;
        if inflated.len() as u64 != self.size {
            return Err(INVALID);
        }
        match self.form {
            Form::Literal => Ok(inflated),
            Form::Delta => apply(&inflated, old, at_most),
        }
    }
}

/// Decodes a line, which begins with the number of its bytes.
fn decode(line: &[u8], into: &mut Vec<u8>) -> Option<()> {
    let (count, digits) = line.split_first()?;
    let count = match count {
        b'A'..=b'Z' => count - b'A' + 1,
        b'a'..=b'z' => count - b'a' + 27,
        _ => return None,
    };
    let end = into.len() + usize::from(count);
    for group in digits.chunks(5) {
        let value = group.iter().try_fold(0_u32, |value, digit| {
            let digit = DIGITS.iter().position(|known| known == digit)?;
            value.checked_mul(85)?.checked_add(u32::try_from(digit).ok()?)
        })?;
        into.extend(value.to_be_bytes());
    }
    (into.len() >= end).then(|| into.truncate(end))
}

/// Applies differences: pieces of the old content, and new bytes.
fn apply(delta: &[u8], old: &[u8], at_most: u64) -> Result<Vec<u8>, &'static str> {
    let mut rest = delta;
    if number(&mut rest).ok_or(INVALID)? != old.len() as u64 {
        return Err("its binary data was made for another content");
    }
    let size = number(&mut rest).ok_or(INVALID)?;
    if size > at_most {
        return Err("its binary data is too long");
    }
    let mut new = Vec::new();
    while let Some((&code, after)) = rest.split_first() {
        rest = after;
        let piece = if code & 0x80 == 0 {
            let (piece, after) = rest.split_at_checked(usize::from(code)).ok_or(INVALID)?;
            rest = after;
            piece
        } else {
            let start = parts(&mut rest, code, 4).ok_or(INVALID)?;
            let length = match parts(&mut rest, code >> 4, 3).ok_or(INVALID)? {
                0 => 0x1_0000,
                length => length,
            };
            start.checked_add(length).and_then(|end| old.get(start..end)).ok_or(INVALID)?
        };
        if piece.is_empty() || (new.len() + piece.len()) as u64 > size {
            return Err(INVALID);
        }
        new.extend_from_slice(piece);
    }
    if new.len() as u64 == size { Ok(new) } else { Err(INVALID) }
}

/// A number in groups of 7 bits, the lowest first.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A number of which those bytes follow whose bits are set.
fn parts(rest: &mut &[u8], bits: u8, count: u32) -> Option<usize> {
    let mut value = 0;
    for byte in 0..count {
        if bits & 1 << byte != 0 {
            let (&part, after) = rest.split_first()?;
            *rest = after;
            value |= usize::from(part) << (8 * byte);
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_applied_to_the_old_content() {
        let old = b"0123456789";
        // 10 bytes become 8: the bytes from 2 to 7, and two new ones.
        let delta = [10, 8, 0x91, 2, 6, 2, b'x', b'y'];
        assert_eq!(apply(&delta, old, 100).unwrap(), b"234567xy");
        assert!(apply(&delta, b"01234", 100).unwrap_err().contains("another content"));
        assert!(apply(&delta, old, 7).unwrap_err().contains("too long"));
    }

    #[test]
    fn invalid_differences_are_refused() {
        let old = b"0123456789";
        for delta in [
            &[10][..],
            &[10, 8, 0],
            &[10, 8, 0x91, 2],
            &[10, 8, 0x91, 9, 8],
            &[10, 8, 0x90, 20],
            &[10, 1, 2, b'x', b'y'],
            &[10, 3, 2, b'x', b'y'],
            &[0xff; 12],
            &[10, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(apply(delta, old, 1 << 40), Err(INVALID), "{delta:?}");
        }
    }

    #[test]
    fn data_that_grows_is_not_inflated_beyond_its_limit() {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut encoder, &vec![0; 1 << 20]).unwrap();
        let mut text = String::new();
        for line in encoder.finish().unwrap().chunks(52) {
            super::super::binary::line(&mut text, line).unwrap();
        }
        let lines: Vec<&[u8]> = text.lines().map(str::as_bytes).collect();
        let data = |size| BinaryData { form: Form::Literal, size, lines: lines.clone() };
        assert_eq!(data(1 << 20).content(b"", 1 << 20).unwrap().len(), 1 << 20);
        assert!(data(1 << 20).content(b"", 1000).is_err());
        assert_eq!(data(1000).content(b"", 1000), Err(INVALID));
    }
}
