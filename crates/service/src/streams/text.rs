//! Converts bytes to text when a character may be split between two parts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The text form of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// As UTF-8, with U+FFFD for invalid bytes.
    #[default]
    Text,
    /// As base64 with padding, each part separately.
    Base64,
}

/// Converts parts of a stream to text. A character is never split between two texts.
#[derive(Debug, Default)]
pub struct Decoder {
    encoding: Encoding,
    /// An incomplete character; at most three bytes.
    partial: Vec<u8>,
}

impl Decoder {
    /// A decoder at the start of a stream.
    pub const fn new(encoding: Encoding) -> Self {
        Self { encoding, partial: Vec::new() }
    }

    /// The text of the next part, without an incomplete character at its end.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        if self.encoding == Encoding::Base64 {
            return STANDARD.encode(bytes);
        }
        self.partial.extend_from_slice(bytes);
        let whole = self.partial.len() - partial_length(&self.partial);
        let rest = self.partial.split_off(whole);
        let text = String::from_utf8_lossy(&self.partial).into_owned();
        self.partial = rest;
        text
    }

    /// The remaining text at the end of the stream.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.partial).into_owned()
    }
}

/// How many bytes at the end may be an incomplete character.
fn partial_length(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|length| {
            let tail = &bytes[bytes.len() - length..];
            std::str::from_utf8(tail)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(parts: &[&[u8]]) -> Vec<String> {
        let mut decoder = Decoder::new(Encoding::Text);
        let mut texts: Vec<_> = parts.iter().map(|part| decoder.push(part)).collect();
        texts.push(decoder.finish());
        texts
    }

    #[test]
    fn every_cut_of_a_text_gives_the_text() {
        let text = "a\u{e9}\u{20ac}\u{1f980}\0z";
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let bytes = text.as_bytes();
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let texts = decode(&parts);
                assert_eq!(texts.concat(), text, "{first} {second}");
            }
        }
    }

    #[test]
    fn what_is_no_text_is_replaced_at_once_or_at_the_end() {
        assert_eq!(decode(&[b"a\xff", b"b"]), ["a\u{fffd}", "b", ""]);
        assert_eq!(decode(&[b"a\xe2\x82"]), ["a", "\u{fffd}"]);
        assert_eq!(decode(&[b"\xe2", b"x"]), ["", "\u{fffd}x", ""]);
        assert_eq!(decode(&[b"\x80\x80\x80\x80"]), ["\u{fffd}".repeat(4), String::new()]);
    }

    #[test]
    fn base64_keeps_every_byte() {
        let mut decoder = Decoder::new(Encoding::Base64);
        assert_eq!(decoder.push(b"\xff\0"), "/wA=");
        assert_eq!(decoder.finish(), "");
    }
}
