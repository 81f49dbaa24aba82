//! The binary patches of git: both contents, deflated, in base 85 (`git-apply` of git 1.4 and later).

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest as _, Sha1};

use super::sides::Content;
use super::source::Source;

/// Larger contents are only described: the text would be too long to be of use.
const MAX_BYTES: u64 = 64 << 20;

/// How many bytes a line has at most.
const LINE_BYTES: usize = 52;

pub(super) const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// The name that git gives to no object.
const NO_OBJECT: &str = "0000000000000000000000000000000000000000";

/// The lines of a patch that replaces a content; `None` if they cannot be written.
pub(super) fn patch(old: Option<&Content>, new: Option<&Content>) -> Option<String> {
    let read = |content: Option<&Content>| match content {
        None => Some(None),
        Some(content) => bytes(content).map(Some),
    };
    let (old, new) = (read(old)?, read(new)?);
    let mut text =
        format!("index {}..{}\nGIT binary patch\n", name(old.as_deref()), name(new.as_deref()));
    for content in [new, old] {
        literal(&mut text, &content.unwrap_or_default())?;
    }
    Some(text)
}

fn bytes(content: &Content) -> Option<Vec<u8>> {
    let source: &Source = match content {
        Content::Text(text) => &text.source,
        Content::Binary { source, .. } => &source.0,
        Content::Unknown(_) => return None,
    };
    if source.size() > MAX_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    source.each(|part| bytes.extend_from_slice(part)).ok()?;
    Some(bytes)
}

/// The name that git gives to a content.
fn name(content: Option<&[u8]>) -> String {
    let Some(content) = content else { return NO_OBJECT.to_owned() };
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", content.len()));
    hasher.update(content);
    let mut name = String::new();
    for byte in hasher.finalize() {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn literal(text: &mut String, content: &[u8]) -> Option<()> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).ok()?;
    let deflated = encoder.finish().ok()?;
    text.push_str(&format!("literal {}\n", content.len()));
    for piece in deflated.chunks(LINE_BYTES) {
        line(text, piece)?;
    }
    text.push('\n');
    Some(())
}

/// Writes one line of base 85, which begins with the number of its bytes.
pub(super) fn line(text: &mut String, piece: &[u8]) -> Option<()> {
    let length = u8::try_from(piece.len()).ok()?;
    text.push(char::from(match length {
        1..=26 => b'A' + length - 1,
        _ => b'a' + length - 27,
    }));
    for group in piece.chunks(4) {
        let mut value = [0; 4];
        value[..group.len()].copy_from_slice(group);
        let mut value = u32::from_be_bytes(value);
        let mut digits = [0; 5];
        for digit in digits.iter_mut().rev() {
            *digit = DIGITS[(value % 85) as usize];
            value /= 85;
        }
        text.extend(digits.map(char::from));
    }
    text.push('\n');
    Some(())
}
