//! Redaction of responses: a host that repeats its request would reveal credentials to programs
//! inside. They are replaced in the head of its response, and covered in the body, which keeps its
//! length.

use zeroize::Zeroizing;

use crate::first_bytes::http::replaced;

/// Replaces each byte of a value in a body.
const COVER: u8 = b'*';

/// The redaction of one response.
#[derive(Default)]
pub(crate) struct Redaction {
    /// Each value, and its replacement in a head.
    values: Vec<(Zeroizing<Vec<u8>>, Vec<u8>)>,
    /// The end of the received bytes, if it may be the beginning of a value.
    buffered: Zeroizing<Vec<u8>>,
}

impl Redaction {
    /// Adds a value, which must not be empty.
    pub(crate) fn add(&mut self, value: &[u8], instead: &[u8]) {
        self.values.push((Zeroizing::new(value.to_vec()), instead.to_vec()));
    }

    /// A head with the values replaced.
    pub(crate) fn head(&self, bytes: &[u8]) -> Vec<u8> {
        let take_out = |bytes: Vec<u8>, (value, instead): &(Zeroizing<Vec<u8>>, Vec<u8>)| {
            replaced(&bytes, value, instead)
        };
        self.values.iter().fold(bytes.to_vec(), take_out)
    }

    /// The part of a body that can be forwarded after these bytes.
    pub(crate) fn body(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.buffered.extend_from_slice(bytes);
        let mut output = std::mem::take(&mut *self.buffered);
        let mut covered = Vec::new();
        let mut waits_from = output.len();
        for at in 0..output.len() {
            let rest = output.get(at..).unwrap_or_default();
            for (value, _) in &self.values {
                if rest.starts_with(value) {
                    covered.push(at..at + value.len());
                } else if value.starts_with(rest) {
                    waits_from = waits_from.min(at);
                }
            }
        }
        for range in covered {
            output.get_mut(range).unwrap_or_default().fill(COVER);
        }
        self.buffered = Zeroizing::new(output.split_off(waits_from));
        output
    }

    /// The remaining part of a body that has ended.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut *self.buffered)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redaction(values: &[&str]) -> Redaction {
        let mut redaction = Redaction::default();
        values.iter().for_each(|value| redaction.add(value.as_bytes(), b"[placeholder]"));
        redaction
    }

    /// The redacted body, from a body that arrives in these parts.
    fn body(values: &[&str], parts: &[&str]) -> String {
        let mut redaction = redaction(values);
        let mut output: Vec<u8> =
            parts.iter().flat_map(|part| redaction.body(part.as_bytes())).collect();
        output.extend(redaction.finish());
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn a_head_has_something_else() {
        let head = redaction(&["secret", "other"]).head(b"X-Echo: secret, other, secre\r\n");
        assert_eq!(head, b"X-Echo: [placeholder], [placeholder], secre\r\n");
    }

    #[test]
    fn a_body_keeps_its_length() {
        assert_eq!(body(&["secret"], &["a secret, and a secre"]), "a ******, and a secre");
        assert_eq!(body(&["secret", "crypt"], &["secrecrypt"]), "secre*****");
        assert_eq!(body(&["aba"], &["ababa"]), "*****");
        assert_eq!(body(&[], &["anything"]), "anything");
    }

    #[test]
    fn what_cannot_be_a_value_any_more_is_told_at_once() {
        let mut redaction = redaction(&["secret"]);
        assert_eq!(redaction.body(b"the sec"), b"the ");
        assert_eq!(redaction.body(b"ond"), b"second");
        assert_eq!(redaction.body(b"s"), b"");
        assert_eq!(redaction.finish(), b"s");
    }

    proptest! {
        #[test]
        fn it_does_not_matter_in_which_parts_it_comes(
            text in "[secrt]{0,64}secret[secrt]{0,64}",
            cuts in prop::collection::vec(0_usize..128, 0..8),
        ) {
            let whole = body(&["secret"], &[&text]);
            prop_assert!(!whole.contains("secret"));
            prop_assert_eq!(whole.len(), text.len());
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<_> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(body(&["secret"], &parts), whole);
        }
    }
}
