//! The files of a fake sandbox: a map from paths to nodes, with the errors of the kernel.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use stockade_core::sandbox::User;

use crate::files::{FileInfo, FileKind, WriteOptions};

/// The default owner of files.
pub(super) const USER: User = User { user: 1000, group: 1000 };

/// How many links a path may lead through, as in the kernel.
const LINKS: usize = 40;

/// The maximal length of a name in a path, as in the kernel (`NAME_MAX`).
const NAME_BYTES: usize = 255;

/// All files of a sandbox, by their absolute paths. A snapshot is a copy of it.
#[derive(Debug, Clone)]
pub(super) struct Tree(BTreeMap<PathBuf, Node>);

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) owner: User,
    modified_ms: i64,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    File(Arc<Vec<u8>>),
    Directory,
    Link(PathBuf),
}

impl Node {
    pub(super) fn new(kind: Kind, mode: u32, owner: User) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        Self { kind, mode, owner, modified_ms }
    }

    fn size_bytes(&self) -> u64 {
        let length = match &self.kind {
            Kind::File(content) => content.len(),
            Kind::Directory => 0,
            Kind::Link(target) => target.as_os_str().len(),
        };
        u64::try_from(length).unwrap_or(u64::MAX)
    }

    fn info(&self, name: &OsStr) -> FileInfo {
        FileInfo {
            name: name.as_bytes().to_vec(),
            kind: match self.kind {
                Kind::File(_) => FileKind::File,
                Kind::Directory => FileKind::Directory,
                Kind::Link(_) => FileKind::Link,
            },
            size_bytes: self.size_bytes(),
            mode: self.mode,
            owner: self.owner,
            modified_ms: self.modified_ms,
            link: match &self.kind {
                Kind::Link(target) => Some(target.as_os_str().as_bytes().to_vec()),
                _ => None,
            },
        }
    }
}

impl Default for Tree {
    fn default() -> Self {
        let directory =
            |path: &str, mode| (PathBuf::from(path), Node::new(Kind::Directory, mode, USER));
        Self(
            [
                directory("/", 0o755),
                directory("/home", 0o755),
                directory("/home/user", 0o700),
                directory("/tmp", 0o1777),
            ]
            .into(),
        )
    }
}

impl Tree {
    /// The target of a path. Links are followed, the last one only if `follow` is set.
    fn resolve(&self, path: &Path, follow: bool) -> io::Result<PathBuf> {
        let mut at = PathBuf::from("/");
        let mut ahead = names(path);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            match self.0.get(&at).map(|node| &node.kind) {
                Some(Kind::Directory) => {}
                Some(_) => return Err(Errno::NOTDIR.into()),
                None => return Err(Errno::NOENT.into()),
            }
            if name.len() > NAME_BYTES {
                return Err(Errno::NAMETOOLONG.into());
            }
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(name);
            let Some(Node { kind: Kind::Link(target), .. }) = self.0.get(&at) else { continue };
            if ahead.is_empty() && !follow {
                break;
            }
            links += 1;
            if links > LINKS {
                return Err(Errno::LOOP.into());
            }
            at = if target.is_absolute() { "/".into() } else { parent(&at).to_owned() };
            ahead.extend(names(target));
        }
        Ok(at)
    }

    fn node(&self, path: &Path) -> io::Result<&Node> {
        self.0.get(path).ok_or_else(|| Errno::NOENT.into())
    }

    pub(super) fn info(&self, path: &Path) -> io::Result<FileInfo> {
        let path = self.resolve(path, false)?;
        let name = path.file_name().unwrap_or_else(|| OsStr::new("/"));
        Ok(self.node(&path)?.info(name))
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<FileInfo>> {
        let path = self.resolve(path, true)?;
        let Kind::Directory = self.node(&path)?.kind else { return Err(Errno::NOTDIR.into()) };
        Ok(self
            .below(&path)
            .filter(|(child, _)| parent(child) == path)
            .filter_map(|(child, node)| child.file_name().map(|name| node.info(name)))
            .collect())
    }

    pub(super) fn read(&self, path: &Path) -> io::Result<(Arc<Vec<u8>>, u32)> {
        let node = self.node(&self.resolve(path, true)?)?;
        match &node.kind {
            Kind::File(content) => Ok((Arc::clone(content), node.mode)),
            _ => Err(Errno::ISDIR.into()),
        }
    }

    pub(super) fn write(
        &mut self,
        path: &Path,
        content: Vec<u8>,
        options: WriteOptions,
    ) -> io::Result<()> {
        self.make_parents(path, options)?;
        let path = self.resolve(path, true)?;
        let kind = Kind::File(Arc::new(content));
        let new = match self.0.get(&path) {
            Some(Node { kind: Kind::Directory, .. }) => return Err(Errno::ISDIR.into()),
            Some(old) => Node::new(kind, old.mode, options.owner.unwrap_or(old.owner)),
            None => Node::new(kind, options.mode, options.owner.unwrap_or(USER)),
        };
        self.0.insert(path, new);
        Ok(())
    }

    pub(super) fn make_directory(&mut self, path: &Path, options: WriteOptions) -> io::Result<()> {
        self.make_parents(path, options)?;
        let path = self.resolve(path, true)?;
        match self.0.get(&path) {
            Some(Node { kind: Kind::Directory, .. }) => Ok(()),
            Some(_) => Err(Errno::EXIST.into()),
            None => {
                let owner = options.owner.unwrap_or(USER);
                self.0.insert(path, Node::new(Kind::Directory, options.mode, owner));
                Ok(())
            }
        }
    }

    /// Creates missing parent directories of a path, if that is requested.
    fn make_parents(&mut self, path: &Path, options: WriteOptions) -> io::Result<()> {
        if !options.make_parents || path.parent().is_none() {
            return Ok(());
        }
        let above = parent(path).to_owned();
        match self.resolve(&above, true).and_then(|path| self.node(&path).map(|_| ())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_directory(&above, WriteOptions { mode: 0o755, ..options })
            }
            found => found,
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.resolve(from, false)?, self.resolve(to, false)?);
        let is_directory = matches!(self.node(&from)?.kind, Kind::Directory);
        if to.starts_with(&from) && to != from {
            return Err(Errno::INVAL.into());
        }
        match self.0.get(&to).map(|node| &node.kind) {
            Some(Kind::Directory) if !is_directory => return Err(Errno::ISDIR.into()),
            Some(Kind::Directory) if self.below(&to).next().is_some() && to != from => {
                return Err(Errno::NOTEMPTY.into());
            }
            Some(Kind::File(_) | Kind::Link(_)) if is_directory => {
                return Err(Errno::NOTDIR.into());
            }
            _ => {}
        }
        for (path, node) in self.take(&from) {
            let rest = path.strip_prefix(&from).ok().filter(|rest| *rest != Path::new(""));
            let path = rest.map_or_else(|| to.clone(), |rest| to.join(rest));
            self.0.insert(path, node);
        }
        Ok(())
    }

    pub(super) fn set_attributes(
        &mut self,
        path: &Path,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> io::Result<()> {
        let path = self.resolve(path, true)?;
        let node = self.0.get_mut(&path).ok_or(Errno::NOENT)?;
        node.mode = mode.map_or(node.mode, |mode| mode & 0o1777);
        node.owner = owner.unwrap_or(node.owner);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let path = self.resolve(path, false)?;
        self.node(&path)?;
        if path == Path::new("/") {
            return Err(Errno::BUSY.into());
        }
        self.take(&path);
        Ok(())
    }

    fn take(&mut self, path: &Path) -> Vec<(PathBuf, Node)> {
        self.0.extract_if(.., |below, _| below.starts_with(path)).collect()
    }

    /// The nodes below a path, at any depth, parents first.
    pub(super) fn below<'a>(
        &'a self,
        path: &'a Path,
    ) -> impl Iterator<Item = (&'a Path, &'a Node)> {
        let all = self.0.iter().map(|(path, node)| (path.as_path(), node));
        all.filter(move |(below, _)| *below != path && below.starts_with(path))
    }

    /// The resolved path of a directory.
    pub(super) fn directory(&self, path: &Path) -> io::Result<PathBuf> {
        let path = self.resolve(path, true)?;
        match self.node(&path)?.kind {
            Kind::Directory => Ok(path),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// The node at a path without links.
    pub(super) fn get(&self, path: &Path) -> Option<&Node> {
        self.0.get(path)
    }

    /// Stores a node at a path whose parent directory exists.
    pub(super) fn put(&mut self, path: PathBuf, node: Node) {
        self.0.insert(path, node);
    }

    /// The size of all files together.
    pub(super) fn size_bytes(&self) -> u64 {
        self.0.values().map(Node::size_bytes).fold(0, u64::saturating_add)
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("/"))
}

/// The names in a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    });
    let mut names: Vec<_> = named.collect();
    names.reverse();
    names
}
