//! Writing the entries of a layer below its directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Stat, Timestamp};
use tar::EntryType;

use super::entries::{Entries, Entry};
use super::merged::{Budget, Found, Merged, OPAQUE, Parts, clean, path, printable};
use super::{Error, LayerRecord};
use crate::limits::Limits;

/// The start of a name that deletes the rest of it from the layers below.
const WHITEOUT: &[u8] = b".wh.";
/// The name that hides a directory of the layers below.
const OPAQUE_WHITEOUT: &[u8] = b".wh..wh..opq";
/// The start of names that old tools kept for themselves.
const RESERVED: &[u8] = b".wh..wh.";
/// The most notes that are recorded.
const MAX_NOTES: usize = 20;
/// The most bytes of names of directories that are held in memory.
const MAX_NAME_BYTES: u64 = 256 << 20;
/// The mode of a directory that no layer lists.
const DEFAULT_MODE: u32 = 0o755;

/// Unpacks all entries.
pub(super) fn unpack(
    archive: impl Read,
    to: &Dir,
    below: &[Dir],
    limits: &Limits,
    keep_owners: bool,
) -> Result<LayerRecord, Error> {
    let mut layers = vec![to];
    layers.extend(below);
    let mut unpacking = Unpacking {
        to,
        merged: Merged::new(layers, Budget::new(limits.layer_seconds)),
        limits,
        keep_owners,
        record: LayerRecord { has_owners: keep_owners, ..LayerRecord::default() },
        directories: BTreeMap::new(),
        name_bytes: 0,
        resolved: None,
    };
    unpacking.inherit_root(below)?;
    let mut entries = Entries::new(archive);
    while let Some(entry) = entries.next()? {
        unpacking.entry(&entry, &mut entries)?;
    }
    entries.drain()?;
    unpacking.finish_directories()?;
    Ok(unpacking.record)
}

/// What a directory gets when nothing is written into it any more.
#[derive(Debug, Clone, Copy)]
struct Finish {
    mode: u32,
    modified: Timestamp,
}

struct Unpacking<'a> {
    to: &'a Dir,
    merged: Merged<'a>,
    limits: &'a Limits,
    keep_owners: bool,
    record: LayerRecord,
    /// Until the end directories are writable for this process. The root has the empty path.
    directories: BTreeMap<Vec<u8>, Finish>,
    name_bytes: u64,
    /// The directory of the entry before, as named and as resolved.
    resolved: Option<(Parts, Parts)>,
}

impl<'a> Unpacking<'a> {
    fn entry<R: Read>(&mut self, entry: &Entry, entries: &mut Entries<R>) -> Result<(), Error> {
        self.record.entries += 1;
        self.merged.budget().step()?;
        if self.record.entries > self.limits.layer_entries {
            return Err(Error::Limit { limit: "entries", value: self.limits.layer_entries });
        }
        let named = clean(&entry.path)?;
        let Some((name, parents)) = named.split_last() else {
            if entry.kind == EntryType::Directory {
                self.root(entry)?;
            }
            return Ok(());
        };
        let parents = self.resolve(parents)?;
        if name.starts_with(WHITEOUT) {
            return self.whiteout(&parents, name, entry);
        }
        let mut parts = parents;
        parts.push(name.clone());
        let Some(at) = path(&parts)? else { return Ok(()) };
        match entry.kind {
            EntryType::Directory => self.directory(&parts, &at, entry),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(&parts, &at, entry, entries)
            }
            EntryType::Symlink => self.symlink(&parts, &at, entry),
            EntryType::Link => self.hard_link(&parts, &at, entry),
            kind => {
                self.skip(&at, kind);
                Ok(())
            }
        }
    }

    fn resolve(&mut self, parents: &[Vec<u8>]) -> Result<Parts, Error> {
        if let Some((named, resolved)) = &self.resolved
            && named == parents
        {
            return Ok(resolved.clone());
        }
        let resolved = self.merged.resolve(parents)?;
        self.resolved = Some((parents.to_vec(), resolved.clone()));
        Ok(resolved)
    }

    /// The layer's root is that of the layers below, unless the layer lists it.
    fn inherit_root(&mut self, below: &[Dir]) -> Result<(), Error> {
        let finish = match below.first() {
            Some(below) => {
                let stat = below.stat_self()?;
                if self.keep_owners {
                    self.to.chown_self(stat.uid, stat.gid)?;
                }
                Finish { mode: stat.mode, modified: stat.modified }
            }
            None => Finish { mode: DEFAULT_MODE, modified: Timestamp::from((0, 0)) },
        };
        self.directories.insert(Vec::new(), finish);
        Ok(())
    }

    fn root(&mut self, entry: &Entry) -> Result<(), Error> {
        let (user, group) = self.owner(entry)?;
        if self.keep_owners {
            self.to.chown_self(user, group)?;
        }
        self.directories.insert(Vec::new(), finish(entry));
        Ok(())
    }

    fn directory(
        &mut self,
        parts: &[Vec<u8>],
        at: &RelativePath,
        entry: &Entry,
    ) -> Result<(), Error> {
        self.make_parents(parts)?;
        self.make_directory(at)?;
        self.owned(at, entry)?;
        if !entry.attributes.is_empty() {
            let directory = self.to.open_dir(at)?;
            self.attributes(directory.as_fd(), at, entry)?;
        }
        self.finish_later(at, finish(entry))
    }

    /// Makes a directory unless there is one. Where the layer has deleted or replaced what was
    /// there, the content of the layers below stays hidden.
    fn make_directory(&mut self, at: &RelativePath) -> Result<(), Error> {
        match self.to.stat(at)?.map(|stat| stat.kind) {
            Some(FileKind::Directory) => Ok(()),
            Some(_) => {
                self.to.remove_file(at)?;
                self.resolved = None;
                self.to.mkdir(at, 0o700)?;
                self.mark_opaque(at)
            }
            None => Ok(self.to.mkdir(at, 0o700)?),
        }
    }

    fn file<R: Read>(
        &mut self,
        parts: &[Vec<u8>],
        at: &RelativePath,
        entry: &Entry,
        entries: &mut Entries<R>,
    ) -> Result<(), Error> {
        let size = entry.sparse.as_ref().map_or(entry.stored, |(size, _)| *size);
        self.count_bytes(size)?;
        let (user, group) = self.owner(entry)?;
        self.make_parents(parts)?;
        self.clear(at)?;
        let mut file = self.to.create_file(at, 0o600)?;
        let mut buffer = vec![0; 64 << 10];
        let parts = match &entry.sparse {
            Some((size, parts)) => {
                file.set_len(*size).map_err(|source| failed("write", at, source))?;
                parts.iter().map(|part| (Some(part.offset), part.length)).collect()
            }
            None => vec![(None, entry.stored)],
        };
        for (offset, mut left) in parts {
            if let Some(offset) = offset {
                file.seek(SeekFrom::Start(offset)).map_err(|source| failed("write", at, source))?;
            }
            while left > 0 {
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                let read = entries.read(&mut buffer[..most])?;
                if read == 0 {
                    return Err(Error::Read(io::ErrorKind::UnexpectedEof.into()));
                }
                file.write_all(&buffer[..read]).map_err(|source| failed("write", at, source))?;
                left -= read as u64;
            }
        }
        self.attributes(file.as_fd(), at, entry)?;
        let owner = self.keep_owners.then_some((user, group));
        finish_file(&file, owner, finish(entry)).map_err(|errno| failed("finish", at, errno.into()))
    }

    /// The target is anything: it is resolved only in the sandbox whose root the image becomes.
    fn symlink(
        &mut self,
        parts: &[Vec<u8>],
        at: &RelativePath,
        entry: &Entry,
    ) -> Result<(), Error> {
        if entry.link.is_empty() || entry.link.contains(&0) {
            return Err(refused(at, "is a link without a valid target"));
        }
        self.make_parents(parts)?;
        self.clear(at)?;
        self.resolved = None;
        self.to.symlink(&entry.link, at)?;
        self.owned(at, entry)?;
        Ok(self.to.set_times(at, None, finish(entry).modified)?)
    }

    /// A link to a file of this layer, or of one below: then that file becomes part of this layer,
    /// as when a program makes the link in a sandbox.
    fn hard_link(
        &mut self,
        parts: &[Vec<u8>],
        at: &RelativePath,
        entry: &Entry,
    ) -> Result<(), Error> {
        let named = clean(&entry.link)?;
        let no_file = || refused(at, "is a hard link to something that is no file of the image");
        let (name, parents) = named.split_last().ok_or_else(no_file)?;
        let mut target = self.merged.resolve(parents)?;
        target.push(name.clone());
        if target == parts {
            return Err(refused(at, "is a hard link to itself"));
        }
        let found = self.merged.find(&target)?.ok_or_else(no_file)?;
        if !matches!(found.stat.kind, FileKind::File | FileKind::Symlink) {
            return Err(no_file());
        }
        let target_path = path(&target)?.ok_or_else(no_file)?;
        if !std::ptr::eq(found.layer, self.to) {
            self.copy_up(&target, &target_path, found)?;
        }
        self.make_parents(parts)?;
        self.clear(at)?;
        let (from, to) = (self.parent(&target_path)?, self.parent(at)?);
        let name = |path: &RelativePath| std::ffi::OsStr::from_bytes(path.file_name()).to_owned();
        rustix::fs::linkat(&from, name(&target_path), &to, name(at), AtFlags::empty())
            .map_err(|errno| failed("link", at, errno.into()))
    }

    /// Copies a file or link of a layer below into this one.
    fn copy_up(
        &mut self,
        parts: &[Vec<u8>],
        at: &RelativePath,
        found: Found<'a>,
    ) -> Result<(), Error> {
        self.make_parents(parts)?;
        let Stat { kind, mode, uid, gid, modified, size, .. } = found.stat;
        if kind == FileKind::Symlink {
            self.resolved = None;
            self.to.symlink(&found.layer.read_link(at)?, at)?;
            if self.keep_owners {
                self.to.chown(at, uid, gid)?;
            }
            return Ok(self.to.set_times(at, None, modified)?);
        }
        self.count_bytes(size)?;
        let mut from = found.layer.open_file(at)?;
        let mut file = self.to.create_file(at, 0o600)?;
        io::copy(&mut from, &mut file).map_err(|source| failed("copy", at, source))?;
        let owner = self.keep_owners.then_some((uid, gid));
        finish_file(&file, owner, Finish { mode, modified })
            .map_err(|errno| failed("finish", at, errno.into()))
    }

    /// A deletion in the layers below. What this layer itself has at the path stays, whatever the
    /// order of the entries.
    fn whiteout(&mut self, parents: &[Vec<u8>], name: &[u8], entry: &Entry) -> Result<(), Error> {
        let at = |parts: &[Vec<u8>]| path(parts);
        if name == OPAQUE_WHITEOUT {
            let Some(directory) = at(parents)? else { return self.hide_all() };
            self.make_parents(&[parents, &[Vec::new()]].concat())?;
            return self.mark_opaque(&directory);
        }
        if name.starts_with(RESERVED) {
            return Ok(());
        }
        let mut parts = parents.to_vec();
        parts.push(name[WHITEOUT.len()..].to_vec());
        let is_name = !matches!(&name[WHITEOUT.len()..], b"" | b"." | b"..");
        let Some(target) = at(&parts)?.filter(|_| is_name) else {
            let path = printable(&entry.path);
            return Err(Error::Entry { path, reason: "deletes something that has no name" });
        };
        match self.to.stat(&target)?.map(|stat| stat.kind) {
            Some(FileKind::Directory) => self.mark_opaque(&target),
            Some(_) => Ok(()),
            // Without anything to hide, the device itself would be visible.
            None if self.merged.find(&parts)?.is_none() => Ok(()),
            None => self.delete(&parts, &target),
        }
    }

    fn delete(&mut self, parts: &[Vec<u8>], at: &RelativePath) -> Result<(), Error> {
        self.make_parents(parts)?;
        self.resolved = None;
        let name = std::ffi::OsStr::from_bytes(at.file_name());
        let parent = self.parent(at)?;
        rustix::fs::mknodat(&parent, name, FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(|errno| failed("record the deletion of", at, errno.into()))
    }

    /// Hides everything that the layers below have in the root: an overlay has no mark for that.
    fn hide_all(&mut self) -> Result<(), Error> {
        let mut names = std::collections::BTreeSet::new();
        for layer in self.merged.layers.iter().skip(1) {
            names.extend(layer.entries()?.into_iter().map(|(name, _)| name));
        }
        for name in names {
            self.merged.budget().step()?;
            let parts = [name];
            let Some(at) = path(&parts)? else { continue };
            match self.to.stat(&at)?.map(|stat| stat.kind) {
                Some(FileKind::Directory) => self.mark_opaque(&at)?,
                Some(_) => {}
                None if self.merged.find(&parts)?.is_none() => {}
                None => self.delete(&parts, &at)?,
            }
        }
        Ok(())
    }

    fn mark_opaque(&mut self, at: &RelativePath) -> Result<(), Error> {
        self.resolved = None;
        let directory = self.to.open_dir(at)?;
        rustix::fs::fsetxattr(&directory, OPAQUE, b"y", XattrFlags::empty())
            .map_err(|errno| failed("hide what is below", at, errno.into()))
    }

    /// Makes the directories above a path that the layer does not list before it. Where the image
    /// has them already, they stay as they are there.
    fn make_parents(&mut self, parts: &[Vec<u8>]) -> Result<(), Error> {
        for depth in 1..parts.len() {
            let Some(above) = path(&parts[..depth])? else { continue };
            match self.to.stat(&above)?.map(|stat| stat.kind) {
                Some(FileKind::Directory) => continue,
                Some(FileKind::CharacterDevice) | None => {}
                Some(_) => return Err(refused(&above, "is no directory, but has content")),
            }
            let found = self.merged.find(&parts[..depth])?;
            self.make_directory(&above)?;
            let kept = match found {
                Some(Found { layer, stat }) if stat.kind == FileKind::Directory => {
                    if self.keep_owners {
                        self.to.chown(&above, stat.uid, stat.gid)?;
                    }
                    copy_attributes(&layer.open_dir(&above)?, &self.to.open_dir(&above)?)
                        .map_err(|errno| failed("copy the attributes of", &above, errno.into()))?;
                    Finish { mode: stat.mode, modified: stat.modified }
                }
                _ => Finish { mode: DEFAULT_MODE, modified: Timestamp::from((0, 0)) },
            };
            self.finish_later(&above, kept)?;
        }
        Ok(())
    }

    /// Removes what an earlier entry of the same path created.
    fn clear(&mut self, at: &RelativePath) -> Result<(), Error> {
        match self.to.stat(at)?.map(|stat| stat.kind) {
            None => Ok(()),
            Some(FileKind::Directory) => {
                self.resolved = None;
                Ok(self.to.remove_tree(at)?)
            }
            Some(_) => {
                self.resolved = None;
                Ok(self.to.remove_file(at)?)
            }
        }
    }

    fn owned(&mut self, at: &RelativePath, entry: &Entry) -> Result<(), Error> {
        let (user, group) = self.owner(entry)?;
        if self.keep_owners {
            self.to.chown(at, user, group)?;
        }
        Ok(())
    }

    fn owner(&mut self, entry: &Entry) -> Result<(u32, u32), Error> {
        // 2^32 - 1 means "leave unchanged" to the kernel.
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        let (Some(user), Some(group)) = (id(entry.user), id(entry.group)) else {
            let path = printable(&entry.path);
            return Err(Error::Entry { path, reason: "belongs to an id that no user can have" });
        };
        self.record.highest_id = self.record.highest_id.max(user).max(group);
        Ok((user, group))
    }

    /// Sets the attributes that programs give meaning to. Those of the kernel's security modules
    /// and of overlays would have a meaning to the host.
    fn attributes(
        &mut self,
        file: BorrowedFd<'_>,
        at: &RelativePath,
        entry: &Entry,
    ) -> Result<(), Error> {
        for (name, value) in &entry.attributes {
            if !name.starts_with(b"user.") || name.starts_with(b"user.overlay.") {
                continue;
            }
            match rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(Errno::NOTSUP | Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::INVAL) => {
                    self.note(format!(
                        "{at} has lost an attribute that this file system cannot store"
                    ));
                }
                Err(errno) => return Err(failed("set an attribute of", at, errno.into())),
            }
        }
        Ok(())
    }

    fn skip(&mut self, at: &RelativePath, kind: EntryType) {
        self.record.skipped += 1;
        let what = match kind {
            EntryType::Char | EntryType::Block => "a device",
            EntryType::Fifo => "a pipe",
            _ => "an entry of an unknown type",
        };
        self.note(format!("{at} was left out: it is {what}"));
    }

    fn note(&mut self, note: String) {
        if self.record.notes.len() < MAX_NOTES {
            self.record.notes.push(note);
        }
    }

    fn count_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        let total = self.record.bytes.saturating_add(bytes);
        if total > self.limits.layer_bytes {
            return Err(Error::Limit { limit: "bytes", value: self.limits.layer_bytes });
        }
        self.record.bytes = total;
        Ok(())
    }

    fn parent(&self, of: &RelativePath) -> Result<Dir, Error> {
        match of.parent() {
            None => Ok(self.to.reopen()?),
            Some(parent) => Ok(self.to.locate_dir(&parent)?),
        }
    }

    fn finish_later(&mut self, at: &RelativePath, finish: Finish) -> Result<(), Error> {
        if self.directories.insert(at.as_bytes().to_vec(), finish).is_none() {
            self.name_bytes += at.as_bytes().len() as u64;
        }
        if self.name_bytes > MAX_NAME_BYTES {
            return Err(Error::Limit { limit: "names", value: MAX_NAME_BYTES });
        }
        Ok(())
    }

    /// Sets the modes and times of directories, children before parents.
    fn finish_directories(&mut self) -> Result<(), Error> {
        for (name, Finish { mode, modified }) in std::mem::take(&mut self.directories).iter().rev()
        {
            let Some(at) =
                path(&name.split(|b| *b == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>())
                    .ok()
                    .flatten()
            else {
                let times = times(*modified);
                rustix::fs::futimens(self.to, &times)
                    .and_then(|()| rustix::fs::fchmod(self.to, Mode::from_raw_mode(*mode)))
                    .map_err(|errno| Error::Io {
                        operation: "finish",
                        path: ".".to_owned(),
                        source: errno.into(),
                    })?;
                continue;
            };
            // A later entry may have replaced it, or a directory above it by a link.
            if self.to.exists(&at)?
                && self.to.stat(&at)?.is_some_and(|stat| stat.kind == FileKind::Directory)
            {
                self.to.set_times(&at, None, *modified)?;
                self.to.chmod(&at, *mode)?;
            }
        }
        Ok(())
    }
}

fn finish(entry: &Entry) -> Finish {
    Finish { mode: entry.mode & 0o7777, modified: Timestamp::from(entry.modified) }
}

/// The owner comes first: changing it clears set-id bits.
fn finish_file(file: &File, owner: Option<(u32, u32)>, finish: Finish) -> Result<(), Errno> {
    if let Some((user, group)) = owner {
        rustix::fs::fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(finish.mode))?;
    rustix::fs::futimens(file, &times(finish.modified))
}

fn times(modified: Timestamp) -> rustix::fs::Timestamps {
    let time = rustix::fs::Timespec {
        tv_sec: modified.seconds,
        tv_nsec: i64::from(modified.nanoseconds.min(999_999_999)),
    };
    rustix::fs::Timestamps { last_access: time, last_modification: time }
}

/// Copies the attributes of a directory but those of the overlay.
fn copy_attributes(from: &Dir, to: &Dir) -> Result<(), Errno> {
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::flistxattr(from, &mut names) {
        Err(Errno::NOTSUP) => return Ok(()),
        length => length?,
    };
    for name in names[..length].split(|byte| *byte == 0) {
        if !name.starts_with(b"user.") || name.starts_with(b"user.overlay.") {
            continue;
        }
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::fgetxattr(from, name, &mut value)?;
        rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

fn refused(at: &RelativePath, reason: &'static str) -> Error {
    Error::Entry { path: at.quoted(), reason }
}

fn failed(operation: &'static str, at: &RelativePath, source: io::Error) -> Error {
    Error::Io { operation, path: at.quoted(), source }
}
