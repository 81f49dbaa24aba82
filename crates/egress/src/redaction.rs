//! Redaction of responses: a host that repeats its request would reveal credentials to programs
//! inside. They are replaced in the heads of its response, and covered in the body, which keeps its
//! length.
//!
//! A program inside must not learn a part of a value from what it receives, or from when it
//! receives it. The only inputs of that decision are therefore the received bytes, the lengths of
//! the values, and whether a value occurs as a whole: the end of a body is held back because its
//! bytes could belong to any value of that length, never because they are the beginning of one.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use crate::first_bytes::http::replaced;

/// Replaces each byte of a value in a body.
const COVER: u8 = b'*';

/// A value as it is written in a query.
pub(crate) fn percent_encoded(value: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut text = String::with_capacity(value.len());
    for byte in value {
        if is_plain(*byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The same percent-encoding with small letters as digits.
fn with_lower_digits(encoded: &str) -> String {
    let mut left = 0;
    let lower = |character: char| {
        if character == '%' {
            left = 3;
        }
        left = i32::max(left - 1, -1);
        if left >= 0 { character.to_ascii_lowercase() } else { character }
    };
    encoded.chars().map(lower).collect()
}

/// The values that are redacted from one response.
#[derive(Default)]
pub(crate) struct Redaction {
    /// The longest first, because one may contain another one.
    values: Vec<Pattern>,
    /// The longest form that a value of these lengths can have.
    longest_form: usize,
}

/// One value.
struct Pattern {
    value: Zeroizing<Vec<u8>>,
    /// Its replacement in a head.
    instead: Vec<u8>,
    hash: u64,
}

/// The odd base of the rolling hash.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of some bytes.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |hash: u64, byte| hash.wrapping_mul(BASE).wrapping_add(u64::from(*byte) + 1))
}

impl Pattern {
    /// Calls `found` with the start of each occurrence.
    ///
    /// The search compares hashes of whole windows, so that its duration does not depend on how
    /// long a part of the value the bytes begin with.
    fn find(&self, bytes: &[u8], mut found: impl FnMut(usize)) {
        let length = self.value.len();
        let Some((first, _)) = bytes.split_at_checked(length) else { return };
        // The weight of the byte that leaves the window.
        let leaving = (1..length).fold(1_u64, |weight, _| weight.wrapping_mul(BASE));
        let mut window = hash(first);
        for start in 0..=bytes.len() - length {
            if window == self.hash
                && bytes.get(start..start + length) == Some(self.value.as_slice())
            {
                found(start);
            }
            if let (Some(old), Some(new)) = (bytes.get(start), bytes.get(start + length)) {
                window = window
                    .wrapping_sub((u64::from(*old) + 1).wrapping_mul(leaving))
                    .wrapping_mul(BASE)
                    .wrapping_add(u64::from(*new) + 1);
            }
        }
    }
}

impl Redaction {
    /// Adds a value, which must not be empty.
    pub(crate) fn add(&mut self, value: &[u8], instead: &[u8]) {
        if self.values.iter().any(|pattern| pattern.value.as_slice() == value) {
            return;
        }
        let value = Zeroizing::new(value.to_vec());
        let at = self.values.partition_point(|other| other.value.len() >= value.len());
        let hash = hash(&value);
        self.values.insert(at, Pattern { value, instead: instead.to_vec(), hash });
    }

    /// Adds the forms in which a host may repeat a value as a whole: as base64, as hexadecimal digits,
    /// with percent-encoding, and as JSON. What is held back depends on the length of the value only.
    pub(crate) fn add_forms(&mut self, value: &[u8], instead: &[u8]) {
        let hex = |upper: bool| -> String {
            let digits =
                |byte: &u8| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") };
            value.iter().map(digits).collect()
        };
        let json = String::from_utf8_lossy(value).replace('\\', "\\\\").replace('"', "\\\"");
        let percent = percent_encoded(value);
        let forms = [
            STANDARD_NO_PAD.encode(value),
            URL_SAFE_NO_PAD.encode(value),
            hex(false),
            hex(true),
            with_lower_digits(&percent),
            percent,
            json.replace('/', "\\/"),
            json,
        ];
        for form in forms.map(|form| Zeroizing::new(form.into_bytes())) {
            if form.len() > value.len() || form.as_slice() != value {
                self.add(&form, instead);
            }
        }
        self.longest_form = self.longest_form.max(value.len().saturating_mul(3));
    }

    /// A part of a head with the values replaced.
    pub(crate) fn head(&self, bytes: &[u8]) -> Vec<u8> {
        let take_out =
            |bytes: Vec<u8>, pattern: &Pattern| replaced(&bytes, &pattern.value, &pattern.instead);
        self.values.iter().fold(bytes.to_vec(), take_out)
    }

    /// Bytes with the values covered.
    pub(crate) fn whole(&self, bytes: &[u8]) -> Vec<u8> {
        let mut result = bytes.to_vec();
        self.cover(bytes, 0, &mut result);
        result
    }

    /// Covers the values of `bytes` in `shown`, which are its last bytes. Only those that end after
    /// `known` are looked for.
    fn cover(&self, bytes: &[u8], known: usize, shown: &mut [u8]) {
        let before = bytes.len() - shown.len();
        for pattern in &self.values {
            let length = pattern.value.len();
            let from = (known + 1).saturating_sub(length);
            pattern.find(bytes.get(from..).unwrap_or_default(), |start| {
                let start = from + start;
                let range = start.saturating_sub(before)..(start + length).saturating_sub(before);
                shown.get_mut(range).unwrap_or_default().fill(COVER);
            });
        }
    }

    /// How many bytes of a value can have arrived without the last one.
    fn longest_part(&self) -> usize {
        let longest = self.values.first().map_or(0, |pattern| pattern.value.len());
        longest.max(self.longest_form).saturating_sub(1)
    }
}

/// Whether any value could contain a byte: values are one line of visible ASCII characters. The
/// same for all values.
const fn may_belong(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// The redaction of one body.
pub(crate) struct BodyRedaction {
    redaction: Redaction,
    /// The last bytes as they came, in which the beginning of a value may be.
    raw: Zeroizing<Vec<u8>>,
    /// The last ones of them, covered, that are not forwarded yet.
    held: Zeroizing<Vec<u8>>,
}

impl BodyRedaction {
    pub(crate) fn new(redaction: Redaction) -> Self {
        Self { redaction, raw: Zeroizing::default(), held: Zeroizing::default() }
    }

    /// The redaction for the parts of the response that are not its body.
    pub(crate) const fn values(&self) -> &Redaction {
        &self.redaction
    }

    /// Whether some bytes are not forwarded yet.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Adds bytes, and forwards all but the end of their last run of visible characters: as much as
    /// the longest value has without its last byte.
    pub(crate) fn push(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        let known = self.raw.len();
        self.raw.extend_from_slice(bytes);
        self.held.extend_from_slice(bytes);
        self.redaction.cover(&self.raw, known, &mut self.held);
        let most = self.redaction.longest_part();
        let run = self.raw.iter().rev().take(most).take_while(|byte| may_belong(**byte)).count();
        let forwarded = self.held.len().saturating_sub(run);
        output.extend(self.held.drain(..forwarded));
        let context = self.raw.len().saturating_sub(most);
        self.raw.drain(..context);
    }

    /// Forwards everything. The end still counts as the possible beginning of a value.
    pub(crate) fn release(&mut self, output: &mut Vec<u8>) {
        output.extend(self.held.drain(..));
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

    /// The pieces of a redacted body that arrives in these pieces.
    fn pieces(values: &[&str], arriving: &[&str]) -> Vec<String> {
        let mut redaction = BodyRedaction::new(redaction(values));
        let mut all: Vec<Vec<u8>> = Vec::new();
        for piece in arriving {
            let mut output = Vec::new();
            redaction.push(piece.as_bytes(), &mut output);
            all.push(output);
        }
        let mut rest = Vec::new();
        redaction.release(&mut rest);
        all.push(rest);
        all.into_iter().map(|piece| String::from_utf8(piece).unwrap()).collect()
    }

    fn body(values: &[&str], arriving: &[&str]) -> String {
        pieces(values, arriving).concat()
    }

    #[test]
    fn a_head_has_the_placeholder() {
        let head = redaction(&["secret", "other"]).head(b"X-Echo: secret, other, secre\r\n");
        assert_eq!(head, b"X-Echo: [placeholder], [placeholder], secre\r\n");
        // The longer value is replaced as a whole.
        let head = redaction(&["ecre", "secret"]).head(b"secret");
        assert_eq!(head, b"[placeholder]");
    }

    #[test]
    fn a_body_keeps_its_length() {
        assert_eq!(body(&["secret"], &["a secret, and a secre"]), "a ******, and a secre");
        assert_eq!(body(&["secret", "crypt"], &["secrecrypt"]), "secre*****");
        assert_eq!(body(&["secret", "crypt"], &["secrec", "rypt"]), "secre*****");
        assert_eq!(body(&["aba"], &["ababa"]), "*****");
        assert_eq!(body(&["aba"], &["aba", "ba"]), "*****");
        assert_eq!(body(&["secret", "tar"], &["secre", "t", "ar"]), "********");
        assert_eq!(body(&[], &["anything"]), "anything");
    }

    #[test]
    fn the_end_of_a_run_is_held_back_whatever_it_is() {
        for guess in ["the sec", "the xyz", "the  - "] {
            assert_eq!(pieces(&["secret"], &[guess]), [&guess[..2], &guess[2..]], "{guess}");
        }
        // A byte that no value contains ends a run.
        assert_eq!(pieces(&["secret"], &["the sec\n"]), ["the sec\n", ""]);
        assert_eq!(pieces(&["secret"], &["data: secre\n\nx"]), ["data: secre\n\n", "x"]);
        assert_eq!(pieces(&["secret"], &["s", "e", "c"]), ["", "", "", "sec"]);
    }

    #[test]
    fn what_was_released_still_begins_a_value() {
        let mut redaction = BodyRedaction::new(redaction(&["secret"]));
        let mut output = Vec::new();
        redaction.push(b"a secr", &mut output);
        redaction.release(&mut output);
        assert!(!redaction.holds());
        redaction.push(b"et.\n", &mut output);
        assert_eq!(output, b"a secr**.\n");
    }

    /// Cuts of a text, from any numbers.
    fn cut<'a>(text: &'a str, cuts: &[usize]) -> Vec<&'a str> {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn it_does_not_matter_in_which_pieces_it_comes(
            text in "[secrt]{0,64}secret[secrt]{0,64}",
            cuts in prop::collection::vec(0_usize..256, 0..8),
        ) {
            let values = ["secret", "cret", "ttsecre"];
            let whole = body(&values, &[&text]);
            prop_assert!(!whole.contains("secret"));
            prop_assert_eq!(whole.len(), text.len());
            prop_assert_eq!(body(&values, &cut(&text, &cuts)), whole);
        }

        /// Bodies that contain the value only in part, and another value of its length.
        #[test]
        fn a_part_of_a_value_has_no_effect(
            parts in prop::collection::vec((0_usize..12, 0_usize..12, "[a-c \n]{0,3}"), 0..12),
            cuts in prop::collection::vec(0_usize..256, 0..8),
        ) {
            let (one, other) = ("abcabcaabbcc", "zyxwvutsrqpo");
            let text: String = parts
                .iter()
                .map(|(from, to, text)| format!("{}{text}", one.get(*from..*to).unwrap_or("")))
                .collect();
            prop_assume!(!text.contains(one));
            let arriving = cut(&text, &cuts);
            prop_assert_eq!(pieces(&[one], &arriving), pieces(&[other], &arriving));
            let longer = "ABCDEFGHIJKLMNOP";
            prop_assert_eq!(
                pieces(&[one, longer], &arriving),
                pieces(&[other, longer], &arriving)
            );
        }
    }
}
