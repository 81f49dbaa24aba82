//! Parses git's configuration files (git-config(1), "Syntax"). No `include` is followed here.

/// One variable. Section and name are in lower case, a subsection is as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) section: Vec<u8>,
    pub(crate) subsection: Option<Vec<u8>>,
    pub(crate) name: Vec<u8>,
    /// `None` for a name without `=`, which is true.
    pub(crate) value: Option<Vec<u8>>,
}

/// Whether the last `name` of `section`, both in lower case, is true.
pub(super) fn is_set(content: &[u8], section: &[u8], name: &[u8]) -> bool {
    let is_it = |variable: &&Variable| {
        variable.section == section && variable.subsection.is_none() && variable.name == name
    };
    let variables = parse(content);
    let last = variables.iter().rfind(is_it);
    last.is_some_and(|variable| variable.value.as_deref().is_none_or(is_true))
}

/// The variables of a configuration file, in order. Where git would reject a line, the rest of the
/// file is not read.
pub(crate) fn parse(content: &[u8]) -> Vec<Variable> {
    let mut variables = Vec::new();
    // Git takes a variable before the first section for one without a section.
    let mut section: (Vec<u8>, Option<Vec<u8>>) = Default::default();
    let mut rest = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    while let Some(first) = rest.first() {
        match first {
            b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c => rest = &rest[1..],
            b'#' | b';' => {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                rest = &rest[end..];
            }
            b'[' => {
                let Some((found, subsection, after)) = header(&rest[1..]) else { break };
                section = (found, subsection);
                rest = after;
            }
            _ => {
                let Some((name, value, after)) = variable(rest) else { break };
                let (section, subsection) = section.clone();
                variables.push(Variable { section, subsection, name, value });
                rest = after;
            }
        }
    }
    variables
}

/// A name, what belongs to it, and the rest of the text.
type Parsed<'t> = (Vec<u8>, Option<Vec<u8>>, &'t [u8]);

/// The section and subsection of a header, after its bracket, and the rest.
fn header(text: &[u8]) -> Option<Parsed<'_>> {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let end = text.iter().position(|byte| !is_of_name(byte))?;
    let name = text[..end].to_ascii_lowercase();
    match text[end] {
        b']' => {
            // The old form of a subsection: `[section.subsection]`, in lower case.
            let rest = &text[end + 1..];
            Some(match name.iter().position(|byte| *byte == b'.') {
                Some(dot) => (name[..dot].to_vec(), Some(name[dot + 1..].to_vec()), rest),
                None => (name, None, rest),
            })
        }
        b' ' | b'\t' => {
            let blank = text[end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            let mut rest = text[end + blank..].strip_prefix(b"\"")?;
            let mut subsection = Vec::new();
            loop {
                let (byte, after) = rest.split_first()?;
                rest = after;
                match byte {
                    b'\n' => return None,
                    b'"' => break,
                    b'\\' => {
                        let (escaped, after) = rest.split_first()?;
                        if *escaped == b'\n' {
                            return None;
                        }
                        subsection.push(*escaped);
                        rest = after;
                    }
                    other => subsection.push(*other),
                }
            }
            Some((name, Some(subsection), rest.strip_prefix(b"]")?))
        }
        _ => None,
    }
}

/// The name of a variable in lower case, its value, and the rest.
fn variable(text: &[u8]) -> Option<Parsed<'_>> {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let end = text.iter().position(|byte| !is_of_name(byte)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if !name.first()?.is_ascii_alphabetic() {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let rest = &rest[blank..];
    match rest.first() {
        None | Some(b'\n' | b'\r') => Some((name, None, rest)),
        Some(b'=') => {
            let (value, rest) = value(&rest[1..])?;
            Some((name, Some(value), rest))
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
            b' ' | b'\t' | b'\r' if !is_quoted => {
                if !value.is_empty() {
                    value.push(*byte);
                }
            }
            b'#' | b';' if !is_quoted => is_comment = true,
            b'"' => {
                is_quoted = !is_quoted;
                kept = value.len();
            }
            b'\\' => {
                let escaped = text.get(at)?;
                at += 1;
                kept = value.len();
                let byte = match escaped {
                    // The value continues in the next line.
                    b'\n' => continue,
                    b'\r' if text.get(at) == Some(&b'\n') => {
                        at += 1;
                        continue;
                    }
                    b'\\' | b'"' => *escaped,
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'b' => 8,
                    _ => return None,
                };
                value.push(byte);
                kept = value.len();
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
mod tests;
