//! The git directory of a project: its location, and the commit that HEAD names.
//!
//! Only files are read (gitrepository-layout(5)); a file in an unsupported format counts as
//! absent.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::beneath::{Dir, FileKind, Timestamp};
use crate::path::RelativePath;

/// Where a project's git directory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Git {
    /// There is none.
    None,
    /// In a directory `.git` of the project.
    Directory,
    /// Elsewhere, and a file `.git` points to it: a linked worktree or a submodule. The git
    /// directory points back to the project (or belongs to an enclosing repository), so it is
    /// safe to expose.
    Worktree {
        /// The git directory of this worktree.
        git_dir: PathBuf,
        /// The directory that it shares with the other worktrees; the same for a submodule.
        common_dir: PathBuf,
    },
    /// There is a `.git` whose target cannot be verified: a link, or a file that points to a
    /// directory which does not point back. It may come from an untrusted source together with
    /// the other files, so its target is neither read nor exposed.
    Unverified,
}

/// Pointers (`.git`, `HEAD`, loose references) are one short line.
const MAX_POINTER_BYTES: u64 = 8 << 10;

/// Repositories with more packed references are treated as having no base commit.
const MAX_PACKED_BYTES: u64 = 16 << 20;

/// The longest chain of symbolic references, as in git.
const MAX_SYMBOLIC: usize = 5;

pub(super) fn marker() -> RelativePath {
    RelativePath::literal(".git")
}

impl Git {
    pub(super) fn of(root: &Path, dir: &Dir, found: Option<FileKind>) -> Self {
        match found {
            None => Self::None,
            Some(FileKind::Directory) => Self::Directory,
            Some(FileKind::File) => worktree(root, dir).unwrap_or(Self::Unverified),
            Some(_) => Self::Unverified,
        }
    }

    /// The git directory of this worktree.
    pub(super) fn directory(&self, project: &Dir) -> Option<Dir> {
        match self {
            Self::None | Self::Unverified => None,
            Self::Directory => project.open_dir(&marker()).ok(),
            Self::Worktree { git_dir, .. } => Dir::open(git_dir).ok(),
        }
    }

    /// The directory that all worktrees share.
    pub(super) fn common_directory(&self, project: &Dir) -> Option<Dir> {
        match self {
            Self::Worktree { common_dir, .. } => Dir::open(common_dir).ok(),
            Self::None | Self::Unverified | Self::Directory => self.directory(project),
        }
    }

    /// The content of a file in the git directory, if it is no longer than `limit` bytes.
    pub(super) fn file(&self, project: &Dir, file: &RelativePath, limit: u64) -> Option<Vec<u8>> {
        read(&self.directory(project)?, file, limit)
    }

    /// When a file in the git directory was last written.
    pub(super) fn modified(&self, project: &Dir, file: &RelativePath) -> Option<Timestamp> {
        Some(self.directory(project)?.stat(file).ok()??.modified)
    }

    /// The same for a file that all worktrees share.
    pub(super) fn common_file(
        &self,
        project: &Dir,
        file: &RelativePath,
        limit: u64,
    ) -> Option<Vec<u8>> {
        read(&self.common_directory(project)?, file, limit)
    }

    /// The commit that HEAD names, in hexadecimal; `None` before the first commit, and where
    /// references are stored in an unsupported format.
    pub(super) fn head_commit(&self, project: &Dir) -> Option<String> {
        let own = self.directory(project)?;
        let mut content = read(&own, &RelativePath::literal("HEAD"), MAX_POINTER_BYTES)?;
        for _ in 0..MAX_SYMBOLIC {
            let line = content.trim_ascii_end();
            let Some(name) = line.strip_prefix(b"ref:") else { return commit(line) };
            let name = RelativePath::new(name.trim_ascii()).ok()?;
            if name.components().next() != Some(b"refs") {
                return None;
            }
            if let Some(next) = read(&own, &name, MAX_POINTER_BYTES) {
                content = next;
                continue;
            }
            let common = self.common_directory(project)?;
            match read(&common, &name, MAX_POINTER_BYTES) {
                Some(next) => content = next,
                None => return packed_ref(&common, &name),
            }
        }
        None
    }
}

/// The content of a regular file beneath `dir`, unless it is longer than `limit`.
fn read(dir: &Dir, file: &RelativePath, limit: u64) -> Option<Vec<u8>> {
    let file = dir.open_file(file).ok()?;
    let mut content = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut content).ok()?;
    u64::try_from(content.len()).is_ok_and(|length| length <= limit).then_some(content)
}

fn packed_ref(common: &Dir, name: &RelativePath) -> Option<String> {
    let content = read(common, &RelativePath::literal("packed-refs"), MAX_PACKED_BYTES)?;
    content.split(|b| *b == b'\n').find_map(|line| {
        let (hex, after) = line.split_at_checked(line.iter().position(|b| *b == b' ')?)?;
        (&after[1..] == name.as_bytes()).then(|| commit(hex)).flatten()
    })
}

fn commit(hex: &[u8]) -> Option<String> {
    let known = matches!(hex.len(), 40 | 64) && hex.iter().all(u8::is_ascii_hexdigit);
    if known { String::from_utf8(hex.to_vec()).ok() } else { None }
}

/// Follows a file `.git` and checks that its target belongs to this project.
fn worktree(root: &Path, dir: &Dir) -> Option<Git> {
    let git_dir = root.join(pointer(dir, marker(), b"gitdir:")?).canonicalize().ok()?;
    let git = Dir::open(&git_dir).ok()?;
    let common_dir = match pointer(&git, RelativePath::literal("commondir"), b"") {
        Some(common) => git_dir.join(common).canonicalize().ok()?,
        None => git_dir.clone(),
    };
    let root = root.canonicalize().ok()?;
    // A directory that merely claims to be a repository, and would expose the files around the
    // project, is not accepted.
    let is_repository =
        ["HEAD", "objects", "refs"].iter().all(|part| common_dir.join(part).exists());
    if !is_repository || root.starts_with(&common_dir) || git_dir.starts_with(&root) {
        return None;
    }
    let points_back = || {
        let back = git_dir.join(pointer(&git, RelativePath::literal("gitdir"), b"")?);
        Some(back.canonicalize().ok()? == root.join(".git"))
    };
    let kept_around = || {
        let mut above = root.ancestors().skip(1);
        above.any(|above| git_dir.starts_with(above.join(".git/modules")))
    };
    let inside_common = git_dir.starts_with(common_dir.join("worktrees"));
    let proven =
        (inside_common && points_back() == Some(true)) || (git_dir == common_dir && kept_around());
    proven.then_some(Git::Worktree { git_dir, common_dir })
}

/// The path that a pointer file holds.
fn pointer(dir: &Dir, file: RelativePath, label: &[u8]) -> Option<PathBuf> {
    let content = read(dir, &file, MAX_POINTER_BYTES)?;
    let path = content.strip_prefix(label)?.trim_ascii();
    (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}
