//! The repositories in a project: its own, and those of submodules and clones within it.

use std::convert::Infallible;
use std::io::Read as _;

use super::{Project, config, git};
use crate::beneath::{Dir, FileKind, Timestamp};
use crate::ignore::{self, Ignore};
use crate::index::{self, Index};
use crate::path::RelativePath;

/// A longer configuration is ignored.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Returns the content of an ignore file of a project.
pub(crate) type ReadRules<'a> =
    Box<dyn FnMut(&RelativePath) -> Result<Option<Vec<u8>>, Infallible> + 'a>;

/// One repository. It holds no file descriptor, because there may be many.
#[derive(Debug)]
pub(crate) struct Repository {
    /// Its root below the project's root; `None` is the project's root.
    root: Option<RelativePath>,
    git: git::Git,
}

impl Project {
    /// The repository whose root is this directory; `None` if git treats the directory as an
    /// ordinary one. The project's own root always counts as a repository.
    pub(crate) fn repository(&self, root: Option<&RelativePath>) -> Option<Repository> {
        let Some(root) = root else {
            return Some(Repository { root: None, git: self.git.clone() });
        };
        let dir = self.dir.open_dir(root).ok()?;
        let found = dir.stat(&git::marker()).ok()??;
        if found.kind == FileKind::Directory && !is_git_directory(&dir) {
            return None;
        }
        let git = git::Git::of(&self.root.join(root.as_os_str()), &dir, Some(found.kind));
        Some(Repository { root: Some(root.clone()), git })
    }

    /// The project's own ignore rules, without those of repositories in it.
    pub(crate) fn ignore_rules(&self) -> Ignore<ReadRules<'_>> {
        let repository = Repository { root: None, git: self.git.clone() };
        let exclude = RelativePath::literal("info/exclude");
        let exclude = repository.common_file(self, &exclude, ignore::MAX_FILE_BYTES);
        let case = match repository.ignores_case(self) {
            true => ignore::Case::Ignored,
            false => ignore::Case::Distinct,
        };
        let read: ReadRules<'_> = Box::new(|file| {
            // Like git, it reads no file that is a link or is unreadable.
            let content = self.dir.open_file(file).ok().and_then(|file| {
                let mut content = Vec::new();
                file.take(ignore::MAX_FILE_BYTES + 1).read_to_end(&mut content).ok()?;
                Some(content)
            });
            Ok(content)
        });
        Ignore::new(&exclude.unwrap_or_default(), case, read)
    }

    /// The paths that git tracks in the project's own repository.
    ///
    /// # Errors
    /// If the index is damaged. Without one, nothing is tracked.
    pub(crate) fn tracked(&self) -> Result<Index, index::Error> {
        let read = |name: &str| {
            let name = RelativePath::new(name).ok()?;
            self.git_file(&name, index::MAX_FILE_BYTES)
        };
        let Some(content) = read("index") else { return Ok(Index::default()) };
        let mut index = Index::parse(&content)?;
        if let Some(shared) = index.shared().map(str::to_owned) {
            index.join(Index::parse(&read(&shared).unwrap_or_default())?);
        }
        Ok(index)
    }
}

impl Repository {
    /// Its root below the project's root; `None` is the project's root.
    pub(crate) fn root(&self) -> Option<&RelativePath> {
        self.root.as_ref()
    }

    /// The content of a file in its git directory (such as `index`), if it is no longer than
    /// `limit` bytes.
    pub(crate) fn file(
        &self,
        project: &Project,
        file: &RelativePath,
        limit: u64,
    ) -> Option<Vec<u8>> {
        self.read_in_root(project, |dir| self.git.file(dir, file, limit))
    }

    /// When a file in its git directory was last written.
    pub(crate) fn modified(&self, project: &Project, file: &RelativePath) -> Option<Timestamp> {
        self.read_in_root(project, |dir| self.git.modified(dir, file))
    }

    /// The same for a file that all its worktrees share (such as `info/exclude`).
    pub(crate) fn common_file(
        &self,
        project: &Project,
        file: &RelativePath,
        limit: u64,
    ) -> Option<Vec<u8>> {
        self.read_in_root(project, |dir| self.git.common_file(dir, file, limit))
    }

    /// Whether the repository's own configuration makes paths case-insensitive (`core.ignoreCase`
    /// in git-config(1)).
    pub(crate) fn ignores_case(&self, project: &Project) -> bool {
        let file = RelativePath::literal("config");
        let content = self.common_file(project, &file, MAX_CONFIG_BYTES).unwrap_or_default();
        config::is_set(&content, b"core", b"ignorecase")
    }

    fn read_in_root<T>(
        &self,
        project: &Project,
        read: impl FnOnce(&Dir) -> Option<T>,
    ) -> Option<T> {
        match &self.root {
            None => read(&project.dir),
            Some(root) => read(&project.dir.open_dir(root).ok()?),
        }
    }
}

/// Whether git accepts the `.git` of a directory as a repository (`is_git_directory` in its
/// `setup.c`).
fn is_git_directory(dir: &Dir) -> bool {
    ["HEAD", "objects", "refs"].iter().all(|part| {
        let path = git::marker().join(part.as_bytes());
        path.is_ok_and(|path| matches!(dir.stat(&path), Ok(Some(_))))
    })
}
