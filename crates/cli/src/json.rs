//! JSON output: indented, and without characters that control a terminal.

use serde_json::Value;

/// The text of a value. JSON itself escapes the control characters of ASCII; those beyond
/// (U+0080 to U+009F, which terminals interpret too) are escaped here.
pub fn text(value: &Value) -> String {
    escape_controls(format!("{value:#}"))
}

/// Escapes every control character beyond ASCII in a JSON text.
pub fn escape_controls(text: String) -> String {
    if !text.chars().any(is_control_beyond_ascii) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control_beyond_ascii(c) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn is_control_beyond_ascii(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_is_printed_and_none_is_lost() {
        let value = serde_json::json!({ "name": "a\u{1b}b\u{9b}c\u{7f}d\né" });
        let text = text(&value);
        assert!(text.contains('é'));
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
