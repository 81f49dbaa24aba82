//! JSON output: indented, and without characters that control a terminal or that no reader sees.

use serde_json::Value;
use stockade_core::printable::escape_with;

/// The text of a value. JSON itself escapes the control characters of ASCII; those beyond
/// (U+0080 to U+009F, which terminals interpret too) and hidden ones are escaped here.
pub fn text(value: &Value) -> String {
    escape_controls(format!("{value:#}"))
}

/// Escapes every hidden character beyond ASCII in a JSON text.
pub fn escape_controls(text: String) -> String {
    let escaped = escape_with(&text, |escaped, c| match c {
        '\0'..='\x1f' => escaped.push(c),
        c => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    });
    match escaped {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(escaped) => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_is_printed_and_none_is_lost() {
        let value =
            serde_json::json!({ "name": "a\u{1b}b\u{9b}c\u{7f}d\né\u{202e}\u{200b}\u{e0041}" });
        let text = text(&value);
        assert!(text.contains('é'));
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.chars().any(|c| c != '\n' && stockade_core::printable::is_hidden(c)));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
