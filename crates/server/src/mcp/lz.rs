//! The URL encoding of lz-string: `compressToEncodedURIComponent`. A dictionary of the sequences so
//! far grows with the text, and each reference to it has as many bits as the dictionary needs.

use std::collections::HashMap;

/// The character for each group of six bits.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
/// The special references: an 8-bit unit follows, a 16-bit unit follows, the end.
const EIGHT: u32 = 0;
const SIXTEEN: u32 = 1;
const END: u32 = 2;

/// A text in compressed form for a URL.
pub(super) fn compress(text: &str) -> String {
    let mut writer = Writer::default();
    // An entry is identified by the entry that it extends, and the unit that it adds.
    let mut singles: HashMap<u16, u32> = HashMap::new();
    let mut longer: HashMap<(u32, u16), u32> = HashMap::new();
    let mut next = 3;
    let mut token: Option<Token> = None;
    for unit in text.encode_utf16() {
        let mut is_new = false;
        let single = *singles.entry(unit).or_insert_with(|| {
            is_new = true;
            next += 1;
            next - 1
        });
        let fresh = Token { entry: single, new: is_new.then_some(unit) };
        let Some(before) = token else {
            token = Some(fresh);
            continue;
        };
        match longer.get(&(before.entry, unit)) {
            Some(entry) => token = Some(Token { entry: *entry, new: None }),
            None => {
                writer.write_token(before);
                longer.insert((before.entry, unit), next);
                next += 1;
                token = Some(fresh);
            }
        }
    }
    token.into_iter().for_each(|token| writer.write_token(token));
    writer.bits(END, writer.width);
    writer.finish()
}

/// The pending output: an entry, or a new unit.
#[derive(Clone, Copy)]
struct Token {
    entry: u32,
    new: Option<u16>,
}

struct Writer {
    text: String,
    pending: usize,
    count: usize,
    /// The size of a reference in bits.
    width: u32,
    /// The number of references until the size grows by one.
    left: u32,
}

impl Default for Writer {
    fn default() -> Self {
        Self { text: String::new(), pending: 0, count: 0, width: 2, left: 2 }
    }
}

impl Writer {
    fn write_token(&mut self, token: Token) {
        match token.new {
            Some(unit) => {
                let (kind, width) = if unit < 256 { (EIGHT, 8) } else { (SIXTEEN, 16) };
                self.bits(kind, self.width);
                self.bits(u32::from(unit), width);
                self.grow();
            }
            None => self.bits(token.entry, self.width),
        }
        self.grow();
    }

    fn grow(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.left = 1 << self.width;
            self.width += 1;
        }
    }

    /// Writes the lowest bits of a value, the lowest first.
    fn bits(&mut self, value: u32, width: u32) {
        for bit in 0..width {
            self.pending = self.pending << 1 | usize::from(value >> bit & 1 == 1);
            self.count += 1;
            if self.count == 6 {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        self.text.extend(ALPHABET.get(self.pending).map(|letter| char::from(*letter)));
        (self.pending, self.count) = (0, 0);
    }

    /// Pads the last character; there is one even if no bits are left.
    fn finish(mut self) -> String {
        self.pending <<= 6 - self.count;
        self.flush();
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of lz-string 1.5.0.
    #[test]
    fn the_same_as_lz_string() {
        for (text, expected) in [
            ("hello", "BYUwNmD2Q"),
            ("a", "IZA"),
            (
                "console.log(\"hello directive\");\n",
                "MYewdgziA2CmB00QHMAUAiAFraSAEAJgJYBOswALkQG6zoCUA3AFBA",
            ),
            ("é😀 aaaaaaaaaaaabbbbbbbbbbbb", "JeXg3AB7AECGO3MCMnJUoA"),
        ] {
            assert_eq!(compress(text), expected, "{text}");
        }
        assert_eq!(compress(&"x".repeat(300)), "B418ZXTt-DFOS1b0c1oA");
        let mixed: String =
            (0_u32..3_000).filter_map(|i| char::from_u32(32 + (i * i * 7 + i * 13) % 90)).collect();
        let long = compress(&mixed);
        assert_eq!(long.len(), 692);
        assert!(long.ends_with("bHC6zzd748XBZbfYnS7Lrf7k+XNbbA6nK9r3+uQA"), "{long}");
    }
}
