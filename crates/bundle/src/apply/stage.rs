//! Writing all new content to the private directory, complete with mode and owner, so that the
//! swap consists only of renames; and the list of those renames.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;

use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;

use super::Step;
use super::attributes;
use super::error::{BlobFault, Error};
use super::journal::{Action, StagedNode, io_error, name};
use super::times::ModificationTimes;
use super::verify::VerifiedChange;
use crate::beneath::{Dir, FileKind, Stat, Timestamp};
use crate::manifest::{ContentHash, Node};
use crate::path::RelativePath;

/// Up to this many files are synced one by one; for more, the whole file system is synced.
pub(super) const SYNC_EACH: usize = 64;

/// The bits that a directory's owner needs to change its content and to rename it.
const OWNER_WRITE_SEARCH: u32 = 0o300;

/// The source of new content.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blobs<'b> {
    pub(super) dir: &'b Dir,
    /// Whether the bundle is removed after this operation, so that its files may be moved.
    pub(super) may_link: bool,
}

/// Stages the new content of all changes, waits until it is on disk, and returns the steps of
/// the swap in order.
pub(super) fn stage(
    project: &Dir,
    stage: &Dir,
    (blobs, times): (Blobs<'_>, &BTreeMap<RelativePath, Timestamp>),
    changes: &[VerifiedChange<'_>],
    observe: &mut dyn FnMut(Step),
) -> Result<Vec<Action>, Error> {
    let mut staging = Staging {
        project,
        stage,
        blobs,
        is_root: rustix::process::geteuid().is_root(),
        sync_each: changes.len() <= SYNC_EACH,
        directories: HashMap::new(),
        shared: HashMap::new(),
        root: project.stat_self()?.into(),
        buffer: vec![0; 256 << 10],
    };
    let mut loosened = Vec::new();
    let mut removals = Vec::new();
    let mut replacements = Vec::new();
    let mut modes = Vec::new();
    let mut modified = ModificationTimes::new(times);
    for (number, change) in changes.iter().enumerate() {
        let path = change.entry.path.clone();
        let slot = name(&number.to_string())?;
        let mut host_mode = 0;
        if let Some(host) = change.host
            && host.kind == FileKind::Directory
        {
            host_mode = host.mode;
            if host.mode & OWNER_WRITE_SEARCH != OWNER_WRITE_SEARCH {
                host_mode |= 0o700;
                loosened.push(Action::Mode {
                    path: path.clone(),
                    inode: host.inode,
                    from: host.mode,
                    to: host_mode,
                });
            }
        }
        match (change.host, change.entry.change.new_node()) {
            (_, None) => removals.push(Action::Remove { path, slot }),
            (Some(host), Some(Node::Directory { mode })) if host.kind == FileKind::Directory => {
                let to = host.mode & 0o7000 | mode;
                if host_mode != to {
                    modes.push(Action::Mode { path, inode: host.inode, from: host_mode, to });
                }
            }
            (host, Some(node)) => {
                let made = staging.create(change, &slot, node)?;
                if let Node::File { hash, .. } = node {
                    let is_unchanged = staging.is_unchanged(change, *hash);
                    modified.add(&path, &slot, change.host.filter(|_| is_unchanged));
                }
                if let (Node::Directory { mode }, Node::Directory { mode: from }) =
                    (node, &made.node)
                {
                    let to = from & 0o7000 | mode;
                    if to != *from {
                        let (path, inode, from) = (path.clone(), made.inode, *from);
                        modes.push(Action::Mode { path, inode, from, to });
                    }
                }
                match host {
                    None => replacements.push(Action::Add { path, slot, made }),
                    Some(host) if host.kind == FileKind::Directory => {
                        // After everything in it is removed, before anything replaces it.
                        removals.push(Action::Exchange { path, slot, made });
                    }
                    Some(_) => replacements.push(Action::Exchange { path, slot, made }),
                }
            }
        }
        observe(Step::Staged(number + 1));
    }
    modified.set(stage)?;
    staging.sync()?;
    // Paths are sorted, so in reverse order children come before their parents.
    removals.reverse();
    modes.reverse();
    Ok([loosened, removals, replacements, modes].into_iter().flatten().collect())
}

struct Staging<'s> {
    project: &'s Dir,
    stage: &'s Dir,
    blobs: Blobs<'s>,
    is_root: bool,
    sync_each: bool,
    /// The staged directories, by their later path.
    directories: HashMap<RelativePath, Owner>,
    /// The slots of files that replace one with several names, by that file and the new content and mode.
    shared: HashMap<(u64, u64, ContentHash, u32), RelativePath>,
    root: Owner,
    buffer: Vec<u8>,
}

/// The owner that a new entry inherits from its directory, or a replacement from what it replaces.
#[derive(Debug, Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl From<Stat> for Owner {
    fn from(stat: Stat) -> Self {
        Self { uid: stat.uid, gid: stat.gid, mode: stat.mode }
    }
}

impl Staging<'_> {
    /// Creates a node in a slot with its final state.
    fn create(
        &mut self,
        change: &VerifiedChange<'_>,
        slot: &RelativePath,
        node: &Node,
    ) -> Result<StagedNode, Error> {
        let path = &change.entry.path;
        if let Some(node) = self.share(change, slot, node) {
            return Ok(StagedNode { inode: self.stat(slot)?.inode, node });
        }
        let parent = self.parent_owner(path)?;
        let owner = change.host.map_or(parent, Owner::from);
        let node = match node {
            Node::File { hash, size, mode } => {
                let file = match self.link_blob(change, slot, node)? {
                    Some(file) => file,
                    None => {
                        let file = self.stage.create_file(slot, 0o600)?;
                        self.copy_content(&file, change, *hash, *size)?;
                        file
                    }
                };
                let current = Stat::of(&file).map_err(|e| io_error("inspect", path)(e.into()))?;
                self.set_owner(current, owner, path, |uid, gid| {
                    rustix::fs::fchown(file.as_fd(), uid, gid)
                })?;
                if change.host.is_some_and(|host| host.kind == FileKind::File) {
                    // After the owner, because changing it would drop some attributes; before
                    // the mode, which is a part of an access control list.
                    let old = self.project.open_file(path)?;
                    attributes::copy_attributes(&old, &file, self.is_unchanged(change, *hash));
                }
                rustix::fs::fchmod(file.as_fd(), Mode::from_bits_truncate(*mode & 0o777))
                    .map_err(|e| io_error("change the mode of", path)(e.into()))?;
                if self.sync_each {
                    file.sync_all().map_err(io_error("sync", path))?;
                }
                Node::File { hash: *hash, size: *size, mode: mode & 0o777 }
            }
            Node::Symlink { target } => {
                self.stage.symlink(target, slot)?;
                self.chown_slot(slot, owner, path)?;
                Node::Symlink { target: target.clone() }
            }
            Node::Directory { mode } => {
                self.stage.mkdir(slot, 0o700)?;
                self.chown_slot(slot, owner, path)?;
                // A directory inherits the set-group-id bit, as one created in the project would.
                let mode = mode & 0o777 | 0o700 | parent.mode & 0o2000;
                self.stage.chmod(slot, mode)?;
                self.directories.insert(path.clone(), Owner { mode, ..owner });
                Node::Directory { mode }
            }
        };
        Ok(StagedNode { inode: self.stat(slot)?.inode, node })
    }

    /// Gives a file that is staged already another name, if it replaces the same file of the project
    /// with the same content: two names of one file stay that.
    fn share(
        &mut self,
        change: &VerifiedChange<'_>,
        slot: &RelativePath,
        node: &Node,
    ) -> Option<Node> {
        let Node::File { hash, size, mode } = node else { return None };
        let host = change.host.filter(|host| host.kind == FileKind::File && host.links > 1)?;
        let mode = mode & 0o777;
        let key = (host.device, host.inode, *hash, mode);
        let Some(first) = self.shared.get(&key) else {
            self.shared.insert(key, slot.clone());
            return None;
        };
        let flags = rustix::fs::AtFlags::empty();
        let (from, to) = (first.as_os_str(), slot.as_os_str());
        // Fails where a file cannot have several names, and is then a file of its own.
        let linked = rustix::fs::linkat(self.stage, from, self.stage, to, flags);
        linked.is_ok().then_some(Node::File { hash: *hash, size: *size, mode })
    }

    /// Hard-links the bundle's own file into a slot where possible. This avoids writing the
    /// content again, and freeing it when the bundle is removed. Until then the file has two
    /// names, so this is only done for a bundle that will be removed. `None` if the content
    /// must be copied.
    fn link_blob(
        &mut self,
        change: &VerifiedChange<'_>,
        slot: &RelativePath,
        node: &Node,
    ) -> Result<Option<File>, Error> {
        let Node::File { hash, size, mode } = node else { return Ok(None) };
        // If the operation is undone, the bundle's file must still be readable.
        if !self.blobs.may_link || self.is_unchanged(change, *hash) || mode & 0o400 == 0 {
            return Ok(None);
        }
        let path = &change.entry.path;
        let blob = name(&hash.to_hex())?;
        let file = self.open_blob(path, *hash)?;
        let stat = Stat::of(&file).map_err(|e| io_error("inspect", path)(e.into()))?;
        // The file has more names than the bundle's: another slot already uses it.
        if stat.links != 1 || !attributes::clear(&file) {
            return Ok(None);
        }
        self.read(&file, path, *hash, *size, |_| Ok(()))?;
        let flags = rustix::fs::AtFlags::empty();
        let (from, to) = (blob.as_os_str(), slot.as_os_str());
        // Fails on another file system, or one without hard links.
        let linked = rustix::fs::linkat(self.blobs.dir, from, self.stage, to, flags);
        Ok(linked.is_ok().then_some(file))
    }

    /// Whether the content stays the same and only other properties change.
    fn is_unchanged(&self, change: &VerifiedChange<'_>, hash: ContentHash) -> bool {
        matches!(change.entry.change.old(), Some(Node::File { hash: old, .. }) if *old == hash)
    }

    fn open_blob(&self, path: &RelativePath, hash: ContentHash) -> Result<File, Error> {
        match self.blobs.dir.open_file(&name(&hash.to_hex())?) {
            Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => {
                Err(Error::Blob { path: path.clone(), fault: BlobFault::Missing })
            }
            other => Ok(other?),
        }
    }

    fn copy_content(
        &mut self,
        mut to: &File,
        change: &VerifiedChange<'_>,
        hash: ContentHash,
        size: u64,
    ) -> Result<(), Error> {
        let path = &change.entry.path;
        let from = match self.is_unchanged(change, hash) {
            true => self.project.open_file(path)?,
            false => self.open_blob(path, hash)?,
        };
        self.read(&from, path, hash, size, |bytes| to.write_all(bytes))
    }

    /// Reads a content to its end and checks it against its hash and size.
    fn read(
        &mut self,
        mut from: &File,
        path: &RelativePath,
        hash: ContentHash,
        size: u64,
        mut write: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        let mut hasher = blake3::Hasher::new();
        let mut copied = 0_u64;
        loop {
            let count = from.read(&mut self.buffer).map_err(io_error("read content of", path))?;
            if count == 0 {
                break;
            }
            copied += count as u64;
            if copied > size {
                break;
            }
            hasher.update(&self.buffer[..count]);
            write(&self.buffer[..count]).map_err(io_error("write content of", path))?;
        }
        if copied != size || ContentHash::from(hasher.finalize()) != hash {
            return Err(Error::Blob { path: path.clone(), fault: BlobFault::Altered });
        }
        Ok(())
    }

    /// The directory that will contain a path.
    fn parent_owner(&self, path: &RelativePath) -> Result<Owner, Error> {
        let Some(parent) = path.parent() else { return Ok(self.root) };
        if let Some(owner) = self.directories.get(&parent) {
            return Ok(*owner);
        }
        match self.project.stat(&parent)? {
            Some(stat) => Ok(stat.into()),
            // It was verified a moment ago: if it is missing, the swap reports that.
            None => Ok(self.root),
        }
    }

    fn chown_slot(
        &self,
        slot: &RelativePath,
        owner: Owner,
        path: &RelativePath,
    ) -> Result<(), Error> {
        let current = self.stat(slot)?;
        self.set_owner(current, owner, path, |uid, gid| {
            rustix::fs::chownat(
                self.stage,
                slot.as_os_str(),
                uid,
                gid,
                rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
            )
        })
    }

    /// Sets the owner of something staged, as far as this process may: for root this must
    /// succeed; another user keeps its own id, and the group if it is not a member.
    fn set_owner(
        &self,
        current: Stat,
        owner: Owner,
        path: &RelativePath,
        chown: impl FnOnce(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) -> Result<(), Error> {
        let uid = (self.is_root && current.uid != owner.uid).then(|| Uid::from_raw(owner.uid));
        let gid = (current.gid != owner.gid).then(|| Gid::from_raw(owner.gid));
        if uid.is_none() && gid.is_none() {
            return Ok(());
        }
        match chown(uid, gid) {
            Err(Errno::PERM) if !self.is_root => Ok(()),
            other => other.map_err(|e| io_error("change the owner of", path)(e.into())),
        }
    }

    fn stat(&self, slot: &RelativePath) -> Result<Stat, Error> {
        self.stage.stat(slot)?.ok_or_else(|| {
            io_error("inspect", slot)(std::io::Error::from(std::io::ErrorKind::NotFound))
        })
    }

    fn sync(&self) -> Result<(), Error> {
        if !self.sync_each {
            return Ok(self.stage.sync_file_system()?);
        }
        self.stage.sync()?;
        Ok(self.project.sync()?)
    }
}
