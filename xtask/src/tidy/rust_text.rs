//! Rust source without its comments and literals, so that a word found in it is code.

/// The source with every comment, string and character literal blanked: same lines, same
/// columns.
pub(super) fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = token_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
            continue;
        }
        code.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

/// The string literals of a source with the number of the line in which each starts.
pub(super) fn strings(source: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = source.chars().collect();
    let (mut found, mut line, mut at) = (Vec::new(), 1, 0);
    while at < chars.len() {
        let end = token_end(&chars, at).max(at + 1);
        let token = &chars[at..end];
        if matches!(token, ['"', ..] | ['r' | 'b' | 'c', _, ..]) {
            found.push((line, token.iter().collect()));
        }
        line += token.iter().filter(|c| **c == '\n').count();
        at = end;
    }
    found
}

/// The end of the comment or literal that starts at `at`; `at` itself when none starts there.
fn token_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => find(chars, at, '\n'),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => string_end(chars, at + 1),
        'r' if !continues_a_word(chars, at) => raw_string_end(chars, at + 1).unwrap_or(at),
        'b' | 'c' if next == Some('r') && !continues_a_word(chars, at) => {
            raw_string_end(chars, at + 2).unwrap_or(at)
        }
        '\'' => character_end(chars, at).unwrap_or(at),
        _ => at,
    }
}

fn continues_a_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn find(chars: &[char], from: usize, wanted: char) -> usize {
    chars[from..].iter().position(|c| *c == wanted).map_or(chars.len(), |offset| from + offset)
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = at;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') if depth == 1 => return at + 2,
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of `#*"…"#*`, where `at` is after the `r`; `None` for a word that starts with `r`.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at..].iter().take_while(|c| **c == '#').count();
    let mut at = at + hashes;
    if chars.get(at) != Some(&'"') {
        return None;
    }
    loop {
        at = find(chars, at + 1, '"');
        let Some(rest) = chars.get(at + 1..) else { return Some(chars.len()) };
        if rest.iter().take(hashes).filter(|c| **c == '#').count() == hashes {
            return Some(at + 1 + hashes);
        }
    }
}

/// The end of a character literal; `None` for a lifetime.
fn character_end(chars: &[char], at: usize) -> Option<usize> {
    if chars.get(at + 1) == Some(&'\\') {
        // The character after the backslash may itself be a quote.
        let end = find(chars, (at + 3).min(chars.len()), '\'');
        return Some((end + 1).min(chars.len()));
    }
    (chars.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

#[cfg(test)]
mod tests {
    use super::{code_only, strings};

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        let blank = |width: usize| " ".repeat(width);
        let cases = [
            ("a // b\nc", format!("a {}\nc", blank(4))),
            ("a /* b /* c */ d */ e", format!("a {} e", blank(17))),
            (r#"f("un\"safe") + g"#, format!("f({}) + g", blank(10))),
            (r###"r#"un"safe"# + g"###, format!("{} + g", blank(12))),
            (r##"br"x" r#type"##, format!("{} r#type", blank(5))),
            (r#"'a', '\'', '"', 'b"#, format!("{}, {}, {}, 'b", blank(3), blank(4), blank(3))),
            ("<'a>(x: &'a str)", "<'a>(x: &'a str)".to_owned()),
        ];
        for (source, expected) in cases {
            assert_eq!(code_only(source), expected, "{source}");
        }
    }

    #[test]
    fn strings_are_found_with_their_lines() {
        let source = "f(\"a\", 'b'); // \"c\"\nlet r = r#\"d\n\"#;\ng(b\"e\");";
        let expected = [(1, "\"a\""), (2, "r#\"d\n\"#"), (4, "\"e\"")];
        assert_eq!(strings(source), expected.map(|(line, text)| (line, text.to_owned())));
    }
}
