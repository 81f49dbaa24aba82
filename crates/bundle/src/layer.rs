//! Exact copies of the upper layer of an overlay, for snapshots of what a sandbox has written.
//!
//! No process writes to a layer while it is copied, but its content was created by a sandbox: its
//! size, its depth and the number of its names are bounded, no link is followed, and only regular
//! files, directories and links are read. The overlay's own marks are kept: deletions, which are
//! character devices with the number 0:0, and the attributes of [`Marks`] (the kernel's
//! `filesystems/overlayfs.rst`).

mod changes;
mod marks;
mod owners;
pub mod renamed;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, StatxFlags, Uid, XattrFlags};
use rustix::io::Errno;

pub(crate) use changes::is_in_place;
pub use changes::mark_changed;
pub use marks::Marks;
pub(crate) use marks::OF_ROOT as MARKS_OF_ROOT;
pub use owners::Owners;

use crate::attributes;
use crate::beneath::{self, Dir, FileKind, Stat, Timestamp, times};
use crate::content;
use crate::path::RelativePath;

/// The most names that a layer may have.
const MAX_ENTRIES: u64 = 10_000_000;
/// The most nested directories: each level takes three open descriptors.
const MAX_DEPTH: usize = 128;

/// Why a layer could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It takes more space than allowed.
    #[error("the layer has more than {limit_bytes} bytes")]
    TooLarge {
        /// The allowed size.
        limit_bytes: u64,
    },
    /// It has too many names.
    #[error("the layer has more than {MAX_ENTRIES} names")]
    TooMany,
    /// Directories are nested too deep.
    #[error("{path} is deeper than {MAX_DEPTH} directories")]
    TooDeep {
        /// The directory, printable.
        path: String,
    },
    /// Something belongs to an id outside the range.
    #[error("{path} belongs to the id {id}, which is outside the layer's range")]
    Owner {
        /// Its path, printable.
        path: String,
        /// The id.
        id: u32,
    },
    /// A device that no sandbox can have created, or a mount point in the layer.
    #[error("{path} is {what}, which a layer cannot contain")]
    Foreign {
        /// Its path, printable.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// The kernel returned an error.
    #[error("cannot copy {path}")]
    Entry {
        /// The path, printable.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// The kind of the kernel's error, if there is one.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Entry { source, .. } => Some(source.kind()),
            _ => None,
        }
    }
}

/// Copies a layer to an empty directory on any file system, both opened for reading. Returns the
/// copy's size on disk, in bytes.
///
/// The copy has the same names, contents with their holes, modes, times, `user.` attributes, access
/// control lists and hard links; the owners are mapped by `owners`. All of this holds for the
/// directory itself too. Pipes are kept; sockets are left out, because no process listens on a
/// copy. Content is shared with the original where the file system supports that. A caller that is
/// not root owns all of the layer, and may copy files whose modes deny access even to their owner:
/// those modes are changed temporarily.
///
/// # Errors
/// All of [`Error`]. A partial copy stays, and the caller must remove it with the directory.
pub fn copy(from: &Dir, to: &Dir, limit_bytes: u64, owners: Owners) -> Result<u64, Error> {
    Ok(run_copy(from, to, (limit_bytes, owners), Marks::of(from), (None, false))?.size_bytes)
}

/// The same for a directory of a layer with these marks.
///
/// # Errors
/// As [`copy`].
pub(crate) fn copy_part(
    from: &Dir,
    to: &Dir,
    limit_bytes: u64,
    owners: Owners,
    marks: Marks,
) -> Result<u64, Error> {
    Ok(run_copy(from, to, (limit_bytes, owners), marks, (None, false))?.size_bytes)
}

/// The same, without a limit. Returns the paths that the layer removes from the lower layer: those of
/// its deletions, and those of directories that replace one of the lower layer.
///
/// # Errors
/// As [`copy`].
pub fn copy_listed(from: &Dir, to: &Dir, owners: Owners) -> Result<Vec<RelativePath>, Error> {
    Ok(run_copy(from, to, (u64::MAX, owners), Marks::of(from), (None, true))?.removed)
}

/// The original that a copy of a directory is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Original<'a> {
    /// The directory that was copied, in its present state.
    pub directory: &'a Dir,
    /// When the copying started: what the host created later was never in the copy.
    pub since: Timestamp,
    /// When the copy was complete: anything with an earlier timestamp is unchanged since the copy.
    /// `None` if the time was not recorded; then anything may have changed.
    pub copied: Option<Timestamp>,
}

/// Copies the changes in a plain copy of a directory, which has no overlay to separate them, as
/// [`copy`] does. The result corresponds to the upper layer of an overlay without its deletions. The
/// deleted paths are returned instead, without the paths below them. Changes that only the host made
/// are not included.
///
/// # Errors
/// As [`copy`].
pub fn copy_changed(
    from: &Dir,
    to: &Dir,
    owners: Owners,
    original: Original<'_>,
) -> Result<Vec<RelativePath>, Error> {
    let allowed = (u64::MAX, owners);
    Ok(run_copy(from, to, allowed, Marks::of(from), (Some(original), false))?.removed)
}

fn run_copy<'a>(
    from: &Dir,
    to: &'a Dir,
    (limit_bytes, owners): (u64, Owners),
    marks: Marks,
    (original, lists_marks): (Option<Original<'a>>, bool),
) -> Result<Copier<'a>, Error> {
    let mut copying = Copier {
        original,
        lists_marks,
        location: Location::Unmoved,
        removed: Vec::new(),
        top: to,
        shared: None,
        owners,
        limit_bytes,
        size_bytes: 0,
        entries: 0,
        mount: 0,
        marks,
        path: Vec::new(),
        privileged: rustix::process::geteuid().is_root(),
    };
    let found = Entry::of(from, OsStr::new("")).map_err(|errno| copying.entry_error(errno))?;
    copying.mount = found.stat.mount;
    copying.count_bytes(&found)?;
    copying.children(from, to, 0)?;
    if let Some((name, _)) = copying.shared.take() {
        to.remove_tree(&name).map_err(|error| copying.entry_error(error))?;
    }
    copying.finish(from, to, &found)?;
    Ok(copying)
}

/// The metadata of one name in the layer.
struct Entry {
    kind: FileType,
    stat: Stat,
    accessed: Timestamp,
    stored_bytes: u64,
}

impl Entry {
    fn of(directory: &Dir, name: &OsStr) -> Result<Self, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = rustix::fs::statx(directory, name, flags, wanted)?;
        let accessed = stat.stx_atime;
        Ok(Self {
            kind: FileType::from_raw_mode(stat.stx_mode.into()),
            accessed: Timestamp { seconds: accessed.tv_sec, nanoseconds: accessed.tv_nsec },
            stored_bytes: stat.stx_blocks.saturating_mul(512),
            stat: stat.into(),
        })
    }
}

/// Whether a directory of a copy is still where it was copied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// Its timestamp and those of all its parents prove it.
    Unmoved,
    /// Its content shows it.
    SameContent,
    /// It has moved, or may have.
    Moved,
}

struct Copier<'a> {
    /// What the layer is compared with, if it is a plain copy.
    original: Option<Original<'a>>,
    /// Whether the removals that the layer's marks record are listed.
    lists_marks: bool,
    /// Whether the directory that is being copied is still where it was copied to.
    location: Location,
    removed: Vec<RelativePath>,
    top: &'a Dir,
    /// The directory that holds inodes with several names, by their numbers, until the end: the
    /// file system records which were copied, so that this takes no memory.
    shared: Option<(RelativePath, Dir)>,
    owners: Owners,
    limit_bytes: u64,
    size_bytes: u64,
    entries: u64,
    mount: u64,
    marks: Marks,
    /// The path that is being copied.
    path: Vec<u8>,
    privileged: bool,
}

impl Copier<'_> {
    fn children(&mut self, source: &Dir, target: &Dir, depth: usize) -> Result<(), Error> {
        let mut names = HashSet::new();
        for entry in source.list().map_err(|error| self.entry_error(error))? {
            let (name, kind) = entry.map_err(|error| self.entry_error(error))?;
            // In a plain copy a device does not count, because no overlay created it.
            if self.original.is_some() && kind != FileKind::CharacterDevice {
                names.insert(name.clone());
            }
            let parent = self.path.len();
            self.path.push(b'/');
            self.path.extend_from_slice(&name);
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(Error::TooMany);
            }
            let name =
                RelativePath::new(name).map_err(|error| self.entry_error(invalid_input(error)))?;
            self.entry(source, target, &name, depth)?;
            self.path.truncate(parent);
        }
        match self.original {
            Some(original) => self.find_removed(&original, &names),
            None => Ok(()),
        }
    }

    /// Finds what the original contains and a directory of the copy lacks.
    fn find_removed(
        &mut self,
        original: &Original<'_>,
        names: &HashSet<Vec<u8>>,
    ) -> Result<(), Error> {
        let above = self.path.strip_prefix(b"/").map(RelativePath::new).transpose();
        let above = above.map_err(|error| self.entry_error(invalid_input(error)))?;
        let found = changes::original_at(original.directory, above.as_ref());
        // The directory is new in the copy, or was not copied.
        let Some(directory) = found.map_err(|error| self.entry_error(error))? else {
            return Ok(());
        };
        for (name, kind) in directory.entries().map_err(|error| self.entry_error(error))? {
            if names.contains(&name) || matches!(kind, FileKind::CharacterDevice | FileKind::Other)
            {
                continue;
            }
            let path = match &above {
                None => RelativePath::new(name.clone()),
                Some(above) => above.join(&name),
            };
            let path = path.map_err(|error| self.entry_error(invalid_input(error)))?;
            let name =
                RelativePath::new(name).map_err(|error| self.entry_error(invalid_input(error)))?;
            let stat = directory.stat(&name).map_err(|error| self.entry_error(error))?;
            let was_there = stat.is_some_and(|stat| stat.changed <= original.since);
            let denied = |error: beneath::Error| error.errno() == Some(Errno::ACCESS);
            if was_there
                && !(kind == FileKind::File && directory.open_file(&name).is_err_and(denied))
            {
                self.removed.push(path);
            }
        }
        Ok(())
    }

    /// Lists the path that is being copied as removed from the lower layer.
    fn list_removed(&mut self) -> Result<(), Error> {
        let path = self.path.strip_prefix(b"/").map(RelativePath::new).transpose();
        self.removed.extend(path.map_err(|error| self.entry_error(invalid_input(error)))?);
        Ok(())
    }

    /// Whether something was neither changed nor moved since it was copied.
    fn is_unchanged(&self, stat: &Stat) -> bool {
        let copied = self.original.and_then(|original| original.copied);
        self.location != Location::Moved && copied.is_some_and(|copied| stat.changed < copied)
    }

    /// Determines whether a directory that is to be copied is still where it was copied to.
    fn locate(&self, directory: &Dir, stat: &Stat) -> Result<Location, Error> {
        let Some((original, copied)) = self.original.and_then(|all| Some((all, all.copied?)))
        else {
            return Ok(Location::Unmoved);
        };
        if self.location == Location::Unmoved && self.is_unchanged(stat) {
            return Ok(Location::Unmoved);
        }
        let path = self.path.strip_prefix(b"/").map(RelativePath::new).transpose();
        let path = path.map_err(|error| self.entry_error(invalid_input(error)))?;
        let there = changes::original_at(original.directory, path.as_ref());
        let is_same = there.and_then(|there| {
            changes::is_in_place(directory, there.as_ref(), original.since, copied)
        });
        let is_same = is_same.map_err(|error| self.entry_error(error))?;
        Ok(if is_same { Location::SameContent } else { Location::Moved })
    }

    fn entry(
        &mut self,
        source: &Dir,
        target: &Dir,
        name: &RelativePath,
        depth: usize,
    ) -> Result<(), Error> {
        let found = Entry::of(source, name.as_os_str()).map_err(|errno| self.entry_error(errno))?;
        if found.stat.mount != self.mount {
            return Err(self.foreign_error("mounted there"));
        }
        let is_deletion = found.kind == FileType::CharacterDevice && found.stat.device_number == 0;
        if self.lists_marks && is_deletion {
            self.list_removed()?;
        }
        match found.kind {
            FileType::Directory => self.directory(source, target, name, &found, depth),
            FileType::Socket => Ok(()),
            FileType::CharacterDevice if self.original.is_some() => Ok(()),
            _ if self.is_unchanged(&found.stat) => Ok(()),
            _ if found.stat.links > 1 => self.share(source, target, name, &found),
            _ => self.create_entry(source, target, name, name, &found),
        }
    }

    fn directory(
        &mut self,
        source: &Dir,
        target: &Dir,
        name: &RelativePath,
        found: &Entry,
        depth: usize,
    ) -> Result<(), Error> {
        if depth == MAX_DEPTH {
            return Err(Error::TooDeep { path: self.escaped_path() });
        }
        self.count_bytes(found)?;
        self.with_permissions(source, name, &found.stat, 0o500, |this| {
            target.mkdir(name, 0o700).map_err(|error| this.entry_error(error))?;
            let source = source.open_dir(name).map_err(|error| this.entry_error(error))?;
            let target = target.open_dir(name).map_err(|error| this.entry_error(error))?;
            if this.lists_marks && this.marks.is_opaque(&source) {
                this.list_removed()?;
            }
            let location = this.locate(&source, &found.stat)?;
            let above = std::mem::replace(&mut this.location, location);
            this.children(&source, &target, depth + 1)?;
            this.location = above;
            this.finish(&source, &target, found)
        })?;
        if !self.is_unchanged(&found.stat) {
            return Ok(());
        }
        match target.remove_dir(name) {
            // Something in it has changed.
            Err(error) if matches!(error.errno(), Some(Errno::NOTEMPTY | Errno::EXIST)) => Ok(()),
            removed => removed.map_err(|error| self.entry_error(error)),
        }
    }

    /// Gives an inode that has several names one more name.
    fn share(
        &mut self,
        source: &Dir,
        target: &Dir,
        name: &RelativePath,
        found: &Entry,
    ) -> Result<(), Error> {
        let (shared, inodes) = match self.shared.take() {
            Some(shared) => shared,
            None => create_shared_dir(self.top).map_err(|error| self.entry_error(error))?,
        };
        let number = RelativePath::new(found.stat.inode.to_string())
            .map_err(|error| self.entry_error(invalid_input(error)))?;
        if inodes.stat(&number).map_err(|error| self.entry_error(error))?.is_none() {
            self.create_entry(source, &inodes, name, &number, found)?;
        }
        let (old, new) = (number.as_os_str(), name.as_os_str());
        match rustix::fs::linkat(&inodes, old, target, new, AtFlags::empty()) {
            // This is one name more than the file system allows.
            Err(Errno::MLINK) => self.create_entry(source, target, name, name, found)?,
            linked => linked.map_err(|errno| self.entry_error(errno))?,
        }
        self.shared = Some((shared, inodes));
        Ok(())
    }

    /// Copies an inode that is not a directory from `name` to `new`.
    fn create_entry(
        &mut self,
        source: &Dir,
        target: &Dir,
        name: &RelativePath,
        new: &RelativePath,
        found: &Entry,
    ) -> Result<(), Error> {
        self.count_bytes(found)?;
        match found.kind {
            FileType::RegularFile => {
                self.with_permissions(source, name, &found.stat, 0o400, |this| {
                    let from = source.open_file(name).map_err(|error| this.entry_error(error))?;
                    let to =
                        target.create_file(new, 0o600).map_err(|error| this.entry_error(error))?;
                    let allowed = this.limit_bytes - this.size_bytes + found.stored_bytes;
                    content::copy(&from, &to, found.stat.size, allowed)
                        .map_err(|error| this.entry_error(error))?;
                    this.finish(from, to, found)
                })
            }
            FileType::Symlink => {
                let link = source.read_link(name).map_err(|error| self.entry_error(error))?;
                target.symlink(&link, new).map_err(|error| self.entry_error(error))?;
                self.finish_name(target, new, found)
            }
            FileType::Fifo => self.node(target, new, found),
            FileType::CharacterDevice if found.stat.device_number == 0 => {
                self.node(target, new, found)
            }
            _ => Err(self.foreign_error("a device")),
        }
    }

    /// Creates a pipe or a deletion.
    fn node(&self, target: &Dir, name: &RelativePath, found: &Entry) -> Result<(), Error> {
        let mode = Mode::from_bits_truncate(found.stat.mode);
        rustix::fs::mknodat(target, name.as_os_str(), found.kind, mode, 0)
            .map_err(|errno| self.entry_error(errno))?;
        self.finish_name(target, name, found)
    }

    /// Sets all metadata of an open copy.
    fn finish(&self, from: impl AsFd, to: impl AsFd, found: &Entry) -> Result<(), Error> {
        let (uid, gid) = self.owner(&found.stat)?;
        self.attributes(from.as_fd(), to.as_fd(), uid, gid)
            .map_err(|error| self.entry_error(error))?;
        let finished =
            rustix::fs::fchmod(&to, Mode::from_bits_truncate(found.stat.mode)).and_then(|()| {
                rustix::fs::futimens(&to, &times(Some(found.accessed), found.stat.modified))
            });
        finished.map_err(|errno| self.entry_error(errno))
    }

    fn attributes(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        uid: Uid,
        gid: Gid,
    ) -> Result<(), io::Error> {
        for name in attributes::names(from)? {
            if self.original.is_some() && name.starts_with(b"user.overlay.") {
                // No overlay set it.
                continue;
            }
            let value = attributes::value(from, &name)?;
            let value = if name.starts_with(b"user.") || self.is_mark(&name) {
                value
            } else if name.starts_with(b"system.posix_acl_") {
                self.owners.access_list(value).ok_or(io::ErrorKind::InvalidData)?
            } else {
                continue;
            };
            rustix::fs::fsetxattr(to, name, &value, XattrFlags::empty())?;
        }
        let made = rustix::fs::fstat(to)?;
        if (made.st_uid, made.st_gid) != (uid.as_raw(), gid.as_raw()) {
            rustix::fs::fchown(to, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    /// Whether an attribute that no sandbox can write is a mark of the overlay, or of the layer.
    fn is_mark(&self, name: &[u8]) -> bool {
        self.marks == Marks::Trusted
            && self.original.is_none()
            && (name == MARKS_OF_ROOT.as_bytes()
                || name.starts_with(self.marks.prefix().as_bytes()))
    }

    /// The same for inodes that cannot be opened; these have no `user.` attributes.
    fn finish_name(&self, dir: &Dir, name: &RelativePath, found: &Entry) -> Result<(), Error> {
        let (uid, gid) = self.owner_of(found)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let file = name.as_os_str();
        let finish = || {
            let made = rustix::fs::statat(dir, file, flags)?;
            if (made.st_uid, made.st_gid) != (uid.as_raw(), gid.as_raw()) {
                rustix::fs::chownat(dir, file, Some(uid), Some(gid), flags)?;
            }
            if found.kind != FileType::Symlink {
                // No other process changes the copy, so this is not a link.
                let mode = Mode::from_bits_truncate(found.stat.mode);
                rustix::fs::chmodat(dir, file, mode, AtFlags::empty())?;
            }
            let times = times(Some(found.accessed), found.stat.modified);
            rustix::fs::utimensat(dir, file, &times, flags)
        };
        finish().map_err(|errno: Errno| self.entry_error(errno))
    }

    /// Calls `work` while the owner has the permissions `needed` on a name of the layer.
    fn with_permissions(
        &mut self,
        source: &Dir,
        name: &RelativePath,
        stat: &Stat,
        needed: u32,
        work: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.privileged || stat.mode & needed == needed {
            return work(self);
        }
        source.chmod(name, stat.mode | needed).map_err(|error| self.entry_error(error))?;
        let result = work(self);
        source.chmod(name, stat.mode).map_err(|error| self.entry_error(error))?;
        result
    }

    /// A deletion by an overlay of the host belongs to the host, whose root is no id of the layer.
    fn owner_of(&self, found: &Entry) -> Result<(Uid, Gid), Error> {
        let is_deletion = found.kind == FileType::CharacterDevice && found.stat.device_number == 0;
        if self.marks == Marks::Trusted && is_deletion {
            return Ok((Uid::ROOT, Gid::ROOT));
        }
        self.owner(&found.stat)
    }

    fn owner(&self, stat: &Stat) -> Result<(Uid, Gid), Error> {
        let moved = |id| {
            let moved = self.owners.map(id);
            moved.ok_or_else(|| Error::Owner { path: self.escaped_path(), id })
        };
        Ok((Uid::from_raw(moved(stat.uid)?), Gid::from_raw(moved(stat.gid)?)))
    }

    fn count_bytes(&mut self, found: &Entry) -> Result<(), Error> {
        let size_bytes = self.size_bytes.saturating_add(found.stored_bytes);
        if size_bytes > self.limit_bytes {
            return Err(Error::TooLarge { limit_bytes: self.limit_bytes });
        }
        self.size_bytes = size_bytes;
        Ok(())
    }

    fn escaped_path(&self) -> String {
        let path = if self.path.is_empty() { b"/" } else { self.path.as_slice() };
        path.escape_ascii().to_string()
    }

    fn foreign_error(&self, what: &'static str) -> Error {
        Error::Foreign { path: self.escaped_path(), what }
    }

    fn entry_error(&self, error: impl Into<io::Error>) -> Error {
        let source = error.into();
        match source.kind() {
            io::ErrorKind::FileTooLarge => Error::TooLarge { limit_bytes: self.limit_bytes },
            _ => Error::Entry { path: self.escaped_path(), source },
        }
    }
}

/// Creates the directory for shared inodes, under a name that no layer can have predicted.
fn create_shared_dir(top: &Dir) -> Result<(RelativePath, Dir), io::Error> {
    let chance = RandomState::new().build_hasher().finish();
    let name = RelativePath::new(format!(".shared-{chance:016x}")).map_err(invalid_input)?;
    top.mkdir(&name, 0o700)?;
    let dir = top.open_dir(&name)?;
    Ok((name, dir))
}

fn invalid_input(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

#[cfg(test)]
mod tests;
