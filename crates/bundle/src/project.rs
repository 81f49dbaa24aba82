//! The project that a command works on: its location, its git directory, and its current
//! commit.
//!
//! It starts no git process and opens only a handful of files, because every run executes this
//! code.

mod commands;
mod config;
mod git;
mod identity;
mod keys;
mod programs;
mod repository;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::beneath::{self, Dir, FileKind, Stat};
use crate::manifest::{Entry, ExecutedBy, Node};
use crate::path::RelativePath;

pub use git::Git;
pub(crate) use repository::{ReadRules, Repository};

/// A longer configuration of a repository is not read.
const MAX_CONFIG_BYTES: u64 = 4 << 20;
/// The most other directories with objects.
const MAX_ALTERNATES: usize = 8;

/// A project's directory on the host.
#[derive(Debug)]
pub struct Project {
    /// Its absolute path.
    pub root: PathBuf,
    /// The descriptor of its directory, beneath which paths are resolved.
    pub dir: Dir,
    /// The owner and mode of its directory when it was found.
    pub stat: Stat,
    /// Where its git directory is.
    pub git: Git,
    /// The commit that HEAD names, in hexadecimal, if there is one.
    pub base_ref: Option<String>,
}

/// Why a directory cannot be used as a project.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path is not absolute.
    #[error("{} is not an absolute path", .0.display())]
    NotAbsolute(PathBuf),
    /// The project would be the root of the file system.
    #[error("/ cannot be used as a project")]
    Root,
    /// The project would be the home directory, or contain it.
    #[error("{} cannot be used as a project: it is or contains your home directory", .0.display())]
    Home(PathBuf),
    /// A directory could not be read.
    #[error("cannot look for the project in {}", path.display())]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: beneath::Error,
    },
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Root | Self::Home(_) => Some(
                "change into the directory that you want to work on; `git init` there makes it a project of its own",
            ),
            Self::NotAbsolute(_) | Self::Unreadable { .. } => None,
        }
    }
}

impl Project {
    /// Finds the project that contains `cwd`, an absolute path: the nearest ancestor that
    /// contains a `.git`, else `cwd` itself. Refuses `/`, `home` and any directory that
    /// contains `home`.
    pub fn find(cwd: &Path, home: Option<&Path>) -> Result<Self, Error> {
        if !cwd.is_absolute() {
            return Err(Error::NotAbsolute(cwd.to_owned()));
        }
        for candidate in cwd.ancestors() {
            let dir = open(candidate)?;
            let found = dir.stat(&git::marker()).map_err(unreadable_error(candidate))?;
            if let Some(found) = found {
                return Self::at(candidate, dir, Some(found.kind), home);
            }
        }
        Self::at(cwd, open(cwd)?, None, home)
    }

    /// Opens the project whose root is `root`, as returned by an earlier [`Project::find`].
    pub fn open(root: &Path, home: Option<&Path>) -> Result<Self, Error> {
        if !root.is_absolute() {
            return Err(Error::NotAbsolute(root.to_owned()));
        }
        let dir = open(root)?;
        let found = dir.stat(&git::marker()).map_err(unreadable_error(root))?;
        Self::at(root, dir, found.map(|found| found.kind), home)
    }

    fn at(
        root: &Path,
        dir: Dir,
        git: Option<FileKind>,
        home: Option<&Path>,
    ) -> Result<Self, Error> {
        let stat = dir.stat_self().map_err(unreadable_error(root))?;
        if root.parent().is_none() || is_same(&stat, Path::new("/")) {
            return Err(Error::Root);
        }
        let git = Git::of(root, &dir, git);
        let base_ref = git.head_commit(&dir);
        let project = Self { root: root.to_owned(), dir, stat, git, base_ref };
        if let Some(home) = home {
            project.refuse_home(home)?;
        }
        Ok(project)
    }

    /// Returns an error if the project also is, or contains, this home directory.
    pub fn refuse_home(&self, home: &Path) -> Result<(), Error> {
        if is_same(&self.stat, home) || home.ancestors().any(|above| above == self.root) {
            return Err(Error::Home(self.root.clone()));
        }
        Ok(())
    }

    /// The git directory that all worktrees share, if there is a repository.
    pub(crate) fn common_git_directory(&self) -> Option<Dir> {
        self.git.common_directory(&self.dir)
    }

    /// The value of an extension that the repository uses (`extensions.NAME`, in lower case).
    pub(crate) fn git_extension(&self, name: &[u8]) -> Option<Vec<u8>> {
        let content = self.git_common_file(&RelativePath::literal("config"), MAX_CONFIG_BYTES)?;
        let found = config::parse(&content).into_iter().rfind(|variable| {
            variable.section == b"extensions"
                && variable.subsection.is_none()
                && variable.name == name
        });
        found?.value
    }

    /// The directories in which the repository has its objects: its own, and those of its
    /// `alternates`, from which it was cloned with `--shared` or `--reference`.
    pub fn object_directories(&self) -> Vec<PathBuf> {
        let git_dir = match &self.git {
            Git::None | Git::Unverified => return Vec::new(),
            Git::Directory => self.root.join(".git"),
            Git::Worktree { common_dir, .. } => common_dir.clone(),
        };
        let objects = git_dir.join("objects");
        let list = RelativePath::literal("objects/info/alternates");
        let content = self.git_common_file(&list, MAX_CONFIG_BYTES).unwrap_or_default();
        let lines = content
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty() && !line.starts_with(b"#") && !line.starts_with(b"\""));
        let others = lines.take(MAX_ALTERNATES).map(|line| objects.join(OsStr::from_bytes(line)));
        let all: Vec<_> = others.filter_map(|path| path.canonicalize().ok()).collect();
        std::iter::once(objects.clone()).chain(all).collect()
    }

    /// The content of a file in the git directory (such as `index`), if the project has one and
    /// the file is no longer than `limit` bytes.
    pub fn git_file(&self, file: &RelativePath, limit: u64) -> Option<Vec<u8>> {
        self.git.file(&self.dir, file, limit)
    }

    /// The same for a file that all worktrees of a repository share (such as `info/exclude`).
    pub fn git_common_file(&self, file: &RelativePath, limit: u64) -> Option<Vec<u8>> {
        self.git.common_file(&self.dir, file, limit)
    }
}

/// Marks the entries that git executes or obeys because the configuration of the project at `root`,
/// or of its user, names them. A project that cannot be opened has none.
pub fn mark_programs(root: &Path, entries: &mut [Entry]) {
    if let Ok(project) = Project::open(root, None) {
        project.mark_programs(entries);
    }
}

impl Project {
    /// Marks the entries that git executes or obeys because the configuration names them.
    pub(crate) fn mark_programs(&self, entries: &mut [Entry]) {
        self.mark_programs_of(entries, &programs::Surroundings::of_process());
    }

    fn mark_programs_of(&self, entries: &mut [Entry], surroundings: &programs::Surroundings) {
        let mut directories = BTreeSet::new();
        for entry in entries.iter() {
            let mut next = entry.path.parent();
            while let Some(directory) = next.take() {
                next = directory.parent();
                if !directories.insert(directory) {
                    break;
                }
            }
        }
        let is_root = |directory: &RelativePath| self.repository(Some(directory)).is_some();
        let nested = directories.into_iter().filter(is_root);
        let programs = programs::Programs::of(self, surroundings, nested);
        for entry in entries.iter_mut().filter(|entry| entry.executed_by.is_none()) {
            let is_link = matches!(entry.change.new_node(), Some(Node::Symlink { .. }));
            if programs.hold(&entry.path, is_link) {
                entry.executed_by = Some(ExecutedBy::Hooks);
            }
        }
    }
}

/// Whether a host path refers to this directory.
fn is_same(stat: &Stat, path: &Path) -> bool {
    Stat::of_host(path).is_ok_and(|other| (other.device, other.inode) == (stat.device, stat.inode))
}

fn open(path: &Path) -> Result<Dir, Error> {
    Dir::open(path).map_err(unreadable_error(path))
}

fn unreadable_error(path: &Path) -> impl Fn(beneath::Error) -> Error {
    move |source| Error::Unreadable { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
