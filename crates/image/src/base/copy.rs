//! Copying the system directories: first without a target, which counts, then with one.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind, Stat, Timestamp};
use stockade_bundle::content;

use super::{Error, Progress, io_error};

/// The most levels of directories: each holds two descriptors while it is copied.
const MAX_DEPTH: usize = 200;
/// The permission bits that a copy keeps: all but set-id.
const KEPT_MODE: u32 = 0o1777;
/// After how many files the progress is reported.
const REPORT_EVERY: u64 = 256;
/// The size that a directory or an inode counts for.
const ENTRY_BYTES: u64 = 4096;

/// How much a copy consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// Files, links and directories.
    pub entries: u64,
    /// Their size on disk in bytes.
    pub bytes: u64,
    /// What was left out because the caller cannot read it.
    pub unreadable: u64,
    /// Devices, sockets and pipes, which were left out.
    pub special: u64,
}

/// A copy that is being made.
struct Target<'a> {
    root: &'a Dir,
    all: Content,
    progress: &'a mut dyn FnMut(Progress),
}

/// One pass over the system directories.
struct Pass<'a> {
    target: Option<Target<'a>>,
    content: Content,
    /// Where the first copy of a file with several names is.
    links: HashMap<(u64, u64), RelativePath>,
    /// A file to find out whether the file system can share content.
    sample: Option<File>,
    keeps_owners: bool,
}

/// What there is to copy, and a file of it.
pub(super) fn count(tops: &[&Path]) -> Result<(Content, Option<File>), Error> {
    let mut pass = Pass::new(None);
    pass.tops(tops)?;
    Ok((pass.content, pass.sample))
}

/// Copies the directories to the empty directory `root`.
pub(super) fn copy(
    tops: &[&Path],
    root: &Dir,
    all: Content,
    progress: &mut dyn FnMut(Progress),
) -> Result<Content, Error> {
    let mut pass = Pass::new(Some(Target { root, all, progress }));
    pass.tops(tops)?;
    Ok(pass.content)
}

impl<'a> Pass<'a> {
    fn new(target: Option<Target<'a>>) -> Self {
        Self {
            target,
            content: Content::default(),
            links: HashMap::new(),
            sample: None,
            keeps_owners: rustix::process::geteuid().is_root(),
        }
    }

    fn tops(&mut self, tops: &[&Path]) -> Result<(), Error> {
        for top in tops {
            // A top that is a link is one inside, too; its target is another top or is not visible.
            match Stat::of_host(top) {
                _ if top.is_symlink() => continue,
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(errno) => return Err(io_error("inspect a system directory")(errno.into())),
                Ok(stat) => {
                    let from = Dir::open(top)?;
                    let path = top.strip_prefix("/").unwrap_or(top);
                    let path = RelativePath::new(path.as_os_str().as_encoded_bytes());
                    let path = path.map_err(|error| {
                        io_error("name a system directory")(std::io::Error::other(error))
                    })?;
                    self.parents(&path)?;
                    self.directory(&from, &stat, &path, 0)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the directories above a top of several names.
    fn parents(&self, path: &RelativePath) -> Result<(), Error> {
        let Some(target) = &self.target else { return Ok(()) };
        let path = Path::new(path.as_os_str());
        let above: Vec<_> = path.ancestors().skip(1).filter(|p| *p != Path::new("")).collect();
        for directory in above.into_iter().rev() {
            let directory = RelativePath::new(directory.as_os_str().as_encoded_bytes());
            let directory = directory.map_err(|error| {
                io_error("name a system directory")(std::io::Error::other(error))
            })?;
            match target.root.mkdir(&directory, 0o755) {
                Err(error) if error.errno() == Some(Errno::EXIST) => {}
                made => {
                    made?;
                    target.root.chmod(&directory, 0o755)?;
                }
            }
        }
        Ok(())
    }

    /// Copies an open directory to a path of the copy.
    fn directory(
        &mut self,
        from: &Dir,
        stat: &Stat,
        path: &RelativePath,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep(Path::new("/").join(path.as_os_str())));
        }
        self.add(ENTRY_BYTES);
        let to = match &self.target {
            None => None,
            Some(target) => {
                target.root.mkdir(path, 0o700)?;
                Some(target.root.open_dir(path)?)
            }
        };
        for (name, kind) in from.entries()? {
            let named = |error| io_error("name a file")(std::io::Error::other(error));
            let name = RelativePath::new(name).map_err(named)?;
            let whole = Path::new(path.as_os_str()).join(name.as_os_str());
            let whole = RelativePath::new(whole.as_os_str().as_encoded_bytes()).map_err(named)?;
            let found = from.stat(&name)?.filter(|found| found.kind == kind);
            // It was removed or replaced; then the state of the host has changed.
            let Some(found) = found else { continue };
            match found.kind {
                FileKind::Directory if !self.may_read(&found) => self.content.unreadable += 1,
                FileKind::Directory => match from.open_dir(&name) {
                    Ok(below) => self.directory(&below, &found, &whole, depth + 1)?,
                    Err(error) => self.skip(error)?,
                },
                FileKind::File => self.file(from, (&name, &found), to.as_ref(), &whole)?,
                FileKind::Symlink => self.link(from, (&name, &found), to.as_ref())?,
                FileKind::CharacterDevice | FileKind::Other => self.content.special += 1,
            }
        }
        if let (Some(to), Some(target)) = (&to, &self.target) {
            if self.keeps_owners {
                accept_foreign_ids(to.chown_self(stat.uid, stat.gid))?;
            }
            target.root.chmod(path, stat.mode & KEPT_MODE | own_bits(self.keeps_owners, 0o500))?;
            target.root.set_times(path, None, stat.modified)?;
        }
        Ok(())
    }

    /// Whether a sandbox could use it: what only some users of the host may read is not copied, even
    /// if the caller may.
    fn may_read(&self, stat: &Stat) -> bool {
        !self.keeps_owners || stat.mode & 0o005 != 0
    }

    fn file(
        &mut self,
        from: &Dir,
        (name, stat): (&RelativePath, &Stat),
        to: Option<&Dir>,
        whole: &RelativePath,
    ) -> Result<(), Error> {
        let id = (stat.device, stat.inode);
        if let Some(first) = self.links.get(&id) {
            if let (Some(to), Some(target)) = (to, &self.target) {
                let (root, first) = (target.root.as_fd(), first.as_os_str());
                rustix::fs::linkat(root, first, to, name.as_os_str(), AtFlags::empty())
                    .map_err(|errno| io_error("link a file")(errno.into()))?;
            }
            return Ok(());
        }
        if !self.may_read(stat) {
            self.content.unreadable += 1;
            return Ok(());
        }
        let source = match from.open_file(name) {
            Ok(source) => source,
            Err(error) => return self.skip(error),
        };
        let size = rustix::fs::fstat(&source)
            .map_err(|errno| io_error("inspect a file")(errno.into()))?
            .st_blocks
            .cast_unsigned()
            .saturating_mul(512);
        self.add(size.max(ENTRY_BYTES));
        if stat.links > 1 {
            self.links.insert(id, whole.clone());
        }
        if let Some(to) = to {
            let failed = io_error("copy a file");
            let copy = to.create_file(name, 0o600)?;
            content::copy(&source, &copy, stat.size, u64::MAX).map_err(failed)?;
            self.finish(&copy, stat).map_err(|errno| io_error("complete a file")(errno.into()))?;
        } else if self.sample.is_none() && stat.size > 0 {
            self.sample = Some(source);
        }
        Ok(())
    }

    /// Sets the owner, the mode and the times of a copied file.
    fn finish(&self, copy: &File, stat: &Stat) -> Result<(), Errno> {
        if self.keeps_owners {
            let (user, group) = (Uid::from_raw(stat.uid), Gid::from_raw(stat.gid));
            match rustix::fs::fchown(copy, Some(user), Some(group)) {
                Err(Errno::INVAL) => {}
                changed => changed?,
            }
        }
        let mode = stat.mode & KEPT_MODE | own_bits(self.keeps_owners, 0o400);
        rustix::fs::fchmod(copy, Mode::from_raw_mode(mode))?;
        rustix::fs::futimens(copy, &times(stat.modified))
    }

    fn link(
        &mut self,
        from: &Dir,
        (name, stat): (&RelativePath, &Stat),
        to: Option<&Dir>,
    ) -> Result<(), Error> {
        self.add(ENTRY_BYTES);
        let Some(to) = to else { return Ok(()) };
        to.symlink(&from.read_link(name)?, name)?;
        if self.keeps_owners {
            accept_foreign_ids(to.chown(name, stat.uid, stat.gid))?;
        }
        Ok(to.set_times(name, None, stat.modified)?)
    }

    /// Leaves out what the caller cannot read, or what is gone.
    fn skip(&mut self, error: beneath::Error) -> Result<(), Error> {
        match error.errno() {
            Some(Errno::ACCESS | Errno::PERM) => self.content.unreadable += 1,
            Some(Errno::NOENT | Errno::NOTDIR) => {}
            _ if matches!(error, beneath::Error::NotRegular { .. }) => {}
            _ => return Err(error.into()),
        }
        Ok(())
    }

    fn add(&mut self, bytes: u64) {
        self.content.entries += 1;
        self.content.bytes = self.content.bytes.saturating_add(bytes);
        let done = self.content;
        if let Some(target) = &mut self.target
            && done.entries.is_multiple_of(REPORT_EVERY)
        {
            (target.progress)(Progress::Copying { done, all: target.all });
        }
    }
}

/// The bits without which an ordinary user could not read the copy, whose owner he is.
const fn own_bits(keeps_owners: bool, bits: u32) -> u32 {
    if keeps_owners { 0 } else { bits }
}

/// Root of a user namespace cannot give a file to a user who is not in it.
fn accept_foreign_ids(result: Result<(), beneath::Error>) -> Result<(), beneath::Error> {
    match result {
        Err(error) if error.errno() == Some(Errno::INVAL) => Ok(()),
        other => other,
    }
}

fn times(modified: Timestamp) -> Timestamps {
    let time = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

/// Whether the file system of a directory can share the content of a file.
pub(super) fn can_share(sample: Option<&File>, scratch: &File) -> bool {
    sample.is_some_and(|sample| rustix::fs::ioctl_ficlone(scratch, sample).is_ok())
}

/// The path of a directory of the host in a copy.
pub(super) fn below(root: &Path, inside: &Path) -> PathBuf {
    root.join(inside.strip_prefix("/").unwrap_or(inside))
}
