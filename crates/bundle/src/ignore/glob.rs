//! One glob of a `.gitignore`, matched as git's `wildmatch` does with `WM_PATHNAME`.
//!
//! It works on bytes. A hostile pattern costs at most its length times the text's length: all
//! possible positions in the pattern are tracked in parallel, without backtracking.

use super::Case;

/// A compiled glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    tokens: Vec<Token>,
    /// If case is ignored, only lower case is compared.
    case: Case,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`: any byte but a slash.
    Any,
    /// `[…]`: the bytes that it matches, never a slash.
    Set(Box<[bool; 256]>),
    /// `*`: any sequence without a slash.
    Star,
    /// `**` as a whole component: any sequence.
    DoubleStar,
    /// Precedes the `DoubleStar` and the slash of `**/`: both may be skipped.
    Skip,
}

impl Glob {
    /// Compiles `pattern`; `None` for one that git never matches (an unclosed or unknown class, a
    /// backslash at the end). If case is ignored, git compares the lower-case text even with literal
    /// parts of the pattern: an upper-case letter after a backslash, or alone in a class, never
    /// matches.
    pub(super) fn new(pattern: &[u8], case: Case) -> Option<Self> {
        let mut tokens = Vec::with_capacity(pattern.len());
        let mut at = 0;
        while let Some(byte) = pattern.get(at) {
            match byte {
                b'\\' => {
                    tokens.push(Token::Byte(*pattern.get(at + 1)?));
                    at += 2;
                }
                b'?' => {
                    tokens.push(Token::Any);
                    at += 1;
                }
                b'*' => {
                    let end = at + pattern[at..].iter().take_while(|b| **b == b'*').count();
                    let rest = &pattern[end..];
                    let starts = at == 0 || pattern[at - 1] == b'/';
                    let ends = rest.is_empty() || rest[0] == b'/' || rest.starts_with(b"\\/");
                    if end - at == 1 || !starts || !ends {
                        tokens.push(Token::Star);
                    } else {
                        if rest.first() == Some(&b'/') {
                            tokens.push(Token::Skip);
                        }
                        tokens.push(Token::DoubleStar);
                    }
                    at = end;
                }
                b'[' => {
                    let (set, end) = class(pattern, at + 1, case)?;
                    tokens.push(Token::Set(set));
                    at = end;
                }
                other => {
                    tokens.push(Token::Byte(folded(*other, case)));
                    at += 1;
                }
            }
        }
        Some(Self { tokens, case })
    }

    /// Whether the whole of `text` matches.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let mut here = vec![false; self.tokens.len() + 1];
        let mut next = here.clone();
        self.enter(&mut here, 0);
        for byte in text {
            let byte = folded(*byte, self.case);
            next.fill(false);
            let mut alive = false;
            for (at, token) in self.tokens.iter().enumerate().filter(|(at, _)| here[*at]) {
                let (stays, passes) = match token {
                    Token::Byte(wanted) => (false, *wanted == byte),
                    Token::Any => (false, byte != b'/'),
                    Token::Set(set) => (false, set[usize::from(byte)]),
                    Token::Star => (byte != b'/', false),
                    Token::DoubleStar => (true, false),
                    Token::Skip => (false, false),
                };
                if stays {
                    self.enter(&mut next, at);
                } else if passes {
                    self.enter(&mut next, at + 1);
                }
                alive |= stays || passes;
            }
            if !alive {
                return false;
            }
            std::mem::swap(&mut here, &mut next);
        }
        here[self.tokens.len()]
    }

    /// Marks the position `at` and all positions that can be reached from it without consuming a
    /// byte.
    fn enter(&self, positions: &mut [bool], mut at: usize) {
        while !positions[at] {
            positions[at] = true;
            match self.tokens.get(at) {
                Some(Token::Star | Token::DoubleStar) => at += 1,
                Some(Token::Skip) => {
                    self.enter(positions, at + 3);
                    at += 1;
                }
                _ => return,
            }
        }
    }
}

fn folded(byte: u8, case: Case) -> u8 {
    match case {
        Case::Distinct => byte,
        Case::Ignored => byte.to_ascii_lowercase(),
    }
}

/// Reads a class whose content starts at `at`. Returns the bytes that it matches and the
/// position after its `]`.
fn class(pattern: &[u8], mut at: usize, case: Case) -> Option<(Box<[bool; 256]>, usize)> {
    let mut set = Box::new([false; 256]);
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    if negated {
        at += 1;
    }
    let mut previous = None;
    let mut first = true;
    loop {
        let byte = *pattern.get(at)?;
        match byte {
            b']' if !first => break,
            b'\\' => {
                at += 1;
                let literal = *pattern.get(at)?;
                set[usize::from(literal)] = true;
                previous = Some(literal);
            }
            b'-' if previous.is_some() && !matches!(pattern.get(at + 1), None | Some(b']')) => {
                at += 1;
                if pattern[at] == b'\\' {
                    at += 1;
                }
                let last = *pattern.get(at)?;
                for within in previous.unwrap_or(last)..=last {
                    set[usize::from(within)] = true;
                    set[usize::from(folded(within, case))] = true;
                }
                previous = None;
            }
            b'[' if pattern.get(at + 1) == Some(&b':') => {
                let name = at + 2;
                let close = name + pattern[name..].iter().position(|b| *b == b']')?;
                match pattern[name..close].strip_suffix(b":") {
                    Some(known) => {
                        let test = posix(known)?;
                        for taken in (0..=255_u8).filter(test) {
                            set[usize::from(taken)] = true;
                            // Of the named classes, git folds only `upper`, which is the only
                            // one with upper-case but no lower-case letters.
                            set[usize::from(folded(taken, case))] = true;
                        }
                        at = close;
                        previous = None;
                    }
                    None => {
                        set[usize::from(b'[')] = true;
                        previous = Some(b'[');
                    }
                }
            }
            literal => {
                set[usize::from(literal)] = true;
                previous = Some(literal);
            }
        }
        first = false;
        at += 1;
    }
    if negated {
        set.iter_mut().for_each(|taken| *taken = !*taken);
    }
    set[usize::from(b'/')] = false;
    Some((set, at + 1))
}

fn posix(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |b| matches!(b, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |b| matches!(b, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |b| matches!(b, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_git() {
        for (pattern, text, wanted) in [
            ("*.c", "a.c", true),
            ("*.c", "d/a.c", false),
            ("**/x", "x", true),
            ("**/x", "a/b/x", true),
            ("**/x", "ax", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/1/2/b", true),
            ("a/**", "a/", true),
            ("a/**", "a", false),
            ("a**b", "a/b", false),
            ("a**b", "axxb", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a]", "/", false),
            ("[]-]", "]", true),
            ("[[:digit:]]", "7", true),
            ("[[:digit]", ":", true),
            ("a?c", "a/c", false),
            ("\\*", "*", true),
            ("{a,b}", "a", false),
            ("{a,b}", "{a,b}", true),
        ] {
            assert_eq!(
                Glob::new(pattern.as_bytes(), Case::Distinct).unwrap().matches(text.as_bytes()),
                wanted,
                "{pattern} {text}"
            );
        }
        for broken in ["[", "[a", "a\\", "[[:nope:]]", "[a-\\"] {
            assert_eq!(Glob::new(broken.as_bytes(), Case::Distinct), None, "{broken}");
        }
    }

    #[test]
    fn a_hostile_pattern_ends_soon() {
        let glob = Glob::new("*a".repeat(500).as_bytes(), Case::Distinct).unwrap();
        assert!(!glob.matches("a".repeat(4000).replace("aaaaaaaaaa", "aaaaaaaab/").as_bytes()));
    }
}
