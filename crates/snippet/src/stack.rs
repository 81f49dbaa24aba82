//! Removes host paths from error texts. Messages of our own realm name files of the payload only;
//! texts of libraries and snippets may contain anything.

/// Prefixes of host paths, and their replacements. The first match is used.
const PATHS: &[(&str, &str)] = &[
    ("file:///", "<sandbox>"),
    ("/Users/", "/<home>"),
    ("/home/", "/<home>"),
    ("/private/var/", "<tmp>"),
    ("/private/tmp/", "<tmp>"),
    ("/var/folders/", "<tmp>"),
    ("/tmp/", "<tmp>"),
    ("/var/task/", "<task>"),
    ("/opt/", "<opt>"),
    ("/usr/local/", "<usr-local>"),
    ("/app/", "<app>"),
    ("/srv/", "<srv>"),
    ("/workspace/", "<workspace>"),
    ("/data/", "<data>"),
    ("/etc/", "<etc>"),
    ("/root/", "<root>"),
];

/// The text with host paths removed: each is replaced, up to the next space, quote or bracket, by
/// a word for its location. An absent text is empty.
pub fn sanitize_stack(text: Option<&str>) -> String {
    let text = text.unwrap_or_default();
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(character) = rest.chars().next() {
        // In `src/app/x.ts` no absolute path begins, because a name precedes the slash.
        let begins = !before.is_some_and(|c: char| c.is_alphanumeric() || "._-/\\".contains(c));
        match begins.then(|| host_path(rest)).flatten() {
            Some((length, word)) => {
                clean.push_str(word);
                before = rest[..length].chars().next_back();
                rest = &rest[length..];
            }
            None => {
                clean.push(character);
                before = Some(character);
                rest = &rest[character.len_utf8()..];
            }
        }
    }
    clean
}

/// The length of the path at the start of a text, in bytes, and its replacement.
fn host_path(text: &str) -> Option<(usize, &'static str)> {
    let end = |c: char| c.is_whitespace() || ")]}>\"'`,;|".contains(c);
    // Looked for only where a path begins: otherwise a long word would be read again at each of its characters.
    let whole = || text.find(end).unwrap_or(text.len());
    if let Some((_, word)) = PATHS.iter().find(|(start, _)| text.starts_with(start)) {
        return Some((whole(), word));
    }
    if text.starts_with("\\\\") {
        return Some((whole(), "<unc>")).filter(|(length, _)| *length > 2);
    }
    let [drive, b':', b'\\', ..] = text.as_bytes() else { return None };
    if !drive.is_ascii_alphabetic() {
        return None;
    }
    let whole = whole();
    // The name of the user is removed, the path below it stays.
    match text[..whole].get(3..).and_then(|path| path.strip_prefix("Users\\")) {
        Some(below) => {
            let name = below.find('\\').unwrap_or(below.len());
            Some((whole - below.len() + name, "<home>"))
        }
        None => Some((whole, "<path>")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_a_host_go() {
        let same = "Error: é\n    at run (src/app/main.ts:3:7)\n    at https://example.com/tmp/a";
        assert_eq!(sanitize_stack(Some(same)), same);
        assert_eq!(
            sanitize_stack(Some("open '/etc/passwd' \\\\h\\s (/tmp/a b)")),
            "open '<etc>' <unc> (<tmp> b)"
        );
        assert_eq!(sanitize_stack(Some("C:\\Users\\é")), "<home>");
        let long = "x".repeat(1 << 20);
        assert_eq!(sanitize_stack(Some(&long)), long);
    }
}
