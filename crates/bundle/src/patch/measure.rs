//! Whether a content is text, by a measure over all of it: no few bytes of an author's choice decide
//! whether a content is shown.

use super::pieces::Stop;
use super::source::Source;

/// Contents up to this size are always shown.
const ALWAYS_SHOWN_BYTES: u64 = 1024;

/// A content is not text if more than one of this many bytes is a control character that no text
/// needs. In random bytes it is one of ten.
const BYTES_PER_CONTROL: u64 = 25;

/// The bytes at the start that are kept for a guess.
const HEAD_BYTES: usize = 512;

/// How a content becomes text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, or one of the encodings that share its ASCII; other bytes are shown as numbers.
    Bytes,
    /// UTF-16, with the lower byte first.
    Utf16Little,
    /// UTF-16, with the higher byte first.
    Utf16Big,
}

impl Encoding {
    /// Its name; `None` for the usual one.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Bytes => None,
            Self::Utf16Little => Some("UTF-16LE"),
            Self::Utf16Big => Some("UTF-16BE"),
        }
    }
}

/// What a content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    /// Text.
    Text(Encoding),
    /// Something else; a guess what.
    Binary(&'static str),
}

/// The longest text that is decoded.
const MAX_DECODED_BYTES: u64 = 64 << 20;

/// A text in UTF-8, and whether it can also be read in another way: two letters of ASCII are one of
/// UTF-16, so that a program in one encoding can be a text in the other. What is no text in its
/// encoding becomes U+FFFD.
pub(super) fn decode(source: &Source, encoding: Encoding) -> Result<(Source, bool), Stop> {
    if source.size() > MAX_DECODED_BYTES {
        return Err(Stop::TooLarge);
    }
    let mut bytes = Vec::new();
    source.each(|part| bytes.extend_from_slice(part))?;
    let is_letter = |byte: &u8| matches!(byte, b'\t' | b'\n' | b' '..=b'~');
    let is_ambiguous = bytes.chunks_exact(2).any(|pair| pair.iter().all(is_letter));
    let units = bytes.chunks_exact(2).map(|pair| match encoding {
        Encoding::Utf16Big => u16::from_be_bytes([pair[0], pair[1]]),
        Encoding::Utf16Little | Encoding::Bytes => u16::from_le_bytes([pair[0], pair[1]]),
    });
    let decoded = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
    let mut text: String = decoded.collect();
    if let [odd] = bytes.chunks_exact(2).remainder() {
        text.push(char::from(*odd));
    }
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    Ok((Source::of(text.into_bytes()), is_ambiguous))
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    size: u64,
    controls: u64,
    /// NUL bytes at even and at odd positions.
    zeros: [u64; 2],
    head: Vec<u8>,
}

impl Counts {
    pub(super) fn add(&mut self, part: &[u8]) {
        let missing = HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(&part[..part.len().min(missing)]);
        let parity = usize::from(self.size % 2 == 1);
        for (at, byte) in part.iter().enumerate() {
            match byte {
                0 => self.zeros[(at + parity) % 2] += 1,
                b'\t' | b'\n' | b'\r' | 0x08 | 0x0c | 0x1b => {}
                0x01..=0x1f | 0x7f => self.controls += 1,
                _ => {}
            }
        }
        self.size += part.len() as u64;
    }

    pub(super) fn nature(&self) -> Nature {
        if let Some(encoding) = self.wide() {
            return Nature::Text(encoding);
        }
        let controls = self.controls + self.zeros[0] + self.zeros[1];
        if self.size > ALWAYS_SHOWN_BYTES && controls > self.size / BYTES_PER_CONTROL {
            return Nature::Binary(guess(&self.head));
        }
        Nature::Text(Encoding::Bytes)
    }

    /// UTF-16, by its mark at the start, or by the zeros that most of its letters have.
    fn wide(&self) -> Option<Encoding> {
        let half = self.size / 2;
        let [even, odd] = self.zeros;
        let is_text = self.controls <= self.size / BYTES_PER_CONTROL;
        // The mark alone is two bytes of the author's choice: some letters must have a zero too.
        let some = (half / 50).max(1);
        match self.head.as_slice() {
            [0xff, 0xfe, ..] if is_text && odd >= some && even <= half / 8 => {
                return Some(Encoding::Utf16Little);
            }
            [0xfe, 0xff, ..] if is_text && even >= some && odd <= half / 8 => {
                return Some(Encoding::Utf16Big);
            }
            _ => {}
        }
        let is_even = self.size >= 4 && self.size.is_multiple_of(2);
        if !is_even || !is_text {
            return None;
        }
        let most = half - half / 4;
        if odd >= most && even <= half / 50 {
            return Some(Encoding::Utf16Little);
        }
        (even >= most && odd <= half / 50).then_some(Encoding::Utf16Big)
    }
}

/// The kind of a content that is not text, by its first bytes.
fn guess(head: &[u8]) -> &'static str {
    const STARTS: &[(&[u8], &str)] = &[
        (b"#!", "script"),
        (b"\x7fELF", "ELF program"),
        (b"MZ", "Windows program"),
        (b"\xfe\xed\xfa", "Mach-O program"),
        (b"\xce\xfa\xed\xfe", "Mach-O program"),
        (b"\xcf\xfa\xed\xfe", "Mach-O program"),
        (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
        (b"\0asm", "WebAssembly program"),
        (b"\x89PNG", "PNG image"),
        (b"\xff\xd8\xff", "JPEG image"),
        (b"GIF8", "GIF image"),
        (b"BM", "BMP image"),
        (b"II*\0", "TIFF image"),
        (b"MM\0*", "TIFF image"),
        (b"%PDF", "PDF document"),
        (b"PK\x03\x04", "ZIP archive"),
        (b"PK\x05\x06", "ZIP archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"BZh", "bzip2 data"),
        (b"\xfd7zXZ", "xz data"),
        (b"\x28\xb5\x2f\xfd", "zstd data"),
        (b"7z\xbc\xaf", "7z archive"),
        (b"Rar!", "RAR archive"),
        (b"!<arch>", "ar archive"),
        (b"SQLite format 3", "SQLite database"),
        (b"OggS", "Ogg media"),
        (b"ID3", "MP3 audio"),
        (b"fLaC", "FLAC audio"),
        (b"\x1a\x45\xdf\xa3", "Matroska media"),
        (b"wOFF", "font"),
        (b"wOF2", "font"),
        (b"OTTO", "font"),
        (b"\0\x01\0\0", "font"),
        (b"DIRC", "git index"),
        (b"PACK", "git pack"),
    ];
    let by_start = STARTS.iter().find(|(start, _)| head.starts_with(start));
    match (by_start, head) {
        (Some((_, name)), _) => name,
        (None, [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..]) => "WebP image",
        (None, [b'R', b'I', b'F', b'F', ..]) => "RIFF media",
        (None, [_, _, _, _, b'f', b't', b'y', b'p', ..]) => "MP4 media",
        (None, head) if head.get(257..262) == Some(b"ustar") => "tar archive",
        (None, head) if head.windows(2).any(|pair| pair == b"()" || pair == b"//") => {
            "data with text"
        }
        _ => "data",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: Vec<u8>) -> Nature {
        let mut counts = Counts::default();
        bytes.chunks(999).for_each(|part| counts.add(part));
        counts.nature()
    }

    #[test]
    fn a_few_bytes_do_not_hide_a_text() {
        let script = "console.log('x');\n".repeat(200);
        for odd in
            [&b"\0"[..], b"\0\0\0\0", b"\x01\x02", b"\xff\xfe", b"\x1b[2J", b"\x89PNG", b"\x7fELF"]
        {
            for at in [0, 1, 8000.min(script.len()), script.len()] {
                let mut bytes = script.clone().into_bytes();
                bytes.splice(at..at, odd.iter().copied());
                assert_eq!(of(bytes), Nature::Text(Encoding::Bytes), "{odd:?} at {at}");
            }
        }
        assert_eq!(of(b"/*\0*/EVIL()\n".to_vec()), Nature::Text(Encoding::Bytes));
        assert_eq!(of(Vec::new()), Nature::Text(Encoding::Bytes));
    }

    #[test]
    fn other_encodings_are_text() {
        let text = "caf\u{e9} \u{2713} EVIL()\r\n".repeat(100);
        for (mark, big) in [(true, false), (true, true), (false, false), (false, true)] {
            let units = mark.then_some(0xfeff).into_iter().chain(text.encode_utf16());
            let bytes = units
                .flat_map(|unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() });
            let encoding = if big { Encoding::Utf16Big } else { Encoding::Utf16Little };
            assert_eq!(of(bytes.collect()), Nature::Text(encoding));
        }
        // Latin-1, and Russian in KOI8-R.
        for byte in [0xe9, 0xc1] {
            assert_eq!(of([byte; 5000].to_vec()), Nature::Text(Encoding::Bytes));
        }
    }

    #[test]
    fn what_is_not_text_is_guessed() {
        let mut random = crate::testing::Random::new(5);
        let mut bytes: Vec<u8> = (0..100_000).map(|_| random.next().to_le_bytes()[0]).collect();
        assert!(matches!(of(bytes.clone()), Nature::Binary(_)));
        bytes.splice(..0, *b"\x89PNG\r\n\x1a\n");
        assert_eq!(of(bytes.clone()), Nature::Binary("PNG image"));
        bytes.splice(..0, *b"#!/bin/sh\n");
        assert_eq!(of(bytes), Nature::Binary("script"));
    }
}
