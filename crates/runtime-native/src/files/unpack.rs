//! Creates a tree of files inside from a stream. Every record is hostile, and so are the processes
//! inside: each name is created beneath the descriptor of its directory, and nothing is followed.
//! Everything is done with the rights of the ordinary user, who owns the copies.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind, Rename, Stat, Timestamp};
use stockade_jail::with_caller_rights;
use stockade_runtime::{Error, Record, Result, SandboxPath, TreeReader, TreeSize};

use super::entry::{DirEntryRef, Scope, resolve};
use super::rights::Ids;
use super::{access, directories, failed, special, write};

/// The rights that a directory's owner needs to fill it.
const FILL: u32 = 0o700;

/// See [`Root::unpack`](super::Root::unpack).
pub(super) fn unpack(
    scope: Scope<'_>,
    ids: Ids,
    to: &SandboxPath,
    mode: u32,
    content: &mut (dyn Read + Send),
) -> Result<TreeSize> {
    let work = || {
        let is_new = resolve(scope.root, to.as_path().as_os_str(), super::OFlags::empty()).is_err();
        let made = directories::make_directories(scope, to.as_path(), mode & 0o777 | FILL);
        let target = match made {
            Ok(target) => Dir::from_fd(target),
            Err(error) => return Ok(Err(failed("copy to", to)(error))),
        };
        let chance = RandomState::new().build_hasher().finish();
        let mut unpacking = Unpacking {
            scope,
            uid: match ids.host_start {
                Some(start) => start.saturating_add(ids.user.user),
                None => rustix::process::geteuid().as_raw(),
            },
            size: TreeSize::default(),
            path: to.as_path().to_owned(),
            temporary: format!(".stockade-{chance:016x}"),
            directories: vec![OpenDirectory { dir: target, mode: is_new.then_some(mode & 0o777) }],
        };
        Ok(unpacking.run(content))
    };
    // Only the switch to the user's ids fails here.
    ids.as_user(ids.user, work).map_err(failed("copy to", to))?
}

/// A directory that is being filled.
struct OpenDirectory {
    dir: Dir,
    /// The permission bits that a new one gets when it is full.
    mode: Option<u32>,
}

struct Unpacking<'a> {
    scope: Scope<'a>,
    /// The host id of the user who owns the copies.
    uid: u32,
    size: TreeSize,
    /// The current path inside, for messages.
    path: PathBuf,
    /// The name of the entry that is being created.
    temporary: String,
    /// The directories from the top to the current one.
    directories: Vec<OpenDirectory>,
}

impl Unpacking<'_> {
    fn run(&mut self, content: &mut (dyn Read + Send)) -> Result<TreeSize> {
        let mut tree = TreeReader::new(io::BufReader::with_capacity(64 << 10, content));
        self.refuse_kernel()?;
        loop {
            let record = tree.record().map_err(|error| self.failed(error))?;
            match record {
                None => break,
                Some(Record::Leave) => {
                    self.leave()?;
                    self.path.pop();
                }
                Some(Record::Enter { name, mode }) => {
                    self.path.push(name.as_os_str());
                    self.enter(&name, mode)?;
                }
                Some(Record::File { name, mode, modified }) => {
                    self.path.push(name.as_os_str());
                    self.file(&name, mode, modified, &mut tree)?;
                    self.path.pop();
                }
                Some(Record::Link { name, target }) => {
                    self.path.push(name.as_os_str());
                    self.link(&name, &target).map_err(|error| self.failed(error))?;
                    self.path.pop();
                }
                Some(Record::Skipped { .. }) => {}
            }
        }
        self.leave()?;
        Ok(self.size)
    }

    fn dir(&self) -> io::Result<&Dir> {
        // The reader of the stream returns no record that leaves the top directory.
        self.directories.last().map(|last| &last.dir).ok_or_else(|| Errno::INVAL.into())
    }

    fn refuse_kernel(&self) -> Result<()> {
        let refused = self.dir().and_then(|dir| special::refuse_kernel(dir.as_fd()));
        refused.map_err(|error| self.failed(error))
    }

    /// Whether the rules allow creating a name in the current directory.
    fn check(&self, name: &RelativePath) -> io::Result<()> {
        if self.scope.rules.is_empty() {
            return Ok(());
        }
        let entry = DirEntryRef { parent: self.dir()?.try_clone()?, name: name.clone() };
        access::may_change(self.scope.rules, &entry)
    }

    fn enter(&mut self, name: &RelativePath, mode: u32) -> Result<()> {
        let enter = || {
            self.check(name)?;
            let dir = self.dir()?;
            let is_new = match dir.mkdir(name, FILL) {
                Ok(()) => true,
                Err(error) if error.errno() == Some(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            let made = dir.locate_dir(name).map_err(|error| match error {
                // A symbolic link to a directory does not count as a directory.
                beneath::Error::ThroughLink { .. } => Errno::NOTDIR.into(),
                error => io::Error::from(error),
            })?;
            Ok(OpenDirectory { dir: made, mode: is_new.then_some(mode & 0o777) })
        };
        let entered = enter().map_err(|error| self.failed(error))?;
        self.size.directories += u64::from(entered.mode.is_some());
        self.directories.push(entered);
        self.refuse_kernel()
    }

    /// Leaves the current directory, which is full.
    fn leave(&mut self) -> Result<()> {
        let Some(full) = self.directories.pop() else { return Ok(()) };
        let Some(mode) = full.mode.filter(|mode| *mode != FILL) else { return Ok(()) };
        // The descriptor is `O_PATH`; this path leads to the same directory.
        let path = special::own_path(full.dir.as_fd());
        let changed = rustix::fs::chmod(path, Mode::from_bits_truncate(mode));
        changed.map_err(|errno| self.failed(errno.into()))
    }

    fn file(
        &mut self,
        name: &RelativePath,
        mode: u32,
        modified: (i64, u32),
        tree: &mut TreeReader<impl Read>,
    ) -> Result<()> {
        let created = self.create(name).map_err(|error| self.failed(error))?;
        let mut file = &created.file;
        let written = match tree.content(&mut file) {
            Ok(Ok(Some(length))) => {
                self.place(&created, name, mode, modified).map(|()| Some(length))
            }
            // The sender could not read it to its end.
            Ok(Ok(None)) => Ok(None),
            Ok(Err(error)) | Err(error) => Err(error),
        };
        match written {
            Ok(Some(length)) => {
                self.size.files += 1;
                self.size.bytes += length;
                Ok(())
            }
            outcome => {
                // An incomplete file is not needed.
                let _ = self.dir().map(|dir| dir.remove_file(&created.temporary));
                outcome.map(drop).map_err(|error| self.failed(error))
            }
        }
    }

    fn create(&self, name: &RelativePath) -> io::Result<NewFile> {
        let old = self.old(name)?;
        let temporary = self.temporary()?;
        let file = self.dir()?.create_file(&temporary, 0o600)?;
        Ok(NewFile { old, temporary, file })
    }

    /// Gives a complete file its properties and its name.
    fn place(
        &self,
        new: &NewFile,
        name: &RelativePath,
        mode: u32,
        (seconds, nanoseconds): (i64, u32),
    ) -> io::Result<()> {
        let dir = self.dir()?;
        match &new.old {
            None => rustix::fs::fchmod(&new.file, Mode::from_bits_truncate(mode & 0o777))?,
            Some(old) => keep_owner(&new.file, old)?,
        }
        dir.set_times(&new.temporary, None, Timestamp { seconds, nanoseconds })?;
        Ok(dir.rename(&new.temporary, dir, name, Rename::Replace)?)
    }

    fn link(&mut self, name: &RelativePath, target: &[u8]) -> io::Result<()> {
        self.old(name)?;
        let (dir, temporary) = (self.dir()?, self.temporary()?);
        dir.symlink(target, &temporary)?;
        if let Err(error) = dir.rename(&temporary, dir, name, Rename::Replace) {
            let _ = dir.remove_file(&temporary);
            return Err(error.into());
        }
        self.size.links += 1;
        Ok(())
    }

    /// The file that an entry replaces, if it may replace it. A symbolic link is replaced itself.
    fn old(&self, name: &RelativePath) -> io::Result<Option<Stat>> {
        self.check(name)?;
        let dir = self.dir()?;
        match dir.stat(name)? {
            None => Ok(None),
            Some(stat) if stat.mount_point => Err(Errno::BUSY.into()),
            Some(stat) => match stat.kind {
                FileKind::Symlink => Ok(None),
                FileKind::Directory => Err(Errno::ISDIR.into()),
                // As any file of this user in a directory that the user may write to.
                FileKind::File if stat.uid == self.uid => Ok(Some(stat)),
                FileKind::File | FileKind::CharacterDevice | FileKind::Other => {
                    let entry = DirEntryRef { parent: dir.try_clone()?, name: name.clone() };
                    write::writable(&entry).map(Some)
                }
            },
        }
    }

    fn temporary(&self) -> io::Result<RelativePath> {
        RelativePath::new(self.temporary.as_bytes()).map_err(io::Error::other)
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::File { operation: "copy to", path: self.path.display().to_string(), source }
    }
}

/// A file that is being written under a temporary name.
struct NewFile {
    /// The file that it replaces.
    old: Option<Stat>,
    temporary: RelativePath,
    file: File,
}

/// Gives a file the owner and the permissions of the one that it replaces. The caller has checked
/// that this owner lets the user write.
fn keep_owner(file: &File, old: &Stat) -> io::Result<()> {
    let new = Stat::of(file)?;
    if (new.uid, new.gid) != (old.uid, old.gid) {
        let (uid, gid) = (Uid::from_raw(old.uid), Gid::from_raw(old.gid));
        with_caller_rights(|| Ok(rustix::fs::fchown(file, Some(uid), Some(gid))?))?;
    }
    let mode = Mode::from_bits_truncate(old.mode & 0o1777);
    with_caller_rights(|| Ok(rustix::fs::fchmod(file, mode)?))
}
