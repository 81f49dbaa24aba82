//! Removes from texts what may be a secret: values of options and variables whose names say so, user
//! information in URLs, and texts in the form of known keys.

/// What stands for a removed value.
const REMOVED: &str = "***";
/// The longest text of a record, in characters.
const MAX_CHARACTERS: usize = 1024;
/// The most words of a command.
const MAX_WORDS: usize = 64;
/// Parts of names whose values are secret.
const SECRET_NAMES: [&str; 15] = [
    "token",
    "secret",
    "passw",
    "pwd",
    "apikey",
    "api-key",
    "api_key",
    "access-key",
    "access_key",
    "accesskey",
    "credential",
    "private-key",
    "private_key",
    "auth",
    "cookie",
];
/// How known keys start.
const SECRET_PREFIXES: [&str; 21] = [
    "sk-",
    "pk_live_",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "AKIA",
    "ASIA",
    "AIza",
    "e2b_",
    "npm_",
    "hf_",
    "eyJ",
];
/// The shortest text after such a start that is removed.
const MIN_SECRET: usize = 12;

/// A command, as a record may have it.
pub fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut redacted = Vec::new();
    let mut is_value = false;
    for word in words {
        if redacted.len() == MAX_WORDS {
            redacted.push("…".to_owned());
            break;
        }
        // The value of an option is the next word.
        let hides = is_value && !word.starts_with('-');
        redacted.push(if hides { REMOVED.to_owned() } else { text(word) });
        is_value = !hides && is_secret_option(word);
    }
    redacted
}

/// A text, as a record may have it: without secrets and control characters, and not too long.
pub fn text(text: &str) -> String {
    let is_break = |character: char| {
        character.is_whitespace() || matches!(character, '"' | '\'' | '`' | ',' | ';' | '(' | ')')
    };
    let (mut result, mut hides_next) = (String::new(), false);
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_break).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if !word.is_empty() {
            let hides = hides_next && !word.starts_with('-');
            let shown = if hides { REMOVED.to_owned() } else { self::word(word) };
            result.push_str(&shown);
            let lower = word.to_ascii_lowercase();
            // `Authorization: Bearer VALUE`, `--token VALUE`
            let introduces = is_secret_option(word)
                || matches!(lower.as_str(), "bearer" | "basic")
                || (lower.ends_with([':', '=']) && is_secret_name(&lower));
            hides_next =
                if hides { matches!(lower.as_str(), "bearer" | "basic") } else { introduces };
        }
        let mut characters = after.chars();
        if let Some(character) = characters.next() {
            result.push(if character.is_control() { ' ' } else { character });
        }
        rest = characters.as_str();
    }
    let shown: String =
        result.chars().filter(|one| !one.is_control()).take(MAX_CHARACTERS).collect();
    if shown.len() < result.len() && result.chars().count() > MAX_CHARACTERS {
        return shown + "…";
    }
    shown
}

fn word(word: &str) -> String {
    if let Some((name, value)) = word.split_once(['=', ':'])
        && !value.is_empty()
        && !value.starts_with("//")
        && is_secret_name(name)
    {
        let separator = &word[name.len()..=name.len()];
        return format!("{name}{separator}{REMOVED}");
    }
    let mut word = word.to_owned();
    // `https://USER:PASSWORD@HOST/PATH?token=VALUE`
    if let Some(start) = word.find("://").map(|at| at + 3) {
        let end = word[start..].find(['/', '?', '#']).map_or(word.len(), |at| start + at);
        if let Some(at) = word[start..end].rfind('@') {
            word.replace_range(start..start + at, REMOVED);
        }
        if let Some((path, query)) = word.split_once('?') {
            let parameter = |pair: &str| match pair.split_once('=') {
                Some((name, _)) if is_secret_name(name) || name.eq_ignore_ascii_case("key") => {
                    format!("{name}={REMOVED}")
                }
                _ => pair.to_owned(),
            };
            let query: Vec<_> = query.split('&').map(parameter).collect();
            word = format!("{path}?{}", query.join("&"));
        }
    }
    without_keys(&word)
}

/// Removes texts in the form of known keys, wherever they are in a word.
fn without_keys(word: &str) -> String {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let mut result = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let length = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
        let (part, after) = rest.split_at(length);
        let is_secret = SECRET_PREFIXES
            .iter()
            .any(|prefix| part.strip_prefix(prefix).is_some_and(|value| value.len() >= MIN_SECRET));
        result.push_str(if is_secret { REMOVED } else { part });
        let mut characters = after.chars();
        result.extend(characters.next());
        rest = characters.as_str();
    }
    result
}

fn is_secret_option(word: &str) -> bool {
    word.starts_with('-') && !word.contains('=') && is_secret_name(word) || word == "-u"
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_a_command_is_recorded() {
        let secret = "s3cr3t-value-of-someone";
        for words in [
            vec!["curl", "-H", "Authorization: Bearer s3cr3t-value-of-someone", "http://a"],
            vec!["tool", "--token", secret],
            vec!["tool", "--token=s3cr3t-value-of-someone"],
            vec!["curl", "-u", "me:s3cr3t-value-of-someone", "http://a"],
            vec!["env", "API_KEY=s3cr3t-value-of-someone", "tool"],
            vec!["git", "clone", "https://me:s3cr3t-value-of-someone@example.com/x"],
            vec!["sh", "-c", "export PASSWORD='s3cr3t-value-of-someone'; tool"],
            vec!["sh", "-c", "tool --password s3cr3t-value-of-someone"],
            vec!["curl", "http://a/?token=s3cr3t-value-of-someone&x=1"],
            vec!["tool", "sk-s3cr3t-value-of-someone"],
            vec!["curl", "-H", "X-Api-Key: s3cr3t-value-of-someone"],
        ] {
            let shown = command(words.iter().copied()).join(" ");
            assert!(!shown.contains("s3cr3t"), "{shown}");
            assert!(shown.contains(words[0]), "{shown}");
        }
    }

    #[test]
    fn other_words_are_recorded() {
        for words in [
            vec!["git", "commit", "-m", "a message"],
            vec!["sh", "-c", "echo one; ls -l | wc"],
            vec!["curl", "http://example.com/a?b=c"],
            vec!["true"],
        ] {
            assert_eq!(command(words.iter().copied()), words);
        }
        assert_eq!(text("a\u{1b}[31mb\nc"), "a[31mb c");
        assert!(text(&"x".repeat(5000)).chars().count() <= MAX_CHARACTERS + 1);
        assert!(command(["x"; 1000]).len() <= MAX_WORDS + 1);
    }
}
