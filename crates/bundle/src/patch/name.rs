//! Paths in diffs. They are put in double quotes with C escapes if they could mislead git or a
//! reader.

use stockade_core::printable::is_printable;

use crate::path::RelativePath;

/// `prefix` and the path, in the form of a diff.
pub(super) fn quote(prefix: &str, path: &RelativePath) -> Vec<u8> {
    let bytes = path.as_bytes();
    let is_plain = std::str::from_utf8(bytes)
        .is_ok_and(|text| !text.contains(['"', '\\']) && is_printable(text));
    if is_plain {
        return [prefix.as_bytes(), bytes].concat();
    }
    let mut quoted = format!("\"{prefix}").into_bytes();
    for byte in bytes {
        match byte {
            b'\n' => quoted.extend(b"\\n"),
            b'\t' => quoted.extend(b"\\t"),
            b'\r' => quoted.extend(b"\\r"),
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b' '..=b'~' => quoted.push(*byte),
            other => quoted.extend(format!("\\{other:03o}").bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}

/// Parses a quoted name at the start of `text`. Returns the name and the rest. `None` if it is
/// not closed or has an escape that C does not define.
pub(super) fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut name = Vec::new();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (escape, after) = rest.split_first()?;
                rest = after;
                name.push(match escape {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'"' | b'\\' => *escape,
                    b'0'..=b'3' => {
                        let (digits, after) = rest.split_at_checked(2)?;
                        rest = after;
                        let digit = |b: u8| matches!(b, b'0'..=b'7').then(|| b - b'0');
                        (escape - b'0') * 64 + digit(digits[0])? * 8 + digit(digits[1])?
                    }
                    _ => return None,
                });
            }
            other => name.push(*other),
        }
    }
}
