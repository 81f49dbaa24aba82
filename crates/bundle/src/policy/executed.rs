//! The files that a host tool executes or obeys automatically, by their names. [`families`] has the
//! names.
//!
//! [`families`]: super::families

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::manifest::ExecutedBy;
use crate::path::RelativePath;

use super::families::{self, Family};
use super::names::folded;

/// A pattern of more than one name, or with a `*`.
#[derive(Debug)]
struct Pattern {
    names: Vec<&'static [u8]>,
    is_directory: bool,
    by: ExecutedBy,
}

/// The patterns, in the form in which they are compared. A path with none of the names is the usual
/// case, and there may be many paths.
#[derive(Debug, Default)]
struct Index {
    directories: HashMap<&'static [u8], ExecutedBy>,
    files: HashMap<&'static [u8], ExecutedBy>,
    patterns: Vec<Pattern>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| Index::of(families::all()));

impl Index {
    fn of(families: impl Iterator<Item = &'static Family>) -> Self {
        let mut index = Self::default();
        for family in families {
            for pattern in family.patterns {
                let (path, is_directory) = match pattern.strip_suffix('/') {
                    Some(path) => (path, true),
                    None => (*pattern, false),
                };
                let by = family.by;
                if path.contains(['/', '*']) {
                    let names = path.split('/').map(str::as_bytes).collect();
                    index.patterns.push(Pattern { names, is_directory, by });
                } else if is_directory {
                    index.directories.entry(path.as_bytes()).or_insert(by);
                } else {
                    index.files.entry(path.as_bytes()).or_insert(by);
                }
            }
        }
        index
    }
}

impl Pattern {
    /// Whether the names of a path have this pattern. With `is_link`, also if they are those of a
    /// directory on the way.
    fn fits(&self, parts: &[Vec<u8>], is_link: bool) -> bool {
        let length = self.names.len();
        let all = |parts: &[Vec<u8>]| {
            parts.len() <= length
                && parts.iter().zip(&self.names).all(|(part, name)| glob(name, part))
        };
        let ends = |length: usize| parts.len() >= length && all(&parts[parts.len() - length..]);
        ends(length)
            || self.is_directory && parts.windows(length).any(all)
            || is_link && (1..length).any(ends)
    }
}

/// The kind of host tool that executes the file at `path` automatically, if any. Names are compared
/// as the most lenient file system would (see [`super::is_git_directory`]), at any depth.
///
/// With `is_link`, a link that replaces a directory on the way to such a file counts as well: a
/// link `.config` decides what `.config/mise` is.
pub fn executed_by(path: &RelativePath, is_link: bool) -> Option<ExecutedBy> {
    let parts: Vec<Vec<u8>> = path.components().map(folded).collect();
    let index = &*INDEX;
    let by_directory = parts.iter().find_map(|part| index.directories.get(part.as_slice()));
    let by_file = || parts.last().and_then(|name| index.files.get(name.as_slice()));
    let by_pattern = || {
        let found = index.patterns.iter().find(|pattern| pattern.fits(&parts, is_link));
        found.map(|pattern| &pattern.by)
    };
    by_directory.or_else(by_file).or_else(by_pattern).copied()
}

/// Whether a name has the form of a pattern, in which `*` is any part of it.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return pattern == name };
    let (start, rest) = (&pattern[..star], &pattern[star + 1..]);
    let Some(name) = name.strip_prefix(start) else { return false };
    if !rest.contains(&b'*') {
        return name.ends_with(rest);
    }
    (0..=name.len()).any(|at| glob(rest, &name[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pattern_is_in_its_own_form_and_has_a_source() {
        for family in families::all() {
            assert!(family.source.starts_with("https://"), "{family:?}");
            for pattern in family.patterns {
                assert_eq!(*pattern, pattern.to_lowercase(), "{pattern}");
                let path = pattern.trim_end_matches('/').replace('*', "x");
                let path = RelativePath::new(path).unwrap();
                assert!(executed_by(&path, false).is_some(), "{pattern}");
                let below = RelativePath::new(format!("a/b/{path}")).unwrap();
                assert!(executed_by(&below, false).is_some(), "{pattern}");
            }
        }
    }

    #[test]
    fn stars_are_any_part_of_a_name() {
        for (pattern, name) in
            [("a*", "a"), ("a*", "abc"), ("*c", "abc"), ("a*c*", "abcd"), ("*", "")]
        {
            assert!(glob(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("a*", "ba"), ("*c", "ca"), ("a*c", "ab"), ("abc", "ab")] {
            assert!(!glob(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }
}
