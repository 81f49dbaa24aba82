//! What is left out of a tree. In this order: what is never copied, patterns that exclude, the
//! `.gitignore` files of the tree, and last the patterns that include. All patterns are those of
//! gitignore(5), from the top of the tree.

use std::convert::Infallible;
use std::io;

use serde::{Deserialize, Serialize};

use super::tree::{SkipReason, is_temporary};
use crate::ignore::{Case, Ignore};
use crate::path::RelativePath;
use crate::policy::is_git_directory;

/// Reads an ignore file of the tree; `None` if there is none.
pub type ReadIgnoreFile = Box<dyn FnMut(&RelativePath) -> io::Result<Option<Vec<u8>>> + Send>;

type NoFiles = fn(&RelativePath) -> Result<Option<Vec<u8>>, Infallible>;

/// The patterns of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patterns {
    /// Only what one of these matches is copied; everything if there is none.
    pub include: Vec<String>,
    /// What one of these matches is not copied.
    pub exclude: Vec<String>,
    /// Whether directories of git repositories are copied.
    pub git_directories: bool,
}

/// What a filter says about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is copied.
    Keep,
    /// It is not, and nothing below it.
    Skip(SkipReason),
    /// It is not included; what is below it may be.
    Outside,
}

/// The filter of a tree.
#[derive(Debug)]
pub struct Filter {
    include: Option<Ignore<NoFiles>>,
    exclude: Option<Ignore<NoFiles>>,
    ignore: Option<Ignore<ReadIgnoreFile>>,
    git_directories: bool,
}

impl Filter {
    /// The filter of these patterns, and of the ignore files that `read` returns, if they count.
    pub fn new(patterns: &Patterns, read: Option<ReadIgnoreFile>) -> Self {
        let compile = |patterns: &[String]| {
            let no_files: NoFiles = |_| Ok(None);
            let text = patterns.join("\n");
            (!patterns.is_empty()).then(|| Ignore::new(text.as_bytes(), Case::Distinct, no_files))
        };
        Self {
            include: compile(&patterns.include),
            exclude: compile(&patterns.exclude),
            ignore: read.map(|read| Ignore::new(b"", Case::Distinct, read)),
            git_directories: patterns.git_directories,
        }
    }

    /// What is to be done with a path, all directories above which are kept or outside.
    ///
    /// # Errors
    /// An ignore file that cannot be read.
    pub fn judge(&mut self, path: &RelativePath, is_directory: bool) -> io::Result<Verdict> {
        let name = path.file_name();
        if is_temporary(name) || (!self.git_directories && is_git_directory(name)) {
            return Ok(Verdict::Skip(SkipReason::GitDirectory));
        }
        if let Some(exclude) = &mut self.exclude {
            let Ok(excluded) = exclude.ignores(path, is_directory);
            if excluded {
                return Ok(Verdict::Skip(SkipReason::Excluded));
            }
        }
        if let Some(ignore) = &mut self.ignore
            && ignore.ignores(path, is_directory)?
        {
            return Ok(Verdict::Skip(SkipReason::Ignored));
        }
        match &mut self.include {
            None => Ok(Verdict::Keep),
            Some(include) => {
                let Ok(included) = include.ignores(path, is_directory);
                Ok(if included { Verdict::Keep } else { Verdict::Outside })
            }
        }
    }

    /// Whether a path is kept, and no directory above it is left out.
    ///
    /// # Errors
    /// As [`Filter::judge`].
    pub fn keeps(&mut self, path: &RelativePath, is_directory: bool) -> io::Result<bool> {
        let mut above: Vec<_> =
            std::iter::successors(path.parent(), RelativePath::parent).collect();
        above.reverse();
        for directory in above {
            if matches!(self.judge(&directory, true)?, Verdict::Skip(_)) {
                return Ok(false);
            }
        }
        Ok(self.judge(path, is_directory)? == Verdict::Keep)
    }
}
