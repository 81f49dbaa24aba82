//! Redaction of responses: a host that repeats its request would reveal credentials to programs
//! inside. They are replaced in the heads of its response, and covered in the body, which keeps its
//! length.
//!
//! A program inside must not learn a part of a value from what it receives, or from when it
//! receives it. The only inputs of that decision are therefore the received bytes, the lengths of
//! the values, and whether a value occurs as a whole: the end of a body is held back because its
//! bytes could belong to any value of that length, never because they are the beginning of one.

mod decoding;
mod pattern;

use std::ops::Range;

use zeroize::Zeroizing;

use decoding::{Decoded, LONGEST_ESCAPE};
use pattern::Pattern;

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

/// The values that are redacted from one response.
#[derive(Default)]
pub(crate) struct Redaction {
    /// Those with the same number of bytes are next to each other.
    values: Vec<Pattern>,
    /// The longest form that a value of these lengths can have.
    longest_form: usize,
    /// Whether values are also found where they are escaped.
    reads_escapes: bool,
}

impl Redaction {
    /// Adds a value, which must not be empty.
    pub(crate) fn add(&mut self, value: &[u8], instead: &[u8]) {
        self.add_pattern(Pattern::new(value, instead));
    }

    fn add_pattern(&mut self, pattern: Pattern) {
        if self.values.iter().any(|other| other.is_same(&pattern)) {
            return;
        }
        let length = pattern.bytes.len();
        let at = self.values.partition_point(|other| other.bytes.len() >= length);
        self.values.insert(at, pattern);
    }

    /// Adds the forms in which a host may repeat a value as a whole: as hexadecimal digits, as base64,
    /// also as a part of a longer text, and with escapes of any of its characters. What is held back
    /// depends on the length of the value only.
    pub(crate) fn add_forms(&mut self, value: &[u8], instead: &[u8]) {
        let hex = |upper: bool| -> Zeroizing<String> {
            let digits =
                |byte: &u8| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") };
            Zeroizing::new(value.iter().map(digits).collect())
        };
        self.add(hex(false).as_bytes(), instead);
        self.add(hex(true).as_bytes(), instead);
        // In a form of HTML, a space is a plus.
        let form: Zeroizing<Vec<u8>> = Zeroizing::new(
            value.iter().map(|byte| if *byte == b' ' { b'+' } else { *byte }).collect(),
        );
        self.add(&form, instead);
        for pattern in Pattern::in_base64(value, instead) {
            self.add_pattern(pattern);
        }
        // Hosts that ignore the case of letters write one case, and some write from right to left.
        let mut other = Zeroizing::new(value.to_ascii_lowercase());
        self.add(&other, instead);
        other.make_ascii_uppercase();
        self.add(&other, instead);
        let mut reversed = Zeroizing::new(value.to_vec());
        reversed.reverse();
        self.add(&reversed, instead);
        self.reads_escapes = true;
        self.longest_form = self.longest_form.max(value.len().saturating_mul(LONGEST_ESCAPE));
    }

    /// Whether there is any value.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// A part of a head with the values replaced.
    pub(crate) fn head(&self, bytes: &[u8]) -> Vec<u8> {
        let mut places: Vec<(Range<usize>, &[u8])> = Vec::new();
        self.find(bytes, 0, |place, pattern| places.push((place, &pattern.instead)));
        // Of several at one place, the longest; the rest of another one goes with it.
        places.sort_by_key(|(place, _)| (place.start, std::cmp::Reverse(place.end)));
        let (mut result, mut shown) = (Vec::with_capacity(bytes.len()), 0);
        for (place, instead) in places {
            if place.start >= shown {
                result.extend_from_slice(bytes.get(shown..place.start).unwrap_or_default());
                result.extend_from_slice(instead);
            }
            shown = shown.max(place.end);
        }
        result.extend_from_slice(bytes.get(shown..).unwrap_or_default());
        result
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
        self.find(bytes, known, |place, _| {
            let range = place.start.saturating_sub(before)..place.end.saturating_sub(before);
            shown.get_mut(range).unwrap_or_default().fill(COVER);
        });
    }

    /// Calls `found` with the place of each value that ends after `known`.
    fn find<'a>(
        &'a self,
        bytes: &[u8],
        known: usize,
        mut found: impl FnMut(Range<usize>, &'a Pattern),
    ) {
        for patterns in self.of_each_length() {
            let longest = patterns.iter().map(Pattern::length).max().unwrap_or(0);
            let from = (known + 1).saturating_sub(longest);
            pattern::find(
                patterns,
                bytes.get(from..).unwrap_or_default(),
                |start, end, pattern| {
                    found(from + start..from + end, pattern);
                },
            );
        }
        if !self.reads_escapes {
            return;
        }
        Decoded::each(bytes, |decoded| self.find_in(decoded, &mut found));
    }

    fn find_in<'a>(&'a self, decoded: &Decoded, found: &mut impl FnMut(Range<usize>, &'a Pattern)) {
        for patterns in self.of_each_length() {
            pattern::find(patterns, &decoded.bytes, |start, end, pattern| {
                found(decoded.place(start, end), pattern);
            });
        }
    }

    fn of_each_length(&self) -> impl Iterator<Item = &[Pattern]> {
        self.values.chunk_by(|one, other| one.bytes.len() == other.bytes.len())
    }

    /// How many bytes of a value can have arrived without the last one.
    fn longest_part(&self) -> usize {
        let longest = self.values.iter().map(Pattern::length).max().unwrap_or(0);
        longest.max(self.longest_form).saturating_sub(1)
    }
}

/// How many of the last bytes could belong to any value, and no more than `most`: values are one line of
/// visible ASCII characters, which wider encodings separate by zeros, and some writers break into lines.
/// The same for all values.
fn last_run(bytes: &[u8], most: usize) -> usize {
    let least = bytes.len().saturating_sub(most);
    let mut start = bytes.len();
    while start > least {
        let Some((byte, before)) = bytes.get(..start).and_then(<[u8]>::split_last) else { break };
        let may_belong = match byte {
            0 | b' '..=b'~' => true,
            b'\r' | b'\n' => decoding::is_broken_line(before),
            _ => false,
        };
        if !may_belong {
            break;
        }
        start -= 1;
    }
    bytes.len() - start
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

    /// Adds bytes, and forwards all but the end of the last run that could belong to a value: as much as
    /// the longest value has without its last byte.
    pub(crate) fn push(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        if self.redaction.is_empty() {
            return output.extend_from_slice(bytes);
        }
        let known = self.raw.len();
        self.raw.extend_from_slice(bytes);
        self.held.extend_from_slice(bytes);
        self.redaction.cover(&self.raw, known, &mut self.held);
        let most = self.redaction.longest_part();
        let run = last_run(&self.raw, most);
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

    /// Ways to write a text, each of which leaves some characters as they are.
    fn written(value: &str) -> Vec<String> {
        let each = |escape: &dyn Fn(char) -> String, rare: bool| -> String {
            let is_plain = |at: usize| rare && !at.is_multiple_of(3);
            let character = |(at, own): (usize, char)| match is_plain(at) {
                true => own.to_string(),
                false => escape(own),
            };
            value.chars().enumerate().map(character).collect()
        };
        let code = |own: char| u32::from(own);
        let escapes: [&dyn Fn(char) -> String; 7] = [
            &|own| format!("%{:02X}", code(own)),
            &|own| format!("%{:02x}", code(own)),
            &|own| format!("\\u{:04x}", code(own)),
            &|own| format!("\\x{:02x}", code(own)),
            &|own| format!("&#{};", code(own)),
            &|own| format!("&#x{:X};", code(own)),
            &|own| format!("&#x{:06x};", code(own)),
        ];
        escapes.iter().flat_map(|escape| [each(escape, false), each(escape, true)]).collect()
    }

    #[test]
    fn a_value_is_found_in_each_form() {
        use base64::Engine as _;
        use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

        let value = "tok_9f~?>&\"'</ 81d77a";
        let mut all = written(value);
        all.push(value.replace('"', "\\\"").replace('/', "\\/"));
        all.push(value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"));
        all.push(value.replace(' ', "+"));
        all.push(value.bytes().map(|byte| format!("{byte:02x}")).collect());
        for before in ["", "u", "us:", "user:"] {
            let text = format!("{before}{value}{before}");
            all.extend([STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)]);
            // Base64 in JSON, and in the query of a link.
            all.push(STANDARD.encode(&text).replace('/', "\\/"));
            all.push(STANDARD.encode(&text).replace('/', "%2F").replace('+', "%2b"));
        }
        let mut forms = redaction(&[value]);
        forms.add_forms(value.as_bytes(), b"[placeholder]");
        for form in all {
            let text = format!("[{form}]");
            let covered = String::from_utf8(forms.whole(text.as_bytes())).unwrap();
            let left = covered.chars().filter(|character| *character != '*').count();
            assert!(left < 20, "{text} {covered}");
            assert_eq!(covered.len(), text.len());
            let head = String::from_utf8(forms.head(text.as_bytes())).unwrap();
            assert!(head.contains("[placeholder]"), "{text} {head}");
            for cut in 0..text.len() {
                let mut own = redaction(&[value]);
                own.add_forms(value.as_bytes(), b"[placeholder]");
                let mut body = BodyRedaction::new(own);
                let mut output = Vec::new();
                body.push(&text.as_bytes()[..cut], &mut output);
                body.push(&text.as_bytes()[cut..], &mut output);
                body.release(&mut output);
                assert_eq!(String::from_utf8(output).unwrap(), covered, "{cut}");
            }
        }
    }

    /// Basic authentication that a host repeats in base64, a token with JSON in it, and others.
    #[test]
    fn a_value_is_found_in_a_text_that_is_encoded_as_a_whole() {
        use base64::Engine as _;
        use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

        let value = "tok_9f~?>&\"'</ 81d77a";
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let wide: Vec<u8> = value.bytes().flat_map(|byte| [byte, 0]).collect();
        let mut all = vec![STANDARD.encode(&wide)];
        for before in ["", "a", "ab", "abc"] {
            for inner in [
                STANDARD.encode(value),
                STANDARD.encode(format!("user:{value}")),
                hex(value),
                value.replace('"', "\\\"").replace('/', "\\/"),
                percent_encoded(value.as_bytes()),
            ] {
                let text = format!("{before} {inner}");
                all.extend([STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text), hex(&text)]);
                // Base64 in JSON, and in lines.
                all.push(STANDARD.encode(&text).replace('/', "\\/"));
                let lines = STANDARD.encode(format!("{}{text}", "x".repeat(60)));
                let (one, two) = lines.split_at(76);
                all.push(format!("{one}\r\n{two}"));
            }
        }
        for form in all {
            let text = format!("{{\"a\": \"{form}\"}}");
            let own = || {
                let mut own = redaction(&[value]);
                own.add_forms(value.as_bytes(), b"[placeholder]");
                own
            };
            let covered = String::from_utf8(own().whole(text.as_bytes())).unwrap();
            let stars = covered.matches('*').count();
            assert!(stars >= value.len() && covered.ends_with("\"}"), "{text} {covered}");
            let longest = form.len() - 20 - (form.len() - 20) / 3;
            assert!(form.contains("\r\n") || stars >= longest, "{text} {covered}");
            for cut in (0..text.len()).step_by(7) {
                let mut body = BodyRedaction::new(own());
                let mut output = Vec::new();
                body.push(&text.as_bytes()[..cut], &mut output);
                body.push(&text.as_bytes()[cut..], &mut output);
                body.release(&mut output);
                assert_eq!(String::from_utf8(output).unwrap(), covered, "{cut}");
            }
        }
    }

    /// What a host does that writes for other readers, or writes what was written already.
    #[test]
    fn a_value_is_found_in_rarer_forms() {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;

        let value = "Tok_9f/Q2+x81D77a=b";
        let each = |form: &dyn Fn(u8) -> String, between: &str| {
            value.bytes().map(form).collect::<Vec<_>>().join(between)
        };
        let json = |text: &str| serde_json::to_string(text).unwrap();
        let percent = |text: &str| percent_encoded(text.as_bytes());
        let page = |text: &str| text.replace('/', "&#x2F;").replace('=', "&equals;");
        let mut all = vec![
            value.chars().rev().collect(),
            value.to_lowercase(),
            value.to_uppercase(),
            each(&|byte| format!("{}\0", char::from(byte)), ""),
            each(&|byte| format!("\0\0\0{}", char::from(byte)), ""),
            each(&|byte| byte.to_string(), ","),
            each(&|byte| byte.to_string(), ",\n    "),
            each(&|byte| format!("{byte:02x}"), " "),
            each(&|byte| format!("0x{byte:02X}"), ", "),
            each(&|byte| format!("\\{byte:03o}"), ""),
            each(&|byte| format!("\\u{{{byte:x}}}"), ""),
            each(&|byte| format!("={byte:02X}"), ""),
            value.replace('/', "=\r\n/").replace('=', "=3D").replacen("=3D\r", "=\r", 1),
            json(&json(&value.replace('/', "\\/"))),
            percent(&percent(value)),
            json(&page(value)),
            page(value).replace('&', "\\u0026"),
            percent(&page(value)),
        ];
        // Lines of base64 end anywhere in the value, as in mail and in texts of JSON.
        for at in 33..57 {
            let encoded = STANDARD.encode(format!("{}{value}{}", "u".repeat(24), "v".repeat(24)));
            let (first, second) = encoded.split_at(at);
            all.extend(["\n", "\r\n", "\\n", "\\r\\n"].map(|end| format!("{first}{end}{second}")));
        }
        for form in all {
            let text = format!("[{form}]");
            let forms = || {
                let mut forms = redaction(&[value]);
                forms.add_forms(value.as_bytes(), b"[placeholder]");
                forms
            };
            let covered = forms().whole(text.as_bytes());
            let count = covered.iter().filter(|byte| **byte == COVER).count();
            assert!(count >= value.len(), "{text} {}", String::from_utf8_lossy(&covered));
            for cut in 0..text.len() {
                let mut body = BodyRedaction::new(forms());
                let mut output = Vec::new();
                body.push(&text.as_bytes()[..cut], &mut output);
                body.push(&text.as_bytes()[cut..], &mut output);
                body.release(&mut output);
                assert_eq!(
                    String::from_utf8_lossy(&output),
                    String::from_utf8_lossy(&covered),
                    "{cut}"
                );
            }
        }
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
            let with_forms = |value: &str| {
                let mut redaction = redaction(&[value]);
                redaction.add_forms(value.as_bytes(), b"[placeholder]");
                let mut body = BodyRedaction::new(redaction);
                let push = |piece: &&str| {
                    let mut output = Vec::new();
                    body.push(piece.as_bytes(), &mut output);
                    output
                };
                arriving.iter().map(push).collect::<Vec<_>>()
            };
            prop_assert_eq!(with_forms(one), with_forms(other));
            let longer = "ABCDEFGHIJKLMNOP";
            prop_assert_eq!(
                pieces(&[one, longer], &arriving),
                pieces(&[other, longer], &arriving)
            );
        }
    }
}
