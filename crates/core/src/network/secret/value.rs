//! Whether the value of a secret is too easy to guess, and how values relate to each other. Values
//! are checked here and kept nowhere.
//!
//! A program inside can find out whether a whole text is the value: it makes a bound host repeat
//! the text, and sees whether it comes back covered. One response can hold many guesses, so that
//! millions of them take seconds. A value must have more chance than that.

use std::fmt;

use super::super::binding::Binding;

/// The shortest value, in bytes.
pub const LEAST_BYTES: usize = 12;
/// The least chance, in bits: at ten million guesses a second, half of them take a hundred years.
pub const LEAST_BITS: u32 = 56;

/// Why a value is refused. The text never contains a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WeakValue {
    /// It is shorter than [`LEAST_BYTES`].
    #[error("it has {0} bytes, and {LEAST_BYTES} are needed")]
    Short(usize),
    /// It consists of digits and separators.
    #[error("it consists of digits only")]
    Digits,
    /// It has less chance than [`LEAST_BITS`].
    #[error(
        "it consists of words, repetitions or sequences: a guess needs about 2^{bits} attempts, and 2^{LEAST_BITS} are needed"
    )]
    Guessable {
        /// The estimate.
        bits: u32,
    },
}

/// The longest value, in bytes.
const MOST_BYTES: usize = 8 << 10;

/// Whether a value can be the value of a header: one line of visible ASCII characters.
pub fn can_be_sent(value: &str) -> bool {
    let is_plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    let is_trimmed = value.trim() == value && !value.is_empty();
    is_trimmed && value.len() <= MOST_BYTES && value.bytes().all(is_plain)
}

/// Checks that a value cannot be guessed.
///
/// # Errors
/// [`WeakValue`] if it can.
pub fn check(value: &str) -> Result<(), WeakValue> {
    if value.len() < LEAST_BYTES {
        return Err(WeakValue::Short(value.len()));
    }
    if value.bytes().all(|byte| byte.is_ascii_digit() || is_separator(byte)) {
        return Err(WeakValue::Digits);
    }
    match bits(value.as_bytes()) {
        bits if bits < LEAST_BITS => Err(WeakValue::Guessable { bits }),
        _ => Ok(()),
    }
}

/// Two secrets of one host of which one value contains the other: whether a text contains the
/// shorter one would reveal a part of the longer one. Equal values are one value.
pub struct Contained<'a> {
    /// The secret with the longer value.
    pub outer: &'a str,
    /// The secret with the shorter one.
    pub inner: &'a str,
}

impl fmt::Debug for Contained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.inner, self.outer)
    }
}

/// The first two secrets of which one value contains the other.
pub fn contained<'a>(all: &[(&'a Binding, &str)]) -> Option<Contained<'a>> {
    let pairs = all.iter().flat_map(|outer| all.iter().map(move |inner| (outer, inner)));
    let mut found = pairs.filter(|((outer, longer), (inner, shorter))| {
        longer.len() > shorter.len() && longer.contains(shorter) && outer.shares_host(inner)
    });
    let ((outer, _), (inner, _)) = found.next()?;
    Some(Contained { outer: &outer.credential, inner: &inner.credential })
}

const fn is_separator(byte: u8) -> bool {
    matches!(byte, b'-' | b'_' | b'.' | b':' | b'/' | b'@' | b'=' | b'+' | b',' | b' ')
}

/// About how many bits a guesser lacks who tries words, repetitions and sequences first. Stops
/// counting when there are enough.
fn bits(value: &[u8]) -> u32 {
    // What is only repeated is guessed like its first part.
    let repeated = (1..=value.len() / 2).filter_map(|length| {
        let (part, rest) = value.split_at_checked(length)?;
        let is_repeated = rest.chunks(length).all(|other| other.eq_ignore_ascii_case(part));
        is_repeated.then(|| bits_of_pieces(part) + 1.0 + count(value.len() / length).log2())
    });
    let sum = repeated.fold(bits_of_pieces(value), f64::min);
    // Whole numbers that are compared with a bound; the sum is small.
    (0..LEAST_BITS).take_while(|bits| f64::from(bits + 1) <= sum).count().try_into().unwrap_or(0)
}

/// The sum over pieces from the beginning, each of which is the cheapest for its length.
fn bits_of_pieces(value: &[u8]) -> f64 {
    let literal = literal_bits(value);
    let mut at = 0;
    let mut sum = 0.0;
    while at < value.len() && sum < f64::from(LEAST_BITS) {
        let (length, bits) = [
            (1, if value.get(at).copied().is_some_and(is_separator) { 2.0 } else { literal }),
            repetition(value, at),
            sequence(value, at),
            word(value, at),
            pronounceable(value, at),
        ]
        .into_iter()
        .filter(|(length, _)| *length > 0)
        .min_by(|one, other| per_byte(*one).total_cmp(&per_byte(*other)))
        .unwrap_or((1, literal));
        at += length;
        sum += bits;
    }
    sum
}

fn per_byte((length, bits): (usize, f64)) -> f64 {
    bits / count(length)
}

/// A count as a number with a fraction. More than is ever needed counts as that.
fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The bits of one character that follows no pattern.
fn literal_bits(value: &[u8]) -> f64 {
    let is_plain = |byte: &&u8| !is_separator(**byte);
    let has = |is: fn(&u8) -> bool| value.iter().filter(is_plain).any(is);
    let is_hex = |upper: bool| {
        value.iter().filter(is_plain).all(|byte| {
            byte.is_ascii_digit()
                || matches!((byte, upper), (b'a'..=b'f', false) | (b'A'..=b'F', true))
        })
    };
    if is_hex(true) || is_hex(false) {
        return 4.0;
    }
    let kinds = [
        (26, has(u8::is_ascii_lowercase)),
        (26, has(u8::is_ascii_uppercase)),
        (10, has(u8::is_ascii_digit)),
        (24, has(u8::is_ascii_punctuation)),
    ];
    let all: u32 = kinds.iter().filter(|(_, is_there)| *is_there).map(|(number, _)| number).sum();
    f64::from(all.max(2)).log2()
}

/// The longest match with something before, of three bytes or more.
fn repetition(value: &[u8], at: usize) -> (usize, f64) {
    let same = |from: usize| {
        let rest = value.get(at..).unwrap_or_default();
        let earlier = value.get(from..).unwrap_or_default();
        rest.iter().zip(earlier).take_while(|(one, other)| one.eq_ignore_ascii_case(other)).count()
    };
    let longest = (0..at).map(same).max().unwrap_or(0);
    if longest < 3 {
        return (0, 0.0);
    }
    (longest, 1.0 + count(at).log2() + count(longest).log2())
}

/// Rows of characters that people type one after the other.
const ROWS: &[&[u8]] = &[
    b"abcdefghijklmnopqrstuvwxyz",
    b"01234567890",
    b"qwertyuiop",
    b"qwertzuiop",
    b"azertyuiop",
    b"asdfghjkl",
    b"zxcvbnm",
    b"yxcvbnm",
    b"!@#$%^&*()",
    b"1q2w3e4r5t6y7u8i9o0p",
    b"qazwsxedcrfvtgbyhnujmikolp",
];

/// The longest part of a row in either direction, or of one character, of three bytes or more.
fn sequence(value: &[u8], at: usize) -> (usize, f64) {
    let rest = value.get(at..).unwrap_or_default();
    let follows = |row: &[u8], pair: &[u8]| {
        row.windows(2).any(|next| {
            next.eq_ignore_ascii_case(pair)
                || (next[0].eq_ignore_ascii_case(&pair[1])
                    && next[1].eq_ignore_ascii_case(&pair[0]))
        })
    };
    let along = |row: &&[u8]| rest.windows(2).take_while(|pair| follows(row, pair)).count() + 1;
    let same = rest.windows(2).take_while(|pair| pair[0] == pair[1]).count() + 1;
    let longest = ROWS.iter().map(along).max().unwrap_or(0).max(same);
    if longest < 3 { (0, 0.0) } else { (longest, 5.0 + count(longest).log2()) }
}

/// What a character is often written for.
const fn fold(byte: u8) -> u8 {
    match byte {
        b'0' => b'o',
        b'1' | b'!' | b'|' => b'i',
        b'3' => b'e',
        b'4' | b'@' => b'a',
        b'5' | b'$' => b's',
        b'7' => b't',
        other => other.to_ascii_lowercase(),
    }
}

/// Words of passwords and placeholders, which are also found within other text.
const WORDS: &str = "\
    abcdef access account admin administrator alpha apikey auth banana baseball batman battery \
    bearer changeit changeme charlie client company computer correct credential database \
    default demo develop dragon dummy example fake flower football freedom god google guest \
    hello horse hunter iloveyou internet jordan key letmein live localhost login love master \
    michael monkey mustang mysecret mypass ninja none null openai pass passphrase passw passwd \
    password placeholder please postgres prince princess private prod production public qwerty \
    random replace root sample secret secure server service shadow spring staging staple \
    starwars stripe summer sunshine superman supersecret system temp temporary test testing \
    this token trustno undefined user username value welcome whatever winter world your xxxx \
    zzzz";

/// The longest known word.
fn word(value: &[u8], at: usize) -> (usize, f64) {
    let rest = value.get(at..).unwrap_or_default();
    let is_here = |word: &&str| {
        rest.len() >= word.len()
            && word.bytes().zip(rest).all(|(one, other)| fold(one) == fold(*other))
    };
    let longest = WORDS.split(' ').filter(is_here).map(|word| word.len()).max();
    longest.map_or((0, 0.0), |length| (length, 8.0))
}

/// The bits of one letter of a word in a natural language.
const LETTER_BITS: f64 = 2.0;

/// Letters of one case, or with a capital first, that sound like words: four or more, with vowels,
/// and without four consonants in a row.
fn pronounceable(value: &[u8], at: usize) -> (usize, f64) {
    let rest = value.get(at..).unwrap_or_default();
    let is_upper = rest.get(1).is_some_and(u8::is_ascii_uppercase);
    let is_like = |(index, byte): &(usize, &u8)| match index {
        0 => byte.is_ascii_alphabetic() && (!is_upper || byte.is_ascii_uppercase()),
        _ => byte.is_ascii_alphabetic() && byte.is_ascii_uppercase() == is_upper,
    };
    let mut consonants = 0;
    let mut vowels = 0;
    let mut length = 0;
    for (_, byte) in rest.iter().enumerate().take_while(is_like) {
        if b"aeiouyAEIOUY".contains(byte) {
            vowels += 1;
            consonants = 0;
        } else {
            consonants += 1;
            if consonants == 4 {
                break;
            }
        }
        length += 1;
    }
    if length < 4 || vowels * 5 < length {
        return (0, 0.0);
    }
    (length, 1.0 + LETTER_BITS * count(length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_can_be_guessed_is_refused() {
        for value in [
            "",
            "x",
            "hunter2",
            "sk-live",
            "short-one",
            "123456789012",
            "1234-5678-9012-3456",
            "31415926535897932384626433832795",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "abababababababababababababab",
            "passwordpassword",
            "Password123456",
            "P4ssw0rd!P4ssw0rd!",
            "correcthorsebatterystaple",
            "correct-horse-battery",
            "qwertyuiopasdfghjkl",
            "abcdefghijklmnopqrstuvwxyz",
            "zyxwvutsrqponmlkjihgfedcba",
            "changeme-changeme-changeme",
            "supersecrettoken",
            "my-secret-password",
            "sk-live-test-test-test",
            "letmein123letmein123",
            "administrator2024",
            "deadbeefdeadbeefdeadbeef",
            "0123456789abcdef",
            "----------------------------",
            "placeholder-value-here",
            "1q2w3e4r5t6y7u8i",
            "Summer2024!Summer2024!",
            "xxxxxxxxxxxxxxxxxxxxxxxx",
        ] {
            assert!(check(value).is_err(), "{value}: {}", bits(value.as_bytes()));
        }
    }

    #[test]
    fn keys_of_services_are_accepted() {
        for value in [
            "sk-live-ZQ7xK2mPvL9wR4tYbN8c",
            "sk-live-ZQ7xK2mPvL9wR4tY",
            "ghp_1aB2cD3eF4gH5iJ6kL7mN8oP9qR0sT1uV2w",
            "f47ac10b-58cc-4372-a567-0e02b2c3d479",
            "9f86d081884c7d659a2feaa0c55ad015",
            "AKIAIOSFODNN7QZXWVBT",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzKQWVTUPE",
            "xK9#mP2$vL5q",
            "Tr0ub4dor&3-kGq8vZ2p",
            "glpat-zX8_kQ2vN5mR7tWyB3dL",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1c2VyIn0.q8Zb1vT3xK0mWcY5rN7pLd2sHj4fGa9e",
            "sk-the-real-value-that-nobody-inside-has",
        ] {
            assert_eq!(check(value), Ok(()), "{value}");
        }
    }

    #[test]
    fn a_reason_contains_no_part_of_the_value() {
        for value in ["hunter2hunter2", "zebra", "918273645546372819"] {
            let text = check(value).unwrap_err().to_string();
            assert!(!text.contains(value.get(..3).unwrap()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn random_keys_are_accepted(
            hex in "[0-9a-f]{32}",
            base in "[A-Za-z0-9]{20}",
            url in "[A-Za-z0-9_-]{22}",
            typed in "[!-~]{20}",
        ) {
            for value in [&hex, &base, &url, &typed] {
                prop_assert_eq!(check(value), Ok(()), "{}", value);
            }
        }

        #[test]
        fn any_text_is_measured(text in "[ -~]{0,80}", again in 1_usize..40) {
            let once = bits(text.as_bytes());
            prop_assert!(once <= LEAST_BITS);
            // A repetition adds almost nothing.
            let repeated = text.repeat(again);
            prop_assert!(bits(repeated.as_bytes()) <= (once + 30).min(LEAST_BITS));
        }
    }
}
