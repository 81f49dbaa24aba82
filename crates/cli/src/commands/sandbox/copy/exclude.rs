//! What `cp --exclude` and `cp --exclude-from` leave out: paths of the copied tree that patterns match, by the
//! rules of gitignore(5), from the top of that tree.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use stockade_bundle::RelativePath;
use stockade_bundle::ignore::{Case, Ignore};

use super::host_failure;
use crate::problem::Failure;

/// A tree has no files with more patterns: those that it contains are files like others.
type NoFiles = fn(&RelativePath) -> Result<Option<Vec<u8>>, Infallible>;

/// The patterns of one copy.
#[derive(Default)]
pub(super) struct Exclusions(Option<Ignore<NoFiles>>);

impl Exclusions {
    /// The patterns of the arguments.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn new(patterns: &[OsString], files: &[PathBuf]) -> Result<Self, Failure> {
        let mut lines = Vec::new();
        for file in files {
            lines.extend(std::fs::read(file).map_err(|error| host_failure(file, &error))?);
            lines.push(b'\n');
        }
        for pattern in patterns {
            lines.extend_from_slice(pattern.as_bytes());
            lines.push(b'\n');
        }
        if lines.is_empty() {
            return Ok(Self(None));
        }
        let no_files: NoFiles = |_| Ok(None);
        Ok(Self(Some(Ignore::new(&lines, Case::Distinct, no_files))))
    }

    /// Whether a path of the tree is left out. So is everything below it.
    pub(super) fn excludes(&mut self, path: &RelativePath, is_directory: bool) -> bool {
        let Some(ignore) = &mut self.0 else { return false };
        let Ok(is_excluded) = ignore.ignores(path, is_directory);
        is_excluded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_gitignore() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("patterns");
        std::fs::write(&file, "# a comment\n/build/\n!keep.log").unwrap();
        let patterns = ["*.log".into(), "!important.log".into()];
        let mut exclusions = Exclusions::new(&patterns, &[file]).unwrap();
        let mut excludes = |path: &str, is_directory| {
            exclusions.excludes(&RelativePath::new(path).unwrap(), is_directory)
        };
        assert!(
            excludes("a/b.log", false) && excludes("build", true) && excludes("build/x", false)
        );
        assert!(!excludes("a/build", true) && !excludes("build", false));
        assert!(!excludes("important.log", false) && !excludes("a/b.txt", false));
        let path = RelativePath::new("anything").unwrap();
        assert!(!Exclusions::default().excludes(&path, true));
        assert!(Exclusions::new(&[], &["/nowhere".into()]).is_err());
    }
}
