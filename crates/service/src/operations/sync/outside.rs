//! The side outside of the sandbox: a directory of the host, or a workspace.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use stockade_api::{Bytes, Caller, Result, SyncFiles};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;
use stockade_bundle::data::DataDir;
use stockade_bundle::ignore::MAX_FILE_BYTES;
use stockade_bundle::manifest::{ContentHash, Node};
use stockade_bundle::sync::{
    self, Action, Blobs, Filter, Found, Identity, Nodes, Place, ReadIgnoreFile, Scan, Verdict,
};
use stockade_bundle::workspace::{Change, MAIN, Workspaces, has_below};
use stockade_core::{Code, OwnerId, Problem, VolumeName};

use super::Direction;
use super::staging::problem;
use crate::elsewhere;
use crate::failure::{caused, invalid, workspace_problem};
use crate::host_paths;
use crate::inner::Inner;

/// The ignore files of one side, by their paths.
pub(super) type IgnoreFiles = Arc<Mutex<HashMap<RelativePath, Vec<u8>>>>;

/// A function that reads ignore files that were collected.
pub(super) fn read_collected(files: &IgnoreFiles) -> ReadIgnoreFile {
    let files = files.clone();
    Box::new(move |path| {
        Ok(files.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned())
    })
}

/// The side outside.
pub(super) enum Outside {
    Directory { dir: Dir, path: PathBuf },
    Workspace(WorkspacePath),
}

/// A directory of a workspace.
pub(super) struct WorkspacePath {
    all: Workspaces,
    name: VolumeName,
    branch: String,
    prefix: Option<RelativePath>,
    author: OwnerId,
}

/// Refuses what the caller may not read or write, before anything is read. A path that a setting
/// allows is replaced by the one that it leads to.
pub(super) fn check(
    inner: &Inner,
    caller: &Caller,
    request: &mut SyncFiles,
    direction: Direction,
) -> Result<()> {
    let writes = direction == Direction::ToVfs || request.two_way;
    match (&request.vfs.directory, &request.vfs.workspace) {
        (Some(_), Some(_)) | (None, None) => {
            Err(invalid("`vfs` names either a `directory` or a `workspace`"))
        }
        (None, Some(_)) => Outside::open(inner, &caller.owner, request, false).map(drop),
        (Some(directory), None) => {
            if request.vfs.path.is_some() {
                return Err(invalid("`path` needs a `workspace`"));
            }
            let path = host_path(directory)?;
            let what = "a directory of the server's machine";
            if caller.remote {
                let known = if path.exists() { &path } else { path.parent().unwrap_or(&path) };
                elsewhere::check_directory(caller, known, &inner.options, what)
                    .map_err(|refused| forbidden(&path, refused.cause.unwrap_or_default()))?;
                let real = host_paths::allowed(known, &inner.options.host_paths);
                let real = real.map(|real| match path.exists() {
                    true => real,
                    false => real.join(path.file_name().unwrap_or_default()),
                });
                if let Some(real) = real {
                    request.vfs.directory = Some(Bytes(real.as_os_str().as_bytes().to_vec()));
                }
            } else if inner.options.home.as_ref().is_some_and(|home| home.owner != caller.owner) {
                let reason = "only the owner of the server's data directory may name directories";
                return Err(forbidden(&path, reason.to_owned()));
            }
            let path = host_path(&request.vfs.directory.clone().unwrap_or_default())?;
            if !writes {
                return Dir::open(&path).map(drop).map_err(|error| not_open(&path, &error));
            }
            let known = if path.exists() { &path } else { path.parent().unwrap_or(&path) };
            let is_writable = Dir::open(known).and_then(|dir| dir.is_writable());
            match is_writable.map_err(|error| not_open(known, &error))? {
                true => Ok(()),
                false => Err(forbidden(&path, "the directory cannot be written to".to_owned())),
            }
        }
    }
}

fn forbidden(path: &Path, cause: String) -> Problem {
    let message = format!("the directory {} must not be used", path.display());
    Problem::new(Code::VfsForbidden, message)
        .because(cause)
        .remedied_by("stockade workspace create NAME")
}

fn not_open(path: &Path, error: &stockade_bundle::beneath::Error) -> Problem {
    let code = match error.kind() {
        Some(io::ErrorKind::NotFound) => Code::FileNotFound,
        Some(io::ErrorKind::PermissionDenied) => Code::VfsForbidden,
        _ => Code::InvalidInput,
    };
    Problem { message: format!("cannot use {}", path.display()), ..caused(code, error) }
}

fn host_path(path: &Bytes) -> Result<PathBuf> {
    let path = PathBuf::from(OsStr::from_bytes(&path.0));
    let plain = path.is_absolute() && !path.as_os_str().as_bytes().contains(&0);
    if plain { Ok(path) } else { Err(invalid("`directory` must be an absolute path")) }
}

impl Outside {
    /// Opens the side. A missing directory is created where it is to be written.
    pub(super) fn open(
        inner: &Inner,
        owner: &OwnerId,
        request: &SyncFiles,
        writes: bool,
    ) -> Result<Self> {
        let home = inner.options.home.as_ref().ok_or_else(|| {
            Problem::new(Code::Unsupported, "this server has no data directory for synchronization")
        })?;
        if let Some(name) = &request.vfs.workspace {
            let data = DataDir::open(&home.path).map_err(|error| caused(Code::Io, &error))?;
            let all = Workspaces::open(&data, owner).map_err(|error| workspace_problem(&error))?;
            let branch = request.vfs.branch.clone().unwrap_or_else(|| MAIN.to_owned());
            let prefix = match &request.vfs.path {
                None => None,
                Some(path) => {
                    let path = RelativePath::new(path.0.clone());
                    Some(path.map_err(|error| invalid(format!("`path`: {error}")))?)
                }
            };
            let workspace =
                WorkspacePath { all, name: name.clone(), branch, prefix, author: owner.clone() };
            workspace.tree()?;
            return Ok(Self::Workspace(workspace));
        }
        let path = host_path(&request.vfs.directory.clone().unwrap_or_default())?;
        if writes && !path.exists() {
            std::fs::create_dir(&path).map_err(|error| problem(&error))?;
        }
        let dir = Dir::open(&path).map_err(|error| not_open(&path, &error))?;
        Ok(Self::Directory { dir, path })
    }

    /// Distinguishes this side in the records of what both sides have in common.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Directory { path, .. } => format!("directory:{}", path.display()),
            Self::Workspace(workspace) => {
                let prefix = workspace.prefix.as_ref().map(RelativePath::quoted);
                let prefix = prefix.unwrap_or_default();
                format!("workspace:{}:{}:{prefix}", workspace.name, workspace.branch)
            }
        }
    }

    /// A function that reads ignore files.
    pub(super) fn ignore_files(&self) -> io::Result<ReadIgnoreFile> {
        match self {
            Self::Directory { dir, .. } => {
                let dir = dir.reopen()?;
                Ok(Box::new(move |path| {
                    let Ok(file) = dir.open_file(path) else { return Ok(None) };
                    let mut text = Vec::new();
                    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
                    Ok(Some(text))
                }))
            }
            Self::Workspace(workspace) => {
                let (tree, blobs) =
                    (workspace.tree().map_err(io::Error::other_problem)?, workspace.blobs()?);
                let files = IgnoreFiles::default();
                for (path, node) in &tree {
                    if let Node::File { hash, size, .. } = node
                        && path.file_name() == b".gitignore"
                        && *size <= MAX_FILE_BYTES
                    {
                        let mut text = Vec::new();
                        blobs.open(*hash)?.read_to_end(&mut text)?;
                        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
                        files.insert(path.clone(), text);
                    }
                }
                Ok(read_collected(&files))
            }
        }
    }

    /// Everything that the filter keeps.
    pub(super) fn scan(&self, filter: &mut Filter, max_bytes: Option<u64>) -> io::Result<Scan> {
        match self {
            Self::Directory { dir, .. } => sync::scan(dir, filter, max_bytes),
            Self::Workspace(workspace) => {
                let mut scan = Scan::default();
                for (path, node) in workspace.tree().map_err(io::Error::other_problem)? {
                    if scan.is_skipped(&path) {
                        continue;
                    }
                    let is_directory = matches!(node, Node::Directory { .. });
                    match (filter.judge(&path, is_directory)?, &node) {
                        (Verdict::Outside, _) => {}
                        (Verdict::Skip(reason), _) => drop(scan.skipped.insert(path, reason)),
                        (Verdict::Keep, Node::File { size, .. })
                            if max_bytes.is_some_and(|limit| *size > limit) =>
                        {
                            scan.skipped.insert(path, sync::SkipReason::TooLarge);
                        }
                        (Verdict::Keep, _) => {
                            scan.tree.insert(path, Found { node, modified: None });
                        }
                    }
                }
                Ok(scan)
            }
        }
    }

    /// Whether a file has this content.
    pub(super) fn has_content(
        &self,
        path: &RelativePath,
        hash: ContentHash,
        size: u64,
    ) -> io::Result<bool> {
        match self {
            Self::Directory { dir, .. } => sync::has_content(dir, path, hash, size),
            Self::Workspace(workspace) => workspace.blobs()?.has(hash),
        }
    }

    /// Opens a file of the directory, to store its content; `None` if it is stored already.
    pub(super) fn open_file(&self, path: &RelativePath) -> io::Result<Option<File>> {
        match self {
            Self::Directory { dir, .. } => Ok(Some(dir.open_file(path)?)),
            Self::Workspace(_) => Ok(None),
        }
    }

    /// Opens a content that this side stores by its hash.
    pub(super) fn open_blob(&self, hash: ContentHash) -> io::Result<File> {
        match self {
            Self::Directory { .. } => Err(io::ErrorKind::NotFound.into()),
            Self::Workspace(workspace) => workspace.blobs()?.open(hash),
        }
    }

    /// Makes changes. Returns the paths that were not as planned.
    pub(super) fn place(
        &self,
        key: &str,
        actions: &[Action],
        open: &dyn Fn(ContentHash) -> io::Result<File>,
    ) -> Result<Vec<RelativePath>> {
        match self {
            Self::Directory { dir, .. } => {
                let place = Place::new(dir, key, actions, open).map_err(|error| problem(&error))?;
                let placed = place.run().map_err(|error| problem(&error))?;
                Ok(placed.changed_meanwhile)
            }
            Self::Workspace(workspace) => workspace.place(actions, open),
        }
    }

    /// Commits what was changed. Returns the id of the commit, if there is one.
    pub(super) fn commit(
        &self,
        key: &str,
        request: &SyncFiles,
        at_ms: u64,
        actions: &[Action],
        open: &dyn Fn(ContentHash) -> io::Result<File>,
    ) -> Result<Option<String>> {
        let message = request.message.as_deref().unwrap_or("Synchronize files from a sandbox");
        match self {
            Self::Workspace(workspace) => workspace.commit(message, at_ms),
            Self::Directory { path, .. } => {
                let commit = sync::Commit {
                    directory: path,
                    key,
                    message,
                    branch: request.vfs.branch.as_deref(),
                    time: i64::try_from(at_ms / 1000).unwrap_or(0),
                    identity: Identity { name: "Stockade", email: "stockade@localhost" },
                    actions,
                    open,
                };
                sync::commit(&commit).map_err(|error| {
                    let code = match &error {
                        sync::CommitError::NoRepository(_) | sync::CommitError::NoBranch(_) => {
                            Code::InvalidInput
                        }
                        sync::CommitError::Start(_) => Code::Unsupported,
                        sync::CommitError::Changed(_) => Code::Conflict,
                        _ => Code::Io,
                    };
                    let problem = caused(code, &error);
                    match error {
                        sync::CommitError::NoRepository(path) => {
                            problem.remedied_by(format!("git init {}", path.display()))
                        }
                        _ => problem,
                    }
                })
            }
        }
    }

    /// Whether a commit can be made, before anything is copied.
    pub(super) fn check_commit(&self, branch: Option<&str>) -> Result<()> {
        match self {
            Self::Workspace(_) => Ok(()),
            Self::Directory { path, .. } => sync::check_repository(path, branch).map_err(|error| {
                caused(Code::InvalidInput, &error)
                    .remedied_by(format!("git init {}", path.display()))
            }),
        }
    }
}

impl WorkspacePath {
    fn tree(&self) -> Result<Nodes> {
        let failed = |error| workspace_problem(&error);
        let workspace = self.all.workspace(&self.name).map_err(failed)?;
        let tree = match workspace.branch(&self.branch).map_err(failed)? {
            None => Nodes::new(),
            Some(_) => workspace.tree(Some(&self.branch)).map_err(failed)?,
        };
        let Some(prefix) = &self.prefix else { return Ok(tree) };
        let below = tree.into_iter().filter_map(|(path, node)| {
            let rest = path.as_bytes().strip_prefix(prefix.as_bytes())?.strip_prefix(b"/")?;
            Some((RelativePath::new(rest).ok()?, node))
        });
        Ok(below.collect())
    }

    fn blobs(&self) -> io::Result<Blobs> {
        self.all.blobs(&self.name).map_err(io::Error::other)
    }

    fn full(&self, path: &RelativePath) -> Result<RelativePath> {
        match &self.prefix {
            None => Ok(path.clone()),
            Some(prefix) => {
                prefix.join(path.as_bytes()).map_err(|error| invalid(error.to_string()))
            }
        }
    }

    fn place(
        &self,
        actions: &[Action],
        open: &dyn Fn(ContentHash) -> io::Result<File>,
    ) -> Result<Vec<RelativePath>> {
        let failed = |error| workspace_problem(&error);
        let workspace = self.all.workspace(&self.name).map_err(failed)?;
        let exists = workspace.branch(&self.branch).map_err(failed)?.is_some();
        let tree = match exists {
            true => workspace.tree(Some(&self.branch)).map_err(failed)?,
            false => Nodes::new(),
        };
        let (mut changes, mut changed) = (Vec::new(), Vec::new());
        // What is left of the tree after the changes so far.
        let mut left = tree.clone();
        for action in actions {
            let path = self.full(&action.path)?;
            let new = action.new.as_ref().map(|found| &found.node);
            let old = action.old.as_ref().map(|found| &found.node);
            let current = left.get(&path).cloned();
            let current = current.as_ref();
            if current == new {
                continue;
            }
            let is_directory = |node: Option<&Node>| matches!(node, Some(Node::Directory { .. }));
            let agrees = match (current, old) {
                (Some(current), Some(old)) => sync::same(current, old),
                (None, None) => true,
                (Some(_), None) => is_directory(current) && is_directory(new),
                (None, Some(_)) => false,
            };
            if !agrees {
                changed.push(action.path.clone());
                continue;
            }
            match new {
                // What is protected stays in it.
                None if has_below(&left, &path) => {}
                None => {
                    left.remove(&path);
                    changes.push(Change::Delete(path));
                }
                Some(node) => {
                    if let Node::File { hash, .. } = node
                        && !workspace.blobs().has(*hash).map_err(|error| problem(&error))?
                    {
                        let put = |mut file: File| workspace.blobs().put(&mut file);
                        open(*hash).and_then(put).map_err(|error| problem(&error))?;
                    }
                    left.insert(path.clone(), node.clone());
                    changes.push(Change::Put(path, node.clone()));
                }
            }
        }
        if !changes.is_empty() {
            workspace.stage(&self.branch, &changes, Some(&tree)).map_err(failed)?;
        }
        Ok(changed)
    }

    fn commit(&self, message: &str, at_ms: u64) -> Result<Option<String>> {
        let failed = |error| workspace_problem(&error);
        let workspace = self.all.workspace(&self.name).map_err(failed)?;
        let made = workspace.commit(&self.branch, message, &self.author, at_ms).map_err(failed)?;
        if let Some(made) = made {
            return Ok(Some(made.to_hex()));
        }
        // An earlier attempt may have made it.
        let history = workspace.history(Some(&self.branch)).map_err(failed)?;
        let own = history.first().filter(|(_, commit)| {
            commit.at_ms == at_ms
                && commit.message == message
                && commit.author == self.author.as_str()
        });
        Ok(own.map(|(id, _)| id.to_hex()))
    }
}

/// A problem as the error of a file operation.
trait OtherProblem {
    fn other_problem(problem: Problem) -> io::Error;
}

impl OtherProblem for io::Error {
    fn other_problem(problem: Problem) -> io::Error {
        Self::other(problem.message)
    }
}
