//! Names in the styles of the two languages, and texts of descriptions.

/// `NOT_FOUND`, `timedOut` or `read-only` as `NotFound`, `TimedOut` or `ReadOnly`.
pub(super) fn pascal_case(name: &str) -> String {
    let is_screaming = !name.contains(|character: char| character.is_ascii_lowercase());
    let words = name.split(|character: char| !character.is_ascii_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .map(|word| {
            let (first, rest) = word.split_at(1);
            let rest = if is_screaming { rest.to_ascii_lowercase() } else { rest.to_owned() };
            first.to_ascii_uppercase() + &rest
        })
        .collect()
}

/// `sandboxId` as `sandbox_id`.
pub(super) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

/// `sandbox_id` as `sandboxId`.
pub(super) fn camel_case(name: &str) -> String {
    let pascal = pascal_case(name);
    let mut characters = pascal.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_ascii_lowercase().to_string() + characters.as_str()
    })
}

/// A description in the notation of Rust's documents without the links.
pub(super) fn plain_text(description: &str) -> String {
    let mut plain = String::new();
    let mut rest = description;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        match after.split_once(']') {
            Some((text, after)) if text.starts_with('`') => {
                plain.push_str(&text.replace("::", "."));
                let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
                rest = target.map_or(after, |(_, after)| after);
            }
            _ => {
                plain.push('[');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text in lines of at most so many characters.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_change_their_style() {
        for (name, pascal) in [
            ("NOT_FOUND", "NotFound"),
            ("timedOut", "TimedOut"),
            ("read-only", "ReadOnly"),
            ("IO", "Io"),
        ] {
            assert_eq!(pascal_case(name), pascal);
        }
        for (camel, snake) in [("sandboxId", "sandbox_id"), ("id", "id"), ("cpuMs", "cpu_ms")] {
            assert_eq!(snake_case(camel), snake);
            assert_eq!(camel_case(snake), camel);
        }
    }

    #[test]
    fn links_become_text() {
        for (description, plain) in [
            ("As [`Network::allow`].", "As `Network.allow`."),
            ("A [`Set`](crate::Set)\nof it.", "A `Set` of it."),
            ("HOST[:PORT]", "HOST[:PORT]"),
        ] {
            assert_eq!(plain_text(description), plain);
        }
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
    }
}
