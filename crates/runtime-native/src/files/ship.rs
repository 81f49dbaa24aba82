//! Copies a directory of the host into a sandbox. The directory belongs to the caller and is read
//! with the caller's rights; everything inside is created with the ordinary user's rights.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use stockade_bundle::beneath::{self, Dir, FileKind, Stat};
use stockade_bundle::{RelativePath, content};
use stockade_jail::with_caller_rights;

use super::entry::Scope;
use super::rights::Ids;
use super::{access, directories, failed, special};
use stockade_runtime::{Error, Result, SandboxPath};

/// The maximal directory depth: each level keeps three descriptors open.
const MAX_DEPTH: usize = 128;
/// How often a name is removed that a process inside creates again.
const ATTEMPTS: usize = 64;

/// See [`Root::ship`](super::Root::ship).
pub(super) fn ship(scope: Scope<'_>, ids: Ids, from: &Path, to: &SandboxPath) -> Result<()> {
    let mut shipping = Shipping { host: from.to_owned(), inside: to.as_path().to_owned() };
    let source = Dir::open(from).map_err(|error| shipping.on_host(error.into()))?;
    let work = || {
        let target = directories::make_directories(scope, to.as_path(), 0o755).and_then(|target| {
            access::may_fill(scope.rules, target.as_fd())?;
            Ok(Dir::from_fd(target))
        });
        let target = match target {
            Ok(target) => target,
            Err(error) => return Ok(Err(shipping.inside(error))),
        };
        Ok(shipping.children(&source, &target, 0))
    };
    // Only the switch to the user's ids fails here.
    ids.as_user(ids.user, work).map_err(failed("ship to", to))?
}

struct Shipping {
    /// The current path on the host and inside, for messages.
    host: PathBuf,
    inside: PathBuf,
}

impl Shipping {
    fn children(&mut self, source: &Dir, target: &Dir, depth: usize) -> Result<()> {
        if depth == MAX_DEPTH {
            let path = self.host.display();
            return Err(Error::Invalid(format!("{path} is deeper than {MAX_DEPTH} directories")));
        }
        special::refuse_kernel(target.as_fd()).map_err(|error| self.inside(error))?;
        for (name, _) in self.host(|| source.entries())? {
            let name = RelativePath::new(name)
                .map_err(|error| self.on_host(io::Error::new(io::ErrorKind::InvalidData, error)))?;
            self.host.push(name.as_os_str());
            self.inside.push(name.as_os_str());
            self.entry(source, target, &name, depth)?;
            self.host.pop();
            self.inside.pop();
        }
        Ok(())
    }

    fn entry(
        &mut self,
        source: &Dir,
        target: &Dir,
        name: &RelativePath,
        depth: usize,
    ) -> Result<()> {
        let Some(stat) = self.host(|| source.stat(name))? else {
            return Err(self.on_host(Errno::NOENT.into()));
        };
        let mode = Mode::from_bits_truncate(stat.mode & 0o777);
        match stat.kind {
            FileKind::Directory => {
                let below = self.host(|| source.open_dir(name))?;
                let (made, new) = self.directory(target, name)?;
                self.children(&below, &made, depth + 1)?;
                if new {
                    target.chmod(name, mode.as_raw_mode()).map_err(|e| self.inside(e.into()))?;
                }
                Ok(())
            }
            FileKind::File => {
                let from = self.host(|| source.open_file(name))?;
                let to = self.replace(target, name, || target.create_file(name, 0o600))?;
                let copied = content::copy(&from, &to, stat.size, u64::MAX)
                    .and_then(|_| Ok(rustix::fs::fchmod(&to, mode)?));
                copied.map_err(|error| self.inside(error))?;
                self.time(target, name, &stat)
            }
            FileKind::Symlink => {
                let link = self.host(|| source.read_link(name))?;
                self.replace(target, name, || target.symlink(&link, name))
            }
            FileKind::CharacterDevice | FileKind::Other => {
                let path = self.host.display();
                Err(Error::Invalid(format!("{path} is not a file, directory or link")))
            }
        }
    }

    /// Creates or opens a directory. Returns whether it is new.
    fn directory(&self, target: &Dir, name: &RelativePath) -> Result<(Dir, bool)> {
        let new = match target.mkdir(name, 0o700) {
            Ok(()) => true,
            Err(error) if error.errno() == Some(Errno::EXIST) => false,
            Err(error) => return Err(self.inside(error.into())),
        };
        let made = target.locate_dir(name).map_err(|error| match error {
            // A symbolic link to a directory does not count as a directory.
            beneath::Error::ThroughLink { .. } => self.inside(Errno::NOTDIR.into()),
            error => self.inside(error.into()),
        })?;
        Ok((made, new))
    }

    /// Creates a name, and replaces a file or symbolic link that has it.
    fn replace<T>(
        &self,
        target: &Dir,
        name: &RelativePath,
        make: impl Fn() -> std::result::Result<T, beneath::Error>,
    ) -> Result<T> {
        let make = || {
            for _ in 0..ATTEMPTS {
                match make() {
                    Err(error) if error.errno() == Some(Errno::EXIST) => {}
                    other => return Ok(other?),
                }
                match target.stat(name)? {
                    Some(stat) if stat.mount_point => return Err(Errno::BUSY.into()),
                    Some(_) => target.remove_file(name)?,
                    None => {}
                }
            }
            Err(Errno::EXIST.into())
        };
        make().map_err(|error| self.inside(error))
    }

    fn time(&self, target: &Dir, name: &RelativePath, stat: &Stat) -> Result<()> {
        target.set_times(name, None, stat.modified).map_err(|error| self.inside(error.into()))
    }

    /// Reads from the host with the caller's rights.
    fn host<T>(&self, read: impl FnOnce() -> std::result::Result<T, beneath::Error>) -> Result<T> {
        with_caller_rights(|| Ok(read()?)).map_err(|error| self.on_host(error))
    }

    fn on_host(&self, source: io::Error) -> Error {
        Error::Host { path: self.host.display().to_string(), source }
    }

    fn inside(&self, source: io::Error) -> Error {
        let path = self.inside.display().to_string();
        Error::File { operation: "ship to", path, source }
    }
}
