//! Workspaces: named trees of files of an owner, with a history. Writes are staged until they are
//! committed. Contents, trees and commits are files that are named by their hashes; a branch is one
//! file that is replaced atomically, under the lock of its workspace. So a reader sees a whole tree,
//! and of two writers one is refused.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::time::{Duration, SystemTime};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_core::{OwnerId, VolumeName};

use crate::beneath::{self, Dir, FileKind, Rename};
use crate::data::{self, DataDir};
use crate::manifest::{ContentHash, Node};
use crate::path::RelativePath;
use crate::sync::{Blobs, Nodes};

/// The branch of a request that names none.
pub const MAIN: &str = "main";
/// The prefix of a workspace that is not complete yet, or is being removed.
const PARTIAL: &str = ".partial-";
/// How many workspaces one owner may have.
const MAX_WORKSPACES: usize = 4096;
/// How many commits a history returns at most.
const MAX_COMMITS: usize = 10_000;

/// Why an operation on a workspace failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none of that name.
    #[error("there is no workspace {0}")]
    NotFound(String),
    /// There is one of that name.
    #[error("there is a workspace {0} already")]
    Exists(String),
    /// There is no such branch or commit.
    #[error("the workspace {workspace} has no branch or commit {name:?}")]
    NoCommit {
        /// The workspace.
        workspace: String,
        /// What was named.
        name: String,
    },
    /// A branch cannot have that name.
    #[error("{0:?} is not a name for a branch")]
    Name(String),
    /// Someone else has changed the tree meanwhile.
    #[error("the workspace {0} was changed meanwhile")]
    Changed(String),
    /// The owner has too many.
    #[error("there are {MAX_WORKSPACES} workspaces already")]
    TooMany,
    /// A path cannot be where another kind of file is.
    #[error("{0} is in the way")]
    InTheWay(RelativePath),
    /// A record is damaged.
    #[error("a record of the workspace {workspace} cannot be read")]
    Damaged {
        /// The workspace.
        workspace: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// A file system operation failed.
    #[error("cannot use a workspace")]
    Io(#[from] io::Error),
}

impl From<beneath::Error> for Error {
    fn from(error: beneath::Error) -> Self {
        Self::Io(error.into())
    }
}

type Result<T> = std::result::Result<T, Error>;

/// The workspaces of one owner.
#[derive(Debug)]
pub struct Workspaces(Dir);

/// One workspace, locked: nobody else changes it while this value exists.
#[derive(Debug)]
pub struct Workspace {
    name: String,
    dir: Dir,
    blobs: Blobs,
    _lock: File,
}

/// The state of a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Branch {
    /// The newest commit.
    pub head: Option<ContentHash>,
    /// The tree with the writes that are not committed; the tree of the head if absent.
    pub staged: Option<ContentHash>,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Commit {
    /// The tree.
    pub tree: ContentHash,
    /// The commit before.
    pub parent: Option<ContentHash>,
    /// The message.
    pub message: String,
    /// The owner who made it.
    pub author: String,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// One change of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A file, link or directory. Directories above it are created.
    Put(RelativePath, Node),
    /// A path with everything below it.
    Delete(RelativePath),
}

impl Workspaces {
    /// Opens the workspaces of an owner.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(data: &DataDir, owner: &OwnerId) -> Result<Self> {
        let all = data.workspaces()?;
        let hash = ContentHash::of(owner.as_str().as_bytes()).to_hex();
        let name = entry(&hash[..32])?;
        make(&all, &name)?;
        Ok(Self(all.open_dir(&name)?))
    }

    /// Creates a workspace with an empty branch.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::TooMany`], and those of the file system.
    pub fn create(&self, name: &VolumeName) -> Result<()> {
        let path = entry(name.as_str())?;
        if self.0.exists(&path)? {
            return Err(Error::Exists(name.to_string()));
        }
        if self.list()?.len() >= MAX_WORKSPACES {
            return Err(Error::TooMany);
        }
        let partial = entry(&format!("{PARTIAL}{}-{name}", std::process::id()))?;
        self.0.remove_tree(&partial)?;
        self.0.mkdir(&partial, 0o700)?;
        let dir = self.0.open_dir(&partial)?;
        for below in ["objects", "branches"] {
            dir.mkdir(&entry(below)?, 0o700)?;
        }
        write(&dir.open_dir(&entry("branches")?)?, MAIN, &Branch::default())?;
        match self.0.rename(&partial, &self.0, &path, Rename::NoReplace) {
            Err(error) if error.errno() == Some(Errno::EXIST) => {
                self.0.remove_tree(&partial)?;
                Err(Error::Exists(name.to_string()))
            }
            renamed => Ok(renamed.and_then(|()| self.0.sync())?),
        }
    }

    /// The names of all workspaces.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn list(&self) -> Result<Vec<VolumeName>> {
        let entries = self.0.entries()?.into_iter();
        let names = entries.filter(|(_, kind)| *kind == FileKind::Directory);
        let names = names.filter_map(|(name, _)| String::from_utf8(name).ok());
        let mut names: Vec<_> = names.filter_map(|name| VolumeName::new(name).ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Removes a workspace with its history.
    ///
    /// # Errors
    /// [`Error::NotFound`], and those of the file system.
    pub fn remove(&self, name: &VolumeName) -> Result<()> {
        drop(self.workspace(name)?);
        let removed = entry(&format!("{PARTIAL}{}-removed-{name}", std::process::id()))?;
        self.0.remove_tree(&removed)?;
        self.0.rename(&entry(name.as_str())?, &self.0, &removed, Rename::NoReplace)?;
        Ok(self.0.remove_tree(&removed)?)
    }

    /// The contents of a workspace, without its lock: what is there never changes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn blobs(&self, name: &VolumeName) -> Result<Blobs> {
        let dir = self.0.open_dir(&entry(name.as_str())?)?;
        Ok(Blobs::new(dir.open_dir(&entry("objects")?)?))
    }

    /// Opens a workspace, and waits until nobody else uses it.
    ///
    /// # Errors
    /// [`Error::NotFound`], and those of the file system.
    pub fn workspace(&self, name: &VolumeName) -> Result<Workspace> {
        let dir = match self.0.open_dir(&entry(name.as_str())?) {
            Err(error) if error.errno() == Some(Errno::NOENT) => {
                return Err(Error::NotFound(name.to_string()));
            }
            dir => dir?,
        };
        let path = entry("lock")?;
        let lock = match dir.create_file(&path, 0o600) {
            Err(error) if error.errno() == Some(Errno::EXIST) => dir.open_file_to_write(&path)?,
            lock => lock?,
        };
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from)?;
        let blobs = Blobs::new(dir.open_dir(&entry("objects")?)?);
        Ok(Workspace { name: name.to_string(), dir, blobs, _lock: lock })
    }
}

impl Workspace {
    /// The contents.
    pub const fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// The state of a branch; `None` if there is none of that name.
    ///
    /// # Errors
    /// Those of the file system and of a damaged record.
    pub fn branch(&self, name: &str) -> Result<Option<Branch>> {
        let file = match self.branches()?.open_file(&branch_name(name)?) {
            Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(None),
            file => file?,
        };
        self.read(file).map(Some)
    }

    /// The names of all branches.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn branch_names(&self) -> Result<Vec<String>> {
        let entries = self.branches()?.entries()?.into_iter();
        let names = entries.filter_map(|(name, _)| String::from_utf8(name).ok());
        let mut names: Vec<_> = names.filter(|name| branch_name(name).is_ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The staged tree of a branch, or the tree of a commit; of the main branch if none is named.
    ///
    /// # Errors
    /// [`Error::NoCommit`], and those of the file system.
    pub fn tree(&self, name: Option<&str>) -> Result<Nodes> {
        let name = name.unwrap_or(MAIN);
        let branch = match branch_name(name) {
            Ok(_) => self.branch(name)?,
            Err(_) => None,
        };
        let tree = match branch {
            Some(Branch { staged: Some(staged), .. }) => Some(staged),
            Some(Branch { head: Some(head), .. }) => Some(self.commit_of(head)?.tree),
            Some(Branch { head: None, staged: None }) => None,
            None => {
                let missing =
                    || Error::NoCommit { workspace: self.name.clone(), name: name.to_owned() };
                let commit = ContentHash::from_hex(name).ok_or_else(missing)?;
                if !self.blobs.has(commit)? {
                    return Err(missing());
                }
                Some(self.commit_of(commit).map_err(|_| missing())?.tree)
            }
        };
        match tree {
            None => Ok(Nodes::new()),
            Some(tree) => {
                let listed: Vec<(RelativePath, Node)> = self.read(self.blobs.open(tree)?)?;
                Ok(listed.into_iter().collect())
            }
        }
    }

    /// Stages changes, all or none, if the tree is still the expected one. Contents must have been
    /// stored. A new branch starts from nothing.
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::InTheWay`], and those of the file system.
    pub fn stage(
        &self,
        branch: &str,
        changes: &[Change],
        expected: Option<&Nodes>,
    ) -> Result<Nodes> {
        let mut state = self.branch(branch)?.unwrap_or_default();
        let mut tree =
            if state == Branch::default() { Nodes::new() } else { self.tree(Some(branch))? };
        if expected.is_some_and(|expected| *expected != tree) {
            return Err(Error::Changed(self.name.clone()));
        }
        for change in changes {
            match change {
                Change::Delete(path) => {
                    if has_below(&tree, path) {
                        tree.retain(|known, _| !known.is_within(path));
                    }
                    tree.remove(path);
                }
                Change::Put(path, node) => {
                    for above in std::iter::successors(path.parent(), RelativePath::parent) {
                        let made =
                            tree.entry(above.clone()).or_insert(Node::Directory { mode: 0o755 });
                        if !matches!(made, Node::Directory { .. }) {
                            return Err(Error::InTheWay(above));
                        }
                    }
                    let is_directory = matches!(node, Node::Directory { .. });
                    if !is_directory && has_below(&tree, path) {
                        return Err(Error::InTheWay(path.clone()));
                    }
                    tree.insert(path.clone(), node.clone());
                }
            }
        }
        state.staged = Some(self.write_tree(&tree)?);
        self.blobs.sync()?;
        write(&self.branches()?, branch, &state)?;
        Ok(tree)
    }

    /// Commits what is staged. Returns the id; `None` if nothing has changed.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn commit(
        &self,
        branch: &str,
        message: &str,
        author: &OwnerId,
        at_ms: u64,
    ) -> Result<Option<ContentHash>> {
        let mut state = self.branch(branch)?.unwrap_or_default();
        let Some(tree) = state.staged else { return Ok(None) };
        let before = match state.head {
            Some(head) => Some(self.commit_of(head)?.tree),
            None => None,
        };
        let is_empty = before.is_none() && self.tree(Some(branch))?.is_empty();
        state.staged = None;
        if before == Some(tree) || is_empty {
            write(&self.branches()?, branch, &state)?;
            return Ok(None);
        }
        let commit = Commit {
            tree,
            parent: state.head,
            message: message.to_owned(),
            author: author.as_str().to_owned(),
            at_ms,
        };
        let text = serde_json::to_vec(&commit).map_err(io::Error::other)?;
        let (id, _) = self.blobs.put(&mut text.as_slice())?;
        self.blobs.sync()?;
        state.head = Some(id);
        write(&self.branches()?, branch, &state)?;
        Ok(Some(id))
    }

    /// Drops what is staged.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn discard(&self, branch: &str) -> Result<()> {
        let state = self.branch(branch)?.unwrap_or_default();
        write(&self.branches()?, branch, &Branch { staged: None, ..state })
    }

    /// The commits of a branch, or up to a commit, the newest first.
    ///
    /// # Errors
    /// [`Error::NoCommit`], and those of the file system.
    pub fn history(&self, name: Option<&str>) -> Result<Vec<(ContentHash, Commit)>> {
        let name = name.unwrap_or(MAIN);
        let missing = || Error::NoCommit { workspace: self.name.clone(), name: name.to_owned() };
        let branch = if branch_name(name).is_ok() { self.branch(name)? } else { None };
        let mut next = match branch {
            Some(branch) => branch.head,
            None => Some(ContentHash::from_hex(name).ok_or_else(missing)?),
        };
        let mut commits = Vec::new();
        while let Some(id) = next
            && commits.len() < MAX_COMMITS
        {
            let commit = self.commit_of(id).map_err(|_| missing())?;
            next = commit.parent;
            commits.push((id, commit));
        }
        Ok(commits)
    }

    /// Removes contents, trees and commits that no branch leads to any more, if they are older than
    /// `before`: those of writes that were discarded, or replaced before they were committed. Younger
    /// ones may be read by a synchronization that has begun. Returns how many were removed, and
    /// their bytes.
    ///
    /// # Errors
    /// Those of the file system and of a damaged record; nothing is removed then.
    pub fn collect(&self, before: SystemTime) -> Result<(u64, u64)> {
        let (mut kept, mut trees) = (BTreeSet::new(), BTreeSet::new());
        for name in self.branch_names()? {
            let Branch { head, staged } = self.branch(&name)?.unwrap_or_default();
            trees.extend(staged);
            let mut next = head;
            while let Some(id) = next.filter(|id| kept.insert(*id)) {
                let commit = self.commit_of(id)?;
                trees.insert(commit.tree);
                next = commit.parent;
            }
        }
        for tree in trees {
            let nodes: Vec<(RelativePath, Node)> = self.read(self.blobs.open(tree)?)?;
            kept.insert(tree);
            kept.extend(nodes.iter().filter_map(|(_, node)| match node {
                Node::File { hash, .. } => Some(*hash),
                Node::Directory { .. } | Node::Symlink { .. } => None,
            }));
        }
        Ok(self.blobs.retain(&kept, before)?)
    }

    /// Collects what is older than a period, unless that was done within it: each branch is read as a
    /// whole. A new workspace begins a period.
    ///
    /// # Errors
    /// As [`Workspace::collect`].
    pub fn collect_if_due(&self, now: SystemTime, period: Duration) -> Result<bool> {
        let mark = entry("collected")?;
        let last = match self.dir.open_file(&mark) {
            Err(error) if error.errno() == Some(Errno::NOENT) => None,
            file => Some(file?.metadata()?.modified()?),
        };
        let before = now.checked_sub(period).unwrap_or(SystemTime::UNIX_EPOCH);
        if last.is_some_and(|last| last > before) {
            return Ok(false);
        }
        if last.is_some() {
            self.collect(before)?;
            self.dir.remove_file(&mark)?;
        }
        self.dir.create_file(&mark, 0o600)?;
        Ok(last.is_some())
    }

    fn commit_of(&self, id: ContentHash) -> Result<Commit> {
        self.read(self.blobs.open(id)?)
    }

    fn write_tree(&self, tree: &Nodes) -> Result<ContentHash> {
        let listed: Vec<_> = tree.iter().collect();
        let text = serde_json::to_vec(&listed).map_err(io::Error::other)?;
        Ok(self.blobs.put(&mut text.as_slice())?.0)
    }

    fn branches(&self) -> Result<Dir> {
        Ok(self.dir.open_dir(&entry("branches")?)?)
    }

    fn read<T: serde::de::DeserializeOwned>(&self, mut file: File) -> Result<T> {
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        serde_json::from_slice(&text)
            .map_err(|source| Error::Damaged { workspace: self.name.clone(), source })
    }
}

/// Whether there is something below a path.
pub fn has_below(tree: &Nodes, path: &RelativePath) -> bool {
    // No name starts with a smaller byte.
    let Ok(first) = path.join(b"\x01") else { return false };
    tree.range(first..).next().is_some_and(|(known, _)| known.is_within(path))
}

/// Replaces the record of a branch.
fn write(branches: &Dir, name: &str, branch: &Branch) -> Result<()> {
    let (path, new) = (branch_name(name)?, entry(".new")?);
    branches.remove_tree(&new)?;
    let mut file = branches.create_file(&new, 0o600)?;
    let text = serde_json::to_vec(branch).map_err(io::Error::other)?;
    file.write_all(&text).and_then(|()| file.sync_all())?;
    branches.rename(&new, branches, &path, Rename::Replace)?;
    Ok(branches.sync()?)
}

/// The file of a branch.
fn branch_name(name: &str) -> Result<RelativePath> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_good = !name.starts_with('.') && name.len() <= 63 && name.chars().all(is_good);
    match is_good && !name.is_empty() {
        true => entry(name),
        false => Err(Error::Name(name.to_owned())),
    }
}

fn entry(name: &str) -> Result<RelativePath> {
    RelativePath::new(name).map_err(|error| Error::Io(io::Error::other(error)))
}

fn make(dir: &Dir, name: &RelativePath) -> Result<()> {
    match dir.mkdir(name, 0o700) {
        Err(error) if error.errno() != Some(Errno::EXIST) => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    #[test]
    fn writes_are_staged_until_they_are_committed() {
        let scratch = tempfile::tempdir().unwrap();
        let data = DataDir::open(&scratch.path().join("data")).unwrap();
        let owner = OwnerId::new("o").unwrap();
        let all = Workspaces::open(&data, &owner).unwrap();
        let name = VolumeName::new("notes").unwrap();
        all.create(&name).unwrap();
        assert!(matches!(all.create(&name), Err(Error::Exists(_))));
        let workspace = all.workspace(&name).unwrap();
        let (hash, size) = workspace.blobs().put(&mut &b"text"[..]).unwrap();
        let node = Node::File { hash, size, mode: 0o644 };
        let put = |name: &str| Change::Put(path(name), node.clone());
        let tree = workspace.stage(MAIN, &[put("a/b"), put("c")], None).unwrap();
        assert_eq!(tree.len(), 3);
        assert!(workspace.history(None).unwrap().is_empty());
        let first = workspace.commit(MAIN, "first", &owner, 1).unwrap().unwrap();
        assert_eq!(workspace.commit(MAIN, "again", &owner, 2).unwrap(), None);
        workspace.stage(MAIN, &[put("c")], Some(&tree)).unwrap();
        assert_eq!(workspace.commit(MAIN, "same", &owner, 3).unwrap(), None);
        assert!(matches!(workspace.stage(MAIN, &[], Some(&Nodes::new())), Err(Error::Changed(_))));
        assert!(matches!(workspace.stage(MAIN, &[put("c/d")], None), Err(Error::InTheWay(_))));
        workspace.stage(MAIN, &[Change::Delete(path("a"))], None).unwrap();
        assert_eq!(workspace.tree(None).unwrap().len(), 1);
        assert_eq!(workspace.tree(Some(&first.to_hex())).unwrap().len(), 3);
        workspace.discard(MAIN).unwrap();
        assert_eq!(workspace.tree(None).unwrap().len(), 3);
        let history = workspace.history(None).unwrap();
        assert_eq!((history.len(), history[0].0), (1, first));
        for bad in ["", ".hidden", "a/b", "../x"] {
            assert!(matches!(workspace.stage(bad, &[], None), Err(Error::Name(_))), "{bad}");
        }
        drop(workspace);
        let other = Workspaces::open(&data, &OwnerId::new("p").unwrap()).unwrap();
        assert!(matches!(other.workspace(&name), Err(Error::NotFound(_))));
        all.remove(&name).unwrap();
        assert!(all.list().unwrap().is_empty());
    }

    #[test]
    fn what_no_branch_leads_to_is_collected() {
        let scratch = tempfile::tempdir().unwrap();
        let data = DataDir::open(&scratch.path().join("data")).unwrap();
        let owner = OwnerId::new("o").unwrap();
        let all = Workspaces::open(&data, &owner).unwrap();
        let name = VolumeName::new("notes").unwrap();
        all.create(&name).unwrap();
        let workspace = all.workspace(&name).unwrap();
        let stage = |name: &str, text: &str| {
            let (hash, size) = workspace.blobs().put(&mut text.as_bytes()).unwrap();
            let node = Node::File { hash, size, mode: 0o644 };
            workspace.stage(MAIN, &[Change::Put(path(name), node)], None).unwrap();
            hash
        };
        let first = stage("a", "first");
        workspace.commit(MAIN, "one", &owner, 1).unwrap();
        let second = stage("a", "second");
        let committed = workspace.commit(MAIN, "two", &owner, 2).unwrap().unwrap();
        let (discarded, replaced) = (stage("b", "discarded"), stage("c", "replaced"));
        workspace.discard(MAIN).unwrap();
        let staged = stage("d", "staged");
        let has = |hash| workspace.blobs().has(hash).unwrap();

        // What is young may be in use.
        let hour = Duration::from_secs(3600);
        assert_eq!(workspace.collect(SystemTime::now() - hour).unwrap(), (0, 0));
        assert!(has(discarded) && has(replaced));
        let (count, bytes) = workspace.collect(SystemTime::now() + hour).unwrap();
        // Two contents, and the trees that had them.
        assert!(count >= 4 && bytes > 17, "{count} {bytes}");
        assert!(!has(discarded) && !has(replaced));
        assert!([first, second, committed, staged].into_iter().all(has));
        assert_eq!(workspace.history(None).unwrap().len(), 2);
        let tree = workspace.tree(None).unwrap();
        assert!(tree.contains_key(&path("a")) && tree.contains_key(&path("d")));
        assert_eq!(workspace.collect(SystemTime::now() + hour).unwrap(), (0, 0));

        // It is done once in a period.
        let other = stage("e", "other");
        workspace.discard(MAIN).unwrap();
        let now = SystemTime::now();
        assert!(!workspace.collect_if_due(now, hour).unwrap(), "the first period begins");
        assert!(!workspace.collect_if_due(now, hour).unwrap());
        assert!(workspace.collect_if_due(now + 3 * hour, hour).unwrap());
        assert!(!has(other));
    }
}
