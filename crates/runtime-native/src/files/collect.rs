//! Copies a directory of a sandbox to the host while processes inside may change it. Each name is
//! opened individually, beneath its directory's descriptor and without following symbolic links,
//! and checked before it is read.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stockade_bundle::beneath::{Dir, FileKind, Rename, Stat, Timestamp};
use stockade_bundle::{RelativePath, content};

use super::pack::is_secrets;
use super::rights::Ids;
use super::special;
use stockade_runtime::{Error, Result, SandboxPath};

/// How many names a copy may have.
const MAX_ENTRIES: u64 = 1_000_000;
/// The maximal directory depth: each level keeps three descriptors open.
const MAX_DEPTH: usize = 128;

/// See [`Root::collect`](super::Root::collect).
pub(super) fn collect(
    ids: Ids,
    source: &Dir,
    stat: &Stat,
    from: &SandboxPath,
    to: &Path,
    limit_bytes: u64,
) -> Result<()> {
    let host = |source| Error::Host { path: to.display().to_string(), source };
    let name = to.file_name().ok_or_else(|| host(Errno::INVAL.into()))?;
    let name = relative(name.as_bytes()).map_err(host)?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = Dir::open(parent.unwrap_or_else(|| Path::new("."))).map_err(|e| host(e.into()))?;
    if parent.stat(&name).map_err(|error| host(error.into()))?.is_some() {
        return Err(host(Errno::EXIST.into()));
    }
    let chance = RandomState::new().build_hasher().finish();
    let temporary = relative(format!(".stockade-{chance:016x}").as_bytes()).map_err(host)?;
    parent.mkdir(&temporary, 0o700).map_err(|error| host(error.into()))?;

    let mut collecting = Collecting {
        ids,
        host: to.to_owned(),
        inside: from.as_path().to_owned(),
        limit_bytes,
        bytes: 0,
        entries: 0,
    };
    let collected =
        parent.open_dir(&temporary).map_err(|error| host(error.into())).and_then(|target| {
            collecting.children(source, stat, &target, 0)?;
            let finish = || {
                parent.chmod(&temporary, stat.mode & 0o755 | 0o700)?;
                parent.rename(&temporary, &parent, &name, Rename::NoReplace)
            };
            finish().map_err(|error| host(error.into()))
        });
    if collected.is_err() {
        // Only the first error is reported.
        let _ = parent.remove_tree(&temporary);
    }
    collected
}

struct Collecting {
    ids: Ids,
    /// The current path on the host and inside, for messages.
    host: PathBuf,
    inside: PathBuf,
    limit_bytes: u64,
    bytes: u64,
    entries: u64,
}

impl Collecting {
    fn children(&mut self, source: &Dir, above: &Stat, target: &Dir, depth: usize) -> Result<()> {
        if depth == MAX_DEPTH {
            let path = self.inside.display();
            return Err(Error::Invalid(format!("{path} is deeper than {MAX_DEPTH} directories")));
        }
        let list = self.ids.looking_up(above.uid, || Ok(source.list()?));
        for entry in list.map_err(|error| self.inside(error))? {
            let (name, _) = entry.map_err(|error| self.inside(error.into()))?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(Error::Invalid(format!("there are more than {MAX_ENTRIES} names")));
            }
            let name = relative(&name).map_err(|error| self.inside(error))?;
            self.inside.push(name.as_os_str());
            self.host.push(name.as_os_str());
            self.entry(source, above, target, &name, depth)?;
            self.inside.pop();
            self.host.pop();
        }
        Ok(())
    }

    fn entry(
        &mut self,
        source: &Dir,
        above: &Stat,
        target: &Dir,
        name: &RelativePath,
        depth: usize,
    ) -> Result<()> {
        let found = self.ids.looking_up(above.uid, || open_entry(source, name));
        let found = allow_missing(found).map_err(|error| self.inside(error))?;
        let Some((found, stat)) = found else { return Ok(()) };
        // A kernel file system can only be at a mount point.
        if stat.mount != above.mount
            && special::kernel_file_system(found.as_fd())
                .map_err(|error| self.inside(error))?
                .is_some()
        {
            return Ok(());
        }
        match stat.kind {
            FileKind::Directory
                if is_secrets(name, &stat, &found).map_err(|error| self.inside(error))? =>
            {
                Ok(())
            }
            FileKind::Directory => {
                let open = || Ok(Dir::from_fd(found).reopen()?);
                let opened = self.ids.opening(&stat, 0o005, open);
                let source = opened.map_err(|error| self.inside(error))?;
                if !self.make(allow_existing(target.mkdir(name, 0o700)))? {
                    return Ok(());
                }
                let below = target.open_dir(name).map_err(|error| self.on_host(error.into()))?;
                self.children(&source, &stat, &below, depth + 1)?;
                let mode = stat.mode & 0o755 | 0o700;
                target.chmod(name, mode).map_err(|error| self.on_host(error.into()))
            }
            FileKind::File => self.file(&found, &stat, target, name),
            FileKind::Symlink => {
                let link = rustix::fs::readlinkat(&found, "", Vec::new());
                let link = link.map_err(|errno| self.inside(errno.into()))?.into_bytes();
                self.count(link.len() as u64)?;
                self.make(allow_existing(target.symlink(&link, name))).map(drop)
            }
            FileKind::CharacterDevice | FileKind::Other => Ok(()),
        }
    }

    fn file(
        &mut self,
        file: &OwnedFd,
        stat: &Stat,
        target: &Dir,
        name: &RelativePath,
    ) -> Result<()> {
        self.count(stat.size)?;
        let open = || special::open_file(file.as_fd(), stat);
        let opened = self.ids.opening(stat, 0o004, open);
        let from = opened.map_err(|error| self.inside(error))?;
        let Some(to) =
            allow_existing(target.create_file(name, 0o600)).map_err(|error| self.on_host(error))?
        else {
            return Ok(());
        };
        // Bytes that are appended meanwhile were not counted, and are left out.
        content::copy(&from, &to, stat.size, u64::MAX).map_err(|error| self.on_host(error))?;
        // The original mode without the bits that would grant other users or host programs more
        // than inside.
        let mode = Mode::from_bits_truncate(stat.mode & 0o755);
        rustix::fs::fchmod(&to, mode).map_err(|errno| self.on_host(errno.into()))?;
        self.time(target, name, stat.modified)
    }

    fn time(&self, target: &Dir, name: &RelativePath, modified: Timestamp) -> Result<()> {
        target.set_times(name, None, modified).map_err(|error| self.on_host(error.into()))
    }

    fn count(&mut self, bytes: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit_bytes {
            let limit = self.limit_bytes;
            return Err(Error::Invalid(format!("the files have more than {limit} bytes")));
        }
        Ok(())
    }

    /// Whether an entry was created.
    fn make(&self, made: io::Result<Option<()>>) -> Result<bool> {
        made.map(|made| made.is_some()).map_err(|error| self.on_host(error))
    }

    fn inside(&self, source: io::Error) -> Error {
        let path = self.inside.display().to_string();
        Error::File { operation: "collect", path, source }
    }

    fn on_host(&self, source: io::Error) -> Error {
        Error::Host { path: self.host.display().to_string(), source }
    }
}

/// An `O_PATH` descriptor of the entry with this name.
fn open_entry(source: &Dir, name: &RelativePath) -> io::Result<(OwnedFd, Stat)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(source.as_fd(), name.as_os_str(), flags, Mode::empty())?;
    let stat = Stat::of(&found)?;
    Ok((found, stat))
}

fn allow_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// `None` if the name already exists: listing a directory that changes may return a name twice.
fn allow_existing<T>(
    result: std::result::Result<T, stockade_bundle::beneath::Error>,
) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.errno() == Some(Errno::EXIST) => Ok(None),
        other => Ok(Some(other?)),
    }
}

fn relative(name: &[u8]) -> io::Result<RelativePath> {
    RelativePath::new(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
