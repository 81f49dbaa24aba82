//! JSON with comments, as configuration files of TypeScript have it.

/// JSON without comments and without commas before closing brackets; each is replaced by spaces, so that
/// positions stay.
pub(super) fn without_comments(source: &str) -> String {
    let mut text: Vec<char> = source.chars().collect();
    let mut at = 0;
    let mut comma = None;
    while let Some(&character) = text.get(at) {
        let next = text.get(at + 1).copied();
        match (character, next) {
            ('"', _) => {
                comma = None;
                at += 1;
                while text.get(at).is_some_and(|&character| character != '"') {
                    at += if text.get(at) == Some(&'\\') { 2 } else { 1 };
                }
            }
            ('/', Some('/')) => {
                while text.get(at).is_some_and(|&character| character != '\n') {
                    text[at] = ' ';
                    at += 1;
                }
            }
            ('/', Some('*')) => {
                let end =
                    (at + 2..text.len()).find(|&end| text[end - 1..].starts_with(&['*', '/']));
                let end = end.unwrap_or(text.len() - 1);
                for character in &mut text[at..=end] {
                    if *character != '\n' {
                        *character = ' ';
                    }
                }
            }
            (',', _) => comma = Some(at),
            ('}' | ']', _) => {
                if let Some(comma) = comma.take() {
                    text[comma] = ' ';
                }
            }
            (other, _) if !other.is_whitespace() => comma = None,
            _ => {}
        }
        at += 1;
    }
    text.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_last_commas_are_spaces() {
        let text = "{ // one\n \"a/*\": [\"//\", /* two */ 1,],\n}";
        let expected = "{       \n \"a/*\": [\"//\",           1 ] \n}";
        assert_eq!(without_comments(text), expected);
        assert!(serde_json::from_str::<serde_json::Value>(&without_comments(text)).is_ok());
    }
}
