//! The rules of one ignore file, read as git's `dir.c` reads them (gitignore(5)).

use super::Case;
use super::glob::Glob;

/// Larger ignore files have no effect: what they would hide is shown.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// The rules of one ignore file, in file order.
#[derive(Debug)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    case: Case,
}

#[derive(Debug)]
struct Rule {
    negative: bool,
    directories_only: bool,
    /// Whether the pattern is compared with the last component instead of the whole path.
    by_name: bool,
    matcher: Matcher,
}

#[derive(Debug)]
enum Matcher {
    /// The whole text must be equal.
    Exact(Vec<u8>),
    /// `*` followed by this text.
    Ending(Vec<u8>),
    /// This literal text, then the glob.
    Glob(Vec<u8>, Glob),
}

impl Rules {
    /// Reads the content of an ignore file.
    pub(super) fn parse(content: &[u8], case: Case) -> Self {
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        let lines = content.split(|b| *b == b'\n');
        Self { rules: lines.filter_map(|line| Rule::parse(line, case)).collect(), case }
    }

    /// The result of the last rule that matches `path`, which is relative to the file's
    /// directory: `Some(true)` to ignore it, `Some(false)` not to ignore it, `None` if no rule
    /// matches.
    pub(super) fn verdict(&self, path: &[u8], is_directory: bool) -> Option<bool> {
        let matches = |rule: &&Rule| rule.matches(path, is_directory, self.case);
        let rule = self.rules.iter().rev().find(matches)?;
        Some(!rule.negative)
    }
}

impl Rule {
    fn parse(line: &[u8], case: Case) -> Option<Self> {
        if line.is_empty() || line[0] == b'#' {
            return None;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Git's strings end at a NUL byte.
        let line = line.split(|b| *b == 0).next()?;
        let line = without_trailing_spaces(line);
        let (negative, pattern) = match line.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (directories_only, pattern) = match pattern.strip_suffix(b"/") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        if pattern.is_empty() {
            return None;
        }
        let by_name = !pattern.contains(&b'/');
        let pattern = pattern.strip_prefix(b"/").unwrap_or(pattern);
        let literal = pattern.iter().position(|b| is_special(*b));
        let matcher = match literal {
            None => Matcher::Exact(pattern.to_vec()),
            Some(0)
                if by_name
                    && pattern[0] == b'*'
                    && !pattern[1..].iter().any(|b| is_special(*b)) =>
            {
                Matcher::Ending(pattern[1..].to_vec())
            }
            // Git compares the part before the first special byte literally and starts the glob
            // after it, so that a `**` there counts as the start of a component. When git
            // matches by name it does not do this, but there `**` and `*` are equivalent.
            Some(split) => {
                Matcher::Glob(pattern[..split].to_vec(), Glob::new(&pattern[split..], case)?)
            }
        };
        Some(Self { negative, directories_only, by_name, matcher })
    }

    fn matches(&self, path: &[u8], is_directory: bool, case: Case) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        let text =
            if self.by_name { path.rsplit(|b| *b == b'/').next().unwrap_or(path) } else { path };
        match &self.matcher {
            Matcher::Exact(wanted) => is_same(text, wanted, case),
            Matcher::Ending(end) => {
                let start = text.len().checked_sub(end.len());
                start.is_some_and(|start| is_same(&text[start..], end, case))
            }
            Matcher::Glob(start, glob) => text
                .split_at_checked(start.len())
                .is_some_and(|(text, rest)| is_same(text, start, case) && glob.matches(rest)),
        }
    }
}

fn is_same(one: &[u8], other: &[u8], case: Case) -> bool {
    match case {
        Case::Distinct => one == other,
        Case::Ignored => one.eq_ignore_ascii_case(other),
    }
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

/// Removes trailing spaces, unless a backslash escapes the first of them.
fn without_trailing_spaces(line: &[u8]) -> &[u8] {
    let mut kept = 0;
    let mut at = 0;
    while at < line.len() {
        match line[at] {
            b' ' => {}
            b'\\' if at + 1 == line.len() => return line,
            b'\\' => {
                at += 1;
                kept = at + 1;
            }
            _ => kept = at + 1,
        }
        at += 1;
    }
    &line[..kept]
}
