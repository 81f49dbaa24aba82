//! Reads a boolean variable of git's configuration (git-config(1), "Syntax"). No `include` is
//! followed.

/// Whether the last `name` of `section` in a configuration file is true. Both are given in lower
/// case; the file may use any case. Where git would reject a line, the rest of the file is not
/// read.
pub(super) fn is_set(content: &[u8], section: &[u8], name: &[u8]) -> bool {
    let mut is_set = false;
    let mut is_there = false;
    let mut rest = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    while let Some(first) = rest.first() {
        match first {
            b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c => rest = &rest[1..],
            b'#' | b';' => {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                rest = &rest[end..];
            }
            b'[' => {
                let Some((found, after)) = header(&rest[1..]) else { break };
                is_there = found.eq_ignore_ascii_case(section);
                rest = after;
            }
            _ => {
                let Some((found, set, after)) = variable(rest) else { break };
                if is_there && found.eq_ignore_ascii_case(name) {
                    is_set = set;
                }
                rest = after;
            }
        }
    }
    is_set
}

/// The name of a section, after its bracket, and the rest. For a subsection it returns the
/// whole text in the brackets, which no section is called.
fn header(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut is_quoted = false;
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'\n' => return None,
            b'\\' if is_quoted => at += 1,
            b'"' => is_quoted = !is_quoted,
            b']' if !is_quoted => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
        at += 1;
    }
}

/// The name of a variable, whether its value is true, and the rest.
fn variable(text: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let end = text.iter().position(|byte| !is_of_name(byte)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if !name.first()?.is_ascii_alphabetic() {
        return None;
    }
    let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let rest = &rest[blank..];
    match rest.first() {
        // A name without a value is true.
        None | Some(b'\n' | b'\r') => Some((name, true, rest)),
        Some(b'=') => {
            let (value, rest) = value(&rest[1..])?;
            Some((name, is_true(&value), rest))
        }
        Some(_) => None,
    }
}

/// A value up to the end of its line, without quotes, comment and surrounding blanks.
fn value(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    // The length up to the last byte that is not a blank.
    let mut kept = 0;
    let (mut is_quoted, mut is_comment) = (false, false);
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'\n' if is_quoted => return None,
            b'\n' => break,
            _ if is_comment => {}
            b'\r' if text.get(at) == Some(&b'\n') => {}
            b' ' | b'\t' if !is_quoted => {
                if !value.is_empty() {
                    value.push(*byte);
                }
            }
            b'#' | b';' if !is_quoted => is_comment = true,
            b'"' => is_quoted = !is_quoted,
            b'\\' => {
                let escaped = text.get(at)?;
                at += 1;
                match escaped {
                    // The value continues in the next line.
                    b'\n' => {}
                    b'\r' if text.get(at) == Some(&b'\n') => at += 1,
                    // No switch contains any of these, so they need not be told apart.
                    b'\\' | b'"' | b'n' | b't' | b'b' => {
                        value.push(b'\\');
                        kept = value.len();
                    }
                    _ => return None,
                }
            }
            other => {
                value.push(*other);
                kept = value.len();
            }
        }
    }
    value.truncate(kept);
    (!is_quoted).then_some((value, &text[at..]))
}

/// `git_parse_maybe_bool` in git's `parse.c`: a word, or a number that is not zero.
fn is_true(value: &[u8]) -> bool {
    let is = |word: &str| value.eq_ignore_ascii_case(word.as_bytes());
    if is("true") || is("yes") || is("on") {
        return true;
    }
    let number = std::str::from_utf8(value).ok();
    let number = number.map(|text| text.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']));
    number.and_then(|text| text.parse::<i64>().ok()).is_some_and(|number| number != 0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const CASES: [&str; 29] = [
        "[core]\n\tignorecase = \\true\n",
        "[core]\r\n\tignorecase = tr\\\r\nue\r\n",
        "[core]\n\t9 = 1\n\tignorecase = true\n",
        "",
        "[core]\n\tignorecase = true\n",
        "[core]\n\tignorecase = false\n",
        "[CORE] IgnoreCase=Yes # words",
        "[core]\n\tignorecase\n",
        "[core]\n\tignorecase ; alone\n",
        "[core]\n\tignorecase =\n",
        "[core]\r\n\tignorecase = on\r\n",
        "[core]\n\tignorecase = 1\n[core]\n\tignorecase = 0\n",
        "[core]\n\tignorecase = 2k\n",
        "[core \"x\"]\n\tignorecase = true\n",
        "[core \"]\"]\n\tignorecase = true\n[core]\n\tignorecase = true\n",
        "[cor]\n\tignorecase = true\n",
        "[core]\n\tbare = false\n\tignorecase = \"true\"\n",
        "[core]\n\tignorecase = tr\\\nue\n",
        "[core]\n\tignorecase = tr\"u\"e   \n",
        "[core]\n\tignorecase = \"true \"\n",
        "# [core]\n; ignorecase = true\n",
        "[core]\n# ignorecase = true\n",
        "[core]\n\tignorecase = true # \\\n\tignorecase = false\n",
        "[user]\n\tname = \"[core] ignorecase = true\"\n",
        "[user]\n\tname = a\\\n[core]\n\tignorecase = true\n",
        "[core]\n\tignorecase = -1\n",
        "\u{feff}[core]\n\tignorecase = true",
        "[core]\n\tignorecase = off\n\tignorecase = TRUE\n",
        "[core]ignorecase=true",
    ];

    #[test]
    fn switches_are_read_as_git_reads_them() {
        if Command::new("git").arg("--version").output().is_err() {
            crate::testing::skipped("git is not installed");
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("config");
        for case in CASES {
            std::fs::write(&file, case).unwrap();
            let output = Command::new("git")
                .args(["config", "--file", "config", "--bool", "core.ignorecase"])
                .current_dir(scratch.path())
                .output()
                .unwrap();
            let is_set_in_git = output.stdout == b"true\n";
            assert_eq!(is_set(case.as_bytes(), b"core", b"ignorecase"), is_set_in_git, "{case:?}");
        }
    }

    #[test]
    fn damage_never_panics() {
        let mut random = crate::testing::Random::new(3);
        for _ in 0..20_000 {
            let mut case = CASES[random.below(CASES.len())].as_bytes().to_vec();
            for _ in 0..random.below(4) {
                if !case.is_empty() {
                    let at = random.below(case.len());
                    case[at] = b"[]\"\\=#;\n a"[random.below(10)];
                }
            }
            case.truncate(random.below(case.len() + 1));
            let _ = is_set(&case, b"core", b"ignorecase");
        }
    }
}
