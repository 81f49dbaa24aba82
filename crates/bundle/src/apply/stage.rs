//! Copying all new content into the private directory, complete with mode and owner, so that
//! the swap is nothing but renames; and the list of those renames.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;

use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;

use super::Step;
use super::error::{BlobFault, Error};
use super::journal::{Action, Made, failed, name};
use super::verify::Verified;
use crate::beneath::{Dir, FileKind, Stat};
use crate::manifest::{ContentHash, Node};
use crate::path::RelativePath;

/// Up to how many files each is waited for; beyond that the whole file system is.
pub(super) const SYNC_EACH: usize = 64;

/// The bits that a directory's owner needs to change what is in it and to rename it.
const CHANGEABLE: u32 = 0o300;

/// Stages the new content of all changes, waits until it is on disk, and returns the steps of
/// the swap in order.
pub(super) fn stage(
    project: &Dir,
    stage: &Dir,
    blobs: &Dir,
    changes: &[Verified<'_>],
    observe: &mut dyn FnMut(Step),
) -> Result<Vec<Action>, Error> {
    let mut staging = Staging {
        project,
        stage,
        blobs,
        is_root: rustix::process::geteuid().is_root(),
        sync_each: changes.len() <= SYNC_EACH,
        directories: HashMap::new(),
        root: project.stat_self()?.into(),
        buffer: vec![0; 256 << 10],
    };
    let mut loosened = Vec::new();
    let mut removals = Vec::new();
    let mut replacements = Vec::new();
    let mut modes = Vec::new();
    for (number, change) in changes.iter().enumerate() {
        let path = change.entry.path.clone();
        let slot = name(&number.to_string())?;
        let mut host_mode = 0;
        if let Some(host) = change.host
            && host.kind == FileKind::Directory
        {
            host_mode = host.mode;
            if host.mode & CHANGEABLE != CHANGEABLE {
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
                let made = staging.make(change, &slot, node)?;
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
                        // Once everything in it is removed, before anything takes its place.
                        removals.push(Action::Exchange { path, slot, made });
                    }
                    Some(_) => replacements.push(Action::Exchange { path, slot, made }),
                }
            }
        }
        observe(Step::Staged(number + 1));
    }
    staging.sync()?;
    // Paths are sorted, so that reversed children come before their parents.
    removals.reverse();
    modes.reverse();
    Ok([loosened, removals, replacements, modes].into_iter().flatten().collect())
}

struct Staging<'s> {
    project: &'s Dir,
    stage: &'s Dir,
    blobs: &'s Dir,
    is_root: bool,
    sync_each: bool,
    /// The directories that were staged, by their later path.
    directories: HashMap<RelativePath, Owner>,
    root: Owner,
    buffer: Vec<u8>,
}

/// What a new entry takes from its directory, or a replacement from what it replaces.
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
    /// Makes a node in a slot as it shall be in the project.
    fn make(
        &mut self,
        change: &Verified<'_>,
        slot: &RelativePath,
        node: &Node,
    ) -> Result<Made, Error> {
        let path = &change.entry.path;
        let parent = self.directory(path)?;
        let owner = change.host.map_or(parent, Owner::from);
        let node = match node {
            Node::File { hash, size, mode } => {
                let file = self.stage.create_file(slot, 0o600)?;
                self.fill(&file, change, *hash, *size)?;
                let current = Stat::of(&file).map_err(|e| failed("inspect", path)(e.into()))?;
                self.give(current, owner, path, |uid, gid| {
                    rustix::fs::fchown(file.as_fd(), uid, gid)
                })?;
                rustix::fs::fchmod(file.as_fd(), Mode::from_bits_truncate(*mode & 0o777))
                    .map_err(|e| failed("change the mode of", path)(e.into()))?;
                if self.sync_each {
                    file.sync_all().map_err(failed("sync", path))?;
                }
                Node::File { hash: *hash, size: *size, mode: mode & 0o777 }
            }
            Node::Symlink { target } => {
                self.stage.symlink(target, slot)?;
                self.give_slot(slot, owner, path)?;
                Node::Symlink { target: target.clone() }
            }
            Node::Directory { mode } => {
                self.stage.mkdir(slot, 0o700)?;
                self.give_slot(slot, owner, path)?;
                // A directory inherits the set-group-id bit, as one made in place would.
                let mode = mode & 0o777 | 0o700 | parent.mode & 0o2000;
                self.stage.chmod(slot, mode)?;
                self.directories.insert(path.clone(), Owner { mode, ..owner });
                Node::Directory { mode }
            }
        };
        Ok(Made { inode: self.stat(slot)?.inode, node })
    }

    fn fill(
        &mut self,
        mut to: &File,
        change: &Verified<'_>,
        hash: ContentHash,
        size: u64,
    ) -> Result<(), Error> {
        let path = &change.entry.path;
        let fault = |fault| Error::Blob { path: path.clone(), fault };
        let unchanged = matches!(
            change.entry.change.old(), Some(Node::File { hash: old, .. }) if *old == hash
        );
        let mut from = if unchanged {
            self.project.open_file(path)?
        } else {
            match self.blobs.open_file(&name(&hash.to_hex())?) {
                Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => {
                    return Err(fault(BlobFault::Missing));
                }
                other => other?,
            }
        };
        let mut hasher = blake3::Hasher::new();
        let mut copied = 0_u64;
        loop {
            let count = from.read(&mut self.buffer).map_err(failed("read content of", path))?;
            if count == 0 {
                break;
            }
            copied += count as u64;
            if copied > size {
                break;
            }
            hasher.update(&self.buffer[..count]);
            to.write_all(&self.buffer[..count]).map_err(failed("write content of", path))?;
        }
        if copied != size || ContentHash::from(hasher.finalize()) != hash {
            return Err(fault(BlobFault::Altered));
        }
        Ok(())
    }

    /// The directory that a path will lie in.
    fn directory(&self, path: &RelativePath) -> Result<Owner, Error> {
        let Some(parent) = path.parent() else { return Ok(self.root) };
        if let Some(owner) = self.directories.get(&parent) {
            return Ok(*owner);
        }
        match self.project.stat(&parent)? {
            Some(stat) => Ok(stat.into()),
            // Verified a moment ago: the swap will find it missing and say so.
            None => Ok(self.root),
        }
    }

    fn give_slot(
        &self,
        slot: &RelativePath,
        owner: Owner,
        path: &RelativePath,
    ) -> Result<(), Error> {
        let current = self.stat(slot)?;
        self.give(current, owner, path, |uid, gid| {
            rustix::fs::chownat(
                self.stage,
                slot.as_os_str(),
                uid,
                gid,
                rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
            )
        })
    }

    /// Gives something staged to an owner, as far as this process may: root must succeed, a
    /// user keeps its own id and the group where it is not a member.
    fn give(
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
            other => other.map_err(|e| failed("change the owner of", path)(e.into())),
        }
    }

    fn stat(&self, slot: &RelativePath) -> Result<Stat, Error> {
        self.stage.stat(slot)?.ok_or_else(|| {
            failed("inspect", slot)(std::io::Error::from(std::io::ErrorKind::NotFound))
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
