//! The lines of a patch that come before the hunks of one file.

use super::error::Fault;
use super::name::unquote;
use crate::path::RelativePath;

/// The content of the lines before the hunks of one file.
#[derive(Debug, Default)]
pub(super) struct Header<'a> {
    /// What follows `diff --git `; `None` in a patch that git did not write.
    pub(super) git: Option<&'a [u8]>,
    /// From a `---` line: the path, or `Some(None)` for `/dev/null`.
    pub(super) old: Option<Option<RelativePath>>,
    /// From a `+++` line.
    pub(super) new: Option<Option<RelativePath>>,
    pub(super) old_mode: Option<u32>,
    pub(super) new_mode: Option<u32>,
    pub(super) new_file: Option<u32>,
    pub(super) deleted_file: Option<u32>,
    pub(super) index_mode: Option<u32>,
    pub(super) rename: (Option<RelativePath>, Option<RelativePath>),
    pub(super) copy: (Option<RelativePath>, Option<RelativePath>),
}

impl<'a> Header<'a> {
    /// Parses one extended header line; `false` if the line is not one.
    pub(super) fn extended(&mut self, line: &'a [u8]) -> Result<bool, Fault> {
        let after = |label: &str| line.strip_prefix(label.as_bytes());
        if let Some(mode) = after("old mode ") {
            set_once(&mut self.old_mode, file_mode(mode)?)?;
        } else if let Some(mode) = after("new mode ") {
            set_once(&mut self.new_mode, file_mode(mode)?)?;
        } else if let Some(mode) = after("new file mode ") {
            set_once(&mut self.new_file, file_mode(mode)?)?;
        } else if let Some(mode) = after("deleted file mode ") {
            set_once(&mut self.deleted_file, file_mode(mode)?)?;
        } else if let Some(path) = after("rename from ") {
            set_once(&mut self.rename.0, bare_path(path)?)?;
        } else if let Some(path) = after("rename to ") {
            set_once(&mut self.rename.1, bare_path(path)?)?;
        } else if let Some(path) = after("copy from ") {
            set_once(&mut self.copy.0, bare_path(path)?)?;
        } else if let Some(path) = after("copy to ") {
            set_once(&mut self.copy.1, bare_path(path)?)?;
        } else if let Some(objects) = after("index ") {
            if let Some(space) = objects.iter().position(|b| *b == b' ') {
                set_once(&mut self.index_mode, file_mode(&objects[space + 1..])?)?;
            }
        } else {
            return Ok(after("similarity index ")
                .or_else(|| after("dissimilarity index "))
                .is_some());
        }
        Ok(true)
    }

    /// The path in a `diff --git` line that names the same path twice.
    pub(super) fn path_of_git_line(&self) -> Result<RelativePath, Fault> {
        let line = self.git.ok_or(Fault::Names)?;
        if line.first() == Some(&b'"') || line.last() == Some(&b'"') {
            let (old, new) = quoted_pair(line).ok_or(Fault::Quoting)?;
            let (old, new) = (prefixed(&old, b"a/")?, prefixed(&new, b"b/")?);
            return if old == new { Ok(old) } else { Err(Fault::Names) };
        }
        // `a/PATH b/PATH`: the two halves have the same length, so it can only be split in the
        // middle.
        let half = line.len() / 2;
        if line.get(half) != Some(&b' ') {
            return Err(Fault::Names);
        }
        let (old, new) = (prefixed(&line[..half], b"a/")?, prefixed(&line[half + 1..], b"b/")?);
        if old == new { Ok(old) } else { Err(Fault::Names) }
    }

    /// Whether the `diff --git` line, if there is one, names these two paths.
    pub(super) fn matches(&self, old: &RelativePath, new: &RelativePath) -> bool {
        let Some(line) = self.git else { return true };
        let wanted = [&[b"a/", old.as_bytes()].concat()[..], &[b"b/", new.as_bytes()].concat()];
        if line == wanted.join(&b' ') {
            return true;
        }
        quoted_pair(line).is_some_and(|(old, new)| old == wanted[0] && new == wanted[1])
    }
}

/// The path of a `---` or `+++` line; `None` for `/dev/null`.
pub(super) fn side(text: &[u8], prefix: &[u8]) -> Result<Option<RelativePath>, Fault> {
    let name = if text.first() == Some(&b'"') {
        let (name, rest) = unquote(text).ok_or(Fault::Quoting)?;
        if !(rest.is_empty() || rest[0] == b'\t') {
            return Err(Fault::Quoting);
        }
        name
    } else {
        // A timestamp may follow, after a tab.
        text.split(|b| *b == b'\t').next().unwrap_or(text).to_vec()
    };
    if name == b"/dev/null" {
        return Ok(None);
    }
    prefixed(&name, prefix).map(Some)
}

/// The path of a rename or copy line, which has no prefix.
fn bare_path(text: &[u8]) -> Result<RelativePath, Fault> {
    if text.first() != Some(&b'"') {
        return RelativePath::new(text).map_err(Fault::Path);
    }
    match unquote(text) {
        Some((name, [])) => RelativePath::new(name).map_err(Fault::Path),
        _ => Err(Fault::Quoting),
    }
}

fn prefixed(name: &[u8], prefix: &[u8]) -> Result<RelativePath, Fault> {
    if name.first() == Some(&b'/') {
        return Err(Fault::Path(crate::path::Error::Absolute));
    }
    let path = name.strip_prefix(prefix).ok_or(Fault::Prefix)?;
    RelativePath::new(path).map_err(Fault::Path)
}

/// Parses two names of which at least one is quoted.
fn quoted_pair(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (first, rest) = if line.first() == Some(&b'"') {
        let (first, rest) = unquote(line)?;
        (first, rest.strip_prefix(b" ")?)
    } else {
        let quote = line.iter().position(|b| *b == b'"')?;
        (line[..quote].strip_suffix(b" ")?.to_vec(), &line[quote..])
    };
    if rest.first() != Some(&b'"') {
        return Some((first, rest.to_vec()));
    }
    match unquote(rest)? {
        (second, []) => Some((first, second)),
        _ => None,
    }
}

fn file_mode(digits: &[u8]) -> Result<u32, Fault> {
    let mode = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.len() == 6)
        .and_then(|digits| u32::from_str_radix(digits, 8).ok())
        .ok_or(Fault::Mode)?;
    match mode {
        0o100_000..=0o100_777 | 0o120_000 => Ok(mode),
        _ => Err(Fault::Mode),
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<(), Fault> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Fault::Repeated),
    }
}
