//! Which paths git ignores: `.gitignore` in every directory, then `.git/info/exclude`.
//!
//! The index is not consulted: a tracked file is never ignored, and the caller must check that
//! with [`crate::index`]. The user's own rules (`core.excludesFile`) are not read.

mod glob;
mod rules;

use std::collections::HashMap;

use crate::path::RelativePath;
use rules::Rules;

pub use rules::MAX_FILE_BYTES;

/// Whether upper and lower case are equivalent (`core.ignoreCase` in git-config(1)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// They are not.
    Distinct,
    /// They are equivalent, for ASCII letters.
    Ignored,
}

/// The ignore rules of one tree. Each ignore file is read once, when it is first needed.
pub struct Ignore<R> {
    exclude: Rules,
    case: Case,
    read: R,
    /// The rules of each directory; `None` is the root.
    rules: HashMap<Option<RelativePath>, Rules>,
    /// Whether each directory itself is ignored.
    directories: HashMap<RelativePath, bool>,
}

impl<R, E> Ignore<R>
where
    R: FnMut(&RelativePath) -> Result<Option<Vec<u8>>, E>,
{
    /// Creates the rules of a tree: `exclude` is the content of `.git/info/exclude` (empty if
    /// there is none), and `read` returns the content of a `.gitignore` in the tree, or `None`
    /// if there is no regular file of that name.
    pub fn new(exclude: &[u8], case: Case, read: R) -> Self {
        Self {
            exclude: Rules::parse(bounded(exclude), case),
            case,
            read,
            rules: HashMap::new(),
            directories: HashMap::new(),
        }
    }

    /// Whether git would ignore `path` if it were not tracked. Fails only if `read` fails.
    pub fn ignores(&mut self, path: &RelativePath, is_directory: bool) -> Result<bool, E> {
        if is_directory && let Some(known) = self.directories.get(path) {
            return Ok(*known);
        }
        // Rules do not apply below an ignored directory.
        let ignored = match path.parent() {
            Some(parent) if self.ignores(&parent, true)? => true,
            parent => self.judge(path, parent, is_directory)?,
        };
        if is_directory {
            self.directories.insert(path.clone(), ignored);
        }
        Ok(ignored)
    }

    /// The verdict of the rules alone: that of the deepest ignore file with a matching rule.
    fn judge(
        &mut self,
        path: &RelativePath,
        mut directory: Option<RelativePath>,
        is_directory: bool,
    ) -> Result<bool, E> {
        loop {
            let skipped = directory.as_ref().map_or(0, |d| d.as_bytes().len() + 1);
            let relative = &path.as_bytes()[skipped..];
            if let Some(verdict) =
                self.rules_of(directory.as_ref())?.verdict(relative, is_directory)
            {
                return Ok(verdict);
            }
            match directory {
                Some(below) => directory = below.parent(),
                None => break,
            }
        }
        Ok(self.exclude.verdict(path.as_bytes(), is_directory).unwrap_or(false))
    }

    fn rules_of(&mut self, directory: Option<&RelativePath>) -> Result<&Rules, E> {
        let key = directory.cloned();
        if !self.rules.contains_key(&key) {
            let file = match directory {
                Some(directory) => directory.join(b".gitignore"),
                None => RelativePath::new(".gitignore"),
            };
            let content = match file {
                Ok(file) => (self.read)(&file)?.unwrap_or_default(),
                Err(_) => Vec::new(),
            };
            self.rules.insert(key.clone(), Rules::parse(bounded(&content), self.case));
        }
        Ok(self.rules.entry(key).or_insert_with(|| Rules::parse(b"", self.case)))
    }
}

impl<R> std::fmt::Debug for Ignore<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ignore").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// A file of rules that exceeds the limit has no effect: what it would hide is shown.
fn bounded(content: &[u8]) -> &[u8] {
    let fits = u64::try_from(content.len()).is_ok_and(|length| length <= MAX_FILE_BYTES);
    if fits { content } else { b"" }
}

#[cfg(test)]
mod tests;
