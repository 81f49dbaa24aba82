//! Files inside a sandbox, read and written from outside below a descriptor of its root directory.
//!
//! The processes inside are hostile and run during each operation. A path is never resolved outside
//! (`entry`). Pipes, sockets, devices and files of kernel file systems are never opened
//! (`special`). New files belong to an inside user and are created with that user's rights
//! (`rights`). All functions may block on the disk, so call them only on threads that may block.
//! This module depends neither on the keeper nor on what runs inside.

mod access;
mod collect;
mod directories;
mod entry;
mod pack;
mod rights;
mod ship;
mod special;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod unpack;
mod write;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, SeekFrom, Uid};
use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind as Kind, Rename, Stat};
use stockade_core::access::{Level, Rules};
use stockade_core::sandbox::User;

use self::entry::{DirEntryRef, Scope};
pub use self::pack::OpenTree;
use self::rights::Ids;
use stockade_runtime::{
    Error, FileInfo, FileKind, ReadRange, Result, SandboxPath, TreeSize, WriteOptions,
};

/// How many names of one directory are listed.
const MAX_LISTED: u64 = 100_000;

/// The root directory of a sandbox, from outside.
#[derive(Debug)]
pub struct Root {
    root: OwnedFd,
    ids: Ids,
    rules: Rules,
}

impl Root {
    /// Takes a descriptor of the root directory; an `O_PATH` descriptor is enough. `host_start` is
    /// the host id of inside id 0 if the sandbox has a uid range; `user` is its ordinary user.
    pub fn new(root: OwnedFd, host_start: Option<u32>, user: User) -> Self {
        Self { root, ids: Ids { host_start, user }, rules: Rules::default() }
    }

    /// The same root with access rules. The rules apply to the real paths after resolution; a
    /// refused access is `PermissionDenied`.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// The metadata of the entry at a path. A symbolic link at its end is not followed.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn stat(&self, path: &SandboxPath) -> Result<FileInfo> {
        let stat = || {
            let (found, stat) = self.inspect(Level::Read, path.as_path(), OFlags::NOFOLLOW)?;
            let link = match stat.kind {
                Kind::Symlink if special::kernel_file_system(found.as_fd())?.is_none() => {
                    Some(rustix::fs::readlinkat(&found, "", Vec::new())?.into_bytes())
                }
                _ => None,
            };
            let name = path.as_path().file_name().unwrap_or(path.as_path().as_os_str());
            Ok(self.info(name.as_encoded_bytes().to_vec(), &stat, link))
        };
        stat().map_err(failed("inspect", path))
    }

    /// The entries of a directory, sorted by the bytes of their names. Symbolic links to
    /// directories are followed.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Invalid`] when there are more than 100 000 names.
    pub fn read_directory(&self, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        let list = || {
            let (found, stat) = self.inspect(Level::Read, path.as_path(), OFlags::DIRECTORY)?;
            special::refuse_kernel(found.as_fd())?;
            self.ids.reading(&stat, || self.list(&Dir::from_fd(found).reopen()?))
        };
        let listed = list().map_err(failed("list", path))?;
        let mut files = listed.ok_or_else(|| {
            Error::Invalid(format!("{path} contains more than {MAX_LISTED} names"))
        })?;
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }

    /// Opens a regular file, positioned at the start of a range. Returns the length of that range
    /// in bytes, which may extend beyond the end of the file. Symbolic links are followed, inside
    /// only.
    /// # Errors
    /// [`Error::File`], with `InvalidInput` for an entry that is neither file nor directory.
    pub fn open_read(&self, path: &SandboxPath, range: ReadRange) -> Result<(File, u64)> {
        let open = || {
            let (found, stat) = self.inspect(Level::Read, path.as_path(), OFlags::empty())?;
            let file = self.ids.reading(&stat, || special::open_file(found.as_fd(), &stat))?;
            if range.offset > 0 {
                // The kernel cannot read near the largest offset, and no file is that long.
                let offset = range.offset.min(file.metadata()?.len());
                rustix::fs::seek(&file, SeekFrom::Start(offset))?;
            }
            Ok(file)
        };
        let file = open().map_err(failed("read", path))?;
        Ok((file, range.length.unwrap_or(u64::MAX)))
    }

    /// Writes a regular file atomically, with exactly the rights of its future owner. An existing
    /// file keeps its owner and its permission bits without set-id, and must be writable for that
    /// user. Symbolic links are followed, inside only. Returns the length in bytes.
    ///
    /// # Errors
    /// [`Error::File`], with `InvalidInput` for an entry that is neither file nor directory;
    /// [`Error::Invalid`] or [`Error::Unsupported`] for an owner that does not exist inside.
    pub fn write(
        &self,
        path: &SandboxPath,
        content: &mut dyn io::Read,
        options: WriteOptions,
    ) -> Result<u64> {
        let user = self.ids.check_user(options.owner)?;
        write::write(self.scope(), self.ids, user, path.as_path(), content, options)
            .map_err(failed("write", path))
    }

    /// Creates a directory and its missing parents, with exactly the rights of their future owner.
    /// Every read bit of the given mode also sets the execute bit; set-id bits are dropped, as
    /// mkdir(2) does. A directory that exists is no error.
    ///
    /// # Errors
    /// [`Error::File`], with `AlreadyExists` for an entry that is not a directory;
    /// [`Error::Invalid`] or [`Error::Unsupported`] for an owner that does not exist inside.
    pub fn make_directory(&self, path: &SandboxPath, options: WriteOptions) -> Result<()> {
        let user = self.ids.check_user(options.owner)?;
        let mode = options.mode & 0o1777 | (options.mode & 0o444) >> 2;
        let root = self.root.as_fd();
        let make = || {
            let made = directories::make_directories(self.scope(), path.as_path(), mode);
            match made {
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                    let there = entry::resolve(root, path.as_path().as_os_str(), OFlags::empty());
                    Err(if there.is_ok() { Errno::EXIST.into() } else { error })
                }
                other => other.map(drop),
            }
        };
        self.ids.as_user(user, make).map_err(failed("make", path))
    }

    /// Changes the permission bits (without set-id) or the owner of a regular file or directory.
    /// Only entries that belong to the sandbox can be changed. Symbolic links are followed, inside
    /// only.
    ///
    /// # Errors
    /// [`Error::File`], with `InvalidInput` for an entry that is neither file nor directory;
    /// [`Error::Invalid`] or [`Error::Unsupported`] for an owner that does not exist inside.
    pub fn set_attributes(
        &self,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        let owner = owner.map(|owner| self.ids.check_user(Some(owner))).transpose()?;
        let set = || {
            let (found, stat) = self.inspect(Level::ReadWrite, path.as_path(), OFlags::empty())?;
            special::refuse_kernel(found.as_fd())?;
            if !matches!(stat.kind, Kind::File | Kind::Directory) {
                return Err(Errno::INVAL.into());
            }
            if !self.ids.owns(&stat) {
                return Err(Errno::PERM.into());
            }
            self.ids.as_owner(|| {
                if let (Some(owner), Some(start)) = (owner, self.ids.host_start) {
                    let user = Uid::from_raw(start.saturating_add(owner.user));
                    let group = Gid::from_raw(start.saturating_add(owner.group));
                    let flags = AtFlags::EMPTY_PATH;
                    rustix::fs::chownat(&found, "", Some(user), Some(group), flags)?;
                }
                if let Some(mode) = mode {
                    // The descriptor is `O_PATH`; this path leads to the same entry.
                    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
                    rustix::fs::chmod(path, Mode::from_raw_mode(mode & 0o1777))?;
                }
                Ok(())
            })
        };
        set().map_err(failed("change", path))
    }

    /// Renames a file or directory, and replaces a file or empty directory at the new path.
    /// Symbolic links at the ends of the paths are not followed.
    ///
    /// # Errors
    /// [`Error::File`], with `ResourceBusy` for a mount point, and with `CrossesDevices` between
    /// two mounts and for a directory that exists in a lower layer: overlays do not move those.
    pub fn rename(&self, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        let rename = || {
            let old = DirEntryRef::new(self.root.as_fd(), from.as_path())?;
            let new = DirEntryRef::new(self.root.as_fd(), to.as_path())?;
            old.stat()?.ok_or(Errno::NOENT)?;
            new.stat()?;
            access::may_move(&self.rules, &old, &new)?;
            Ok(old.parent.rename(&old.name, &new.parent, &new.name, Rename::Replace)?)
        };
        self.ids.as_owner(rename).map_err(failed("rename", from))
    }

    /// Removes a file, or a directory with all its contents, whatever the modes. A symbolic link at
    /// the end of the path is not followed.
    ///
    /// # Errors
    /// [`Error::File`], with `ResourceBusy` for a mount point.
    pub fn remove(&self, path: &SandboxPath) -> Result<()> {
        let remove = || {
            let entry = DirEntryRef::new(self.root.as_fd(), path.as_path())?;
            entry.stat()?.ok_or(Errno::NOENT)?;
            access::may_remove(&self.rules, &entry)?;
            Ok(entry.parent.remove_tree(&entry.name)?)
        };
        self.ids.as_owner(remove).map_err(failed("remove", path))
    }

    /// Copies a directory of the host into a directory inside, which is created if it is missing,
    /// with exactly the rights of the ordinary user, who owns the copies. Existing directories are
    /// filled; files and symbolic links in the way are replaced. Modes are kept without set-id;
    /// modification times of files are kept too. After an error, the entries that were copied
    /// before it stay.
    ///
    /// # Errors
    /// [`Error::Host`] or [`Error::File`] for an entry that could not be copied; [`Error::Invalid`]
    /// for an entry that is neither file, directory nor symbolic link.
    pub fn ship(&self, from: &Path, to: &SandboxPath) -> Result<()> {
        ship::ship(self.scope(), self.ids, from, to)
    }

    /// Copies a directory inside to a new directory of the host, which belongs to the caller. Modes
    /// are kept without set-id and without the write bits of group and others; modification times
    /// of files are kept too. Symbolic links are copied unchanged. Pipes, sockets, devices and entries that
    /// appear or disappear meanwhile are left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the total length of the files, holes included, exceeds
    /// `limit_bytes`, or when there are more than a million names or 128 levels of directories;
    /// [`Error::File`] and [`Error::Host`]. After an error, no copy remains.
    pub fn collect(&self, from: &SandboxPath, to: &Path, limit_bytes: u64) -> Result<()> {
        let look = || {
            let (found, stat) = self.inspect(Level::Read, from.as_path(), OFlags::DIRECTORY)?;
            special::refuse_kernel(found.as_fd())?;
            self.ids.reading(&stat, || Ok((Dir::from_fd(found).reopen()?, stat)))
        };
        let (dir, stat) = look().map_err(failed("collect", from))?;
        collect::collect(self.ids, &dir, &stat, from, to, limit_bytes)
    }

    /// Creates a tree of files in a directory from a stream, with exactly the rights of the ordinary
    /// user, who owns the copies. See [`Runtime::unpack`](stockade_runtime::Runtime::unpack).
    ///
    /// # Errors
    /// [`Error::File`], with `InvalidData` for a stream that is no tree.
    pub fn unpack(
        &self,
        to: &SandboxPath,
        mode: u32,
        content: &mut (dyn io::Read + Send),
    ) -> Result<TreeSize> {
        unpack::unpack(self.scope(), self.ids, to, mode, content)
    }

    /// Opens a directory whose content is to be written to a stream. Symbolic links are followed,
    /// inside only.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn open_tree(&self, from: &SandboxPath) -> Result<OpenTree> {
        let open = || {
            let (found, stat) = self.inspect(Level::Read, from.as_path(), OFlags::DIRECTORY)?;
            special::refuse_kernel(found.as_fd())?;
            let dir = self.ids.reading(&stat, || Ok(Dir::from_fd(found).reopen()?))?;
            Ok(OpenTree { dir, stat, ids: self.ids, rules: self.rules.clone() })
        };
        open().map_err(failed("copy", from))
    }

    /// Resolves a path with the rights of reading. The returned descriptor is `O_PATH`.
    fn inspect(&self, level: Level, path: &Path, flags: OFlags) -> io::Result<(OwnedFd, Stat)> {
        let find = || {
            let found = entry::resolve(self.root.as_fd(), path.as_os_str(), flags)?;
            let stat = Stat::of(&found)?;
            Ok((found, stat))
        };
        let root = self.ids.host_start.unwrap_or_default();
        let found = self.ids.looking_up(root, find)?;
        access::check(&self.rules, level, found.0.as_fd())?;
        if self.ids.is_in_range(found.1.uid) {
            Ok(found)
        } else {
            self.ids.as_user(self.ids.user, find)
        }
    }

    fn scope(&self) -> Scope<'_> {
        Scope { root: self.root.as_fd(), rules: &self.rules }
    }

    /// `None` when there are too many names.
    fn list(&self, dir: &Dir) -> io::Result<Option<Vec<FileInfo>>> {
        let Some(entries) = dir.entries_up_to(MAX_LISTED)? else { return Ok(None) };
        let mut files = Vec::with_capacity(entries.len());
        for (name, _) in entries {
            let path = RelativePath::new(name.clone()).map_err(io::Error::other)?;
            let Some(stat) = dir.stat(&path)? else { continue };
            // If it is no longer a symbolic link, it has no target.
            let link = (stat.kind == Kind::Symlink).then(|| dir.read_link(&path).ok()).flatten();
            files.push(self.info(name, &stat, link));
        }
        Ok(Some(files))
    }

    fn info(&self, name: Vec<u8>, stat: &Stat, link: Option<Vec<u8>>) -> FileInfo {
        let modified = stat.modified;
        FileInfo {
            name,
            kind: match stat.kind {
                Kind::File => FileKind::File,
                Kind::Directory => FileKind::Directory,
                Kind::Symlink => FileKind::Link,
                Kind::CharacterDevice | Kind::Other => FileKind::Other,
            },
            size_bytes: stat.size,
            mode: stat.mode,
            owner: self.ids.inside(stat),
            modified_ms: modified
                .seconds
                .saturating_mul(1000)
                .saturating_add(i64::from(modified.nanoseconds / 1_000_000)),
            link,
        }
    }
}

/// Adds the operation and the path to an error.
fn failed(operation: &'static str, path: &SandboxPath) -> impl Fn(io::Error) -> Error + use<> {
    let path = path.to_string();
    move |source| Error::File { operation, path: path.clone(), source }
}
