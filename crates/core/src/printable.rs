//! Characters that a reader cannot see or that change how a text is displayed, and texts of a sandbox
//! with these characters escaped. Every place that prints a name or a message from a sandbox uses
//! this one decision; only the notation of the escapes differs.

use std::borrow::Cow;

/// Up to this many combining marks in a row are displayed as they are.
const MARKS: usize = 3;

/// Whether a character is invisible by itself or controls the display of others: control and format
/// characters, line and paragraph separators, and what Unicode lets programs ignore.
pub const fn is_hidden(c: char) -> bool {
    is_control(c)
        || is_format(c)
        || is_ignorable(c)
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{2800}')
}

/// The general category `Cc`.
const fn is_control(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}')
}

/// Unicode 17, the general category `Cf`.
const fn is_format(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

/// Unicode 17, `Default_Ignorable_Code_Point`: what has no glyph and no width where it has no meaning.
pub const fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Marks of no width that can be put on any character, and on top of each other.
const fn is_mark(c: char) -> bool {
    matches!(
        c,
        '\u{300}'..='\u{34e}'
            | '\u{350}'..='\u{36f}'
            | '\u{483}'..='\u{489}'
            | '\u{1ab0}'..='\u{1aff}'
            | '\u{1dc0}'..='\u{1dff}'
            | '\u{20d0}'..='\u{20ff}'
            | '\u{fe20}'..='\u{fe2f}'
    )
}

/// A text with each hidden character replaced by `write`, which appends its escape to the result. So
/// are combining marks that stand on nothing or in large numbers.
pub fn escape_with(text: &str, mut write: impl FnMut(&mut String, char)) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    // How many marks the last visible character has; `None` if there is none to carry any.
    let mut marks = None;
    for c in text.chars() {
        if is_mark(c) {
            marks = marks.filter(|count| *count < MARKS).map(|count| count + 1);
            if marks.is_some() {
                escaped.push(c);
                continue;
            }
            write(&mut escaped, c);
        } else if is_hidden(c) {
            marks = None;
            write(&mut escaped, c);
        } else {
            marks = (c.is_alphanumeric() || !c.is_ascii() && !c.is_whitespace()).then_some(0);
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// A text on one line, with every hidden character written as `\u{202e}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape_with(text, |escaped, c| escaped.extend(c.escape_unicode()))
}

/// The same for several lines: a line feed and a tab are left as they are.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escape_with(text, |escaped, c| match c {
        '\n' | '\t' => escaped.push(c),
        c => escaped.extend(c.escape_unicode()),
    })
}

/// Whether nothing in a text has to be escaped.
pub fn is_printable(text: &str) -> bool {
    let mut is_printable = true;
    let _ = escape_with(text, |_, _| is_printable = false);
    is_printable
}

/// One line of a content for a reader: control characters as `^X`, other hidden characters as
/// `<U+202E>`, bytes that are not UTF-8 as `<FF>`; a tab is left. So is what belongs to an emoji.
pub fn visible(line: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(line)
        && text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
    {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(line.len());
    let mut before = ' ';
    for chunk in line.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => visible.push(c),
                '\0'..='\x1f' | '\x7f' => {
                    visible.push('^');
                    visible.push(char::from(b'@' ^ u8::try_from(c).unwrap_or_default()));
                }
                '\u{fe0f}' | '\u{200d}' if is_emoji(before) => visible.push(c),
                c if is_hidden(c) => visible.push_str(&format!("<U+{:04X}>", u32::from(c))),
                c => visible.push(c),
            }
            // The selector of an emoji does not end it.
            if c != '\u{fe0f}' || !is_emoji(before) {
                before = c;
            }
        }
        for byte in chunk.invalid() {
            visible.push_str(&format!("<{byte:02X}>"));
            before = ' ';
        }
    }
    match std::str::from_utf8(line) {
        Ok(text) if text == visible => Cow::Borrowed(text),
        _ => Cow::Owned(visible),
    }
}

const fn is_emoji(c: char) -> bool {
    matches!(c, '\u{a9}' | '\u{ae}' | '\u{203c}'..='\u{3299}' | '\u{1f000}'..='\u{1faff}')
        && !is_hidden(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_escaped() {
        for c in [
            '\0',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{34f}',
            '\u{600}',
            '\u{61c}',
            '\u{115f}',
            '\u{17b4}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{202e}',
            '\u{2028}',
            '\u{2029}',
            '\u{2060}',
            '\u{2066}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{1d173}',
            '\u{e0041}',
            '\u{e0100}',
        ] {
            assert_eq!(escaped(&format!("a{c}b")), format!("a\\u{{{:x}}}b", u32::from(c)));
            assert!(!is_printable(&c.to_string()));
        }
    }

    #[test]
    fn what_is_seen_is_left() {
        for text in
            ["plain – é", "e\u{301}", "हिन्दी", "日本語", "한국어", "ไทย", "a b", "✓ €", "🦀"]
        {
            assert_eq!(escaped(text), text);
        }
    }

    #[test]
    fn marks_need_a_character_and_stay_few() {
        assert_eq!(escaped("/\u{301}a"), "/\\u{301}a");
        assert_eq!(escaped("\u{301}"), "\\u{301}");
        let many = format!("a{}", "\u{301}".repeat(MARKS + 2));
        assert_eq!(escaped(&many), format!("a{}\\u{{301}}\\u{{301}}", "\u{301}".repeat(MARKS)));
    }

    #[test]
    fn a_line_shows_each_of_its_bytes() {
        let hostile = b"a\x1b[2Jb\rc\x07\x7f\xff\xc2\x9b1m \xe2\x80\xae end\ttab";
        assert_eq!(visible(hostile), "a^[[2Jb^Mc^G^?<FF><U+009B>1m <U+202E> end\ttab");
        assert_eq!(visible(b"/*\0*/"), "/*^@*/");
        assert_eq!(visible("x\u{fe0f}\u{200d}".as_bytes()), "x<U+FE0F><U+200D>");
        for plain in ["gr\u{fc}n \u{2713}", "\u{2764}\u{fe0f} \u{1f468}\u{200d}\u{1f469}", "a\tb"] {
            assert!(matches!(visible(plain.as_bytes()), Cow::Borrowed(same) if same == plain));
        }
        let payload = "\u{2764}\u{fe0f}\u{fe0f}\u{fe01}".as_bytes();
        assert!(visible(payload).ends_with("<U+FE01>"));
    }

    #[test]
    fn only_lines_keep_their_line_feeds() {
        assert_eq!(escaped("a\nb\tc"), "a\\u{a}b\\u{9}c");
        assert_eq!(escaped_lines("a\nb\tc\r"), "a\nb\tc\\u{d}");
    }
}
