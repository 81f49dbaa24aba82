//! Chunks of text: a character that is cut by the end of a chunk waits for its remaining bytes.

/// The incomplete character of a stream of bytes that are probably text.
#[derive(Debug, Default)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    /// Adds bytes, and returns those that can be passed on: all but an incomplete character at the
    /// end.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.0);
        all.extend(bytes);
        let cut = match std::str::from_utf8(&all) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => all.len(),
        };
        self.0 = all.split_off(cut);
        all
    }

    /// The incomplete character at the end of the stream.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_stays_whole_and_nothing_is_lost() {
        let mut text = Text::default();
        assert_eq!(text.push(b"a\xe2\x82".to_vec()), b"a");
        assert_eq!(text.push(b"\xac!".to_vec()), "€!".as_bytes());
        assert_eq!(text.push(b"\xff\xfe".to_vec()), b"\xff\xfe");
        assert_eq!(text.push(b"\xf0\x9f".to_vec()), b"");
        assert_eq!(text.finish(), b"\xf0\x9f");
    }
}
