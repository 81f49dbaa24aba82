//! Writes a tree of files inside to a stream, while processes inside may change it. Each name is
//! opened individually, beneath its directory's descriptor and without following symbolic links,
//! and checked before it is read.

use std::io::{self, Read as _, Write};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Stat};
use stockade_core::access::{Level, Rules};
use stockade_core::sandbox::SECRETS_DIRECTORY;
use stockade_runtime::{Record, SkipReason, TREE_DEPTH, TreeProgress, TreeWriter};

use super::rights::Ids;
use super::{MAX_LISTED, access, special};

/// The file system of the directory of files with secrets (`statfs(2)`).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// The top directory of a tree that is to be written, open.
#[derive(Debug)]
pub struct OpenTree {
    pub(super) dir: Dir,
    pub(super) stat: Stat,
    pub(super) ids: Ids,
    pub(super) rules: Rules,
}

impl OpenTree {
    /// Writes the content of the tree. A directory that contains the name `mark` is skipped. What
    /// has been written is added to `progress`.
    ///
    /// # Errors
    /// Those of the stream, and of the top directory.
    pub fn pack(
        self,
        mark: Option<&[u8]>,
        to: impl Write,
        progress: &TreeProgress,
    ) -> io::Result<()> {
        let Self { dir, stat, ids, rules } = self;
        let tree = TreeWriter::new(io::BufWriter::with_capacity(64 << 10, to));
        let mut packing = Packing { ids, rules, mark, tree, progress };
        let names = ids.looking_up(stat.uid, || list(&dir))?;
        packing.children(&dir, &stat, names, 0)?;
        packing.tree.finish()
    }
}

struct Packing<'a, W: Write> {
    ids: Ids,
    rules: Rules,
    mark: Option<&'a [u8]>,
    tree: TreeWriter<W>,
    progress: &'a TreeProgress,
}

/// An entry that was opened.
enum Opened {
    Directory(Dir, Vec<RelativePath>),
    File(std::fs::File),
    Link(Vec<u8>),
    Special,
    Secrets,
}

impl<W: Write> Packing<'_, W> {
    fn children(
        &mut self,
        dir: &Dir,
        above: &Stat,
        names: Vec<RelativePath>,
        depth: usize,
    ) -> io::Result<()> {
        if depth > TREE_DEPTH {
            let text = format!("the tree is deeper than {TREE_DEPTH} directories");
            return Err(io::Error::other(text));
        }
        for name in names {
            self.entry(dir, above, name, depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: &Dir,
        above: &Stat,
        name: RelativePath,
        depth: usize,
    ) -> io::Result<()> {
        let (opened, stat) = match self.open(dir, above, &name) {
            Ok(opened) => opened,
            Err(error) => {
                let reason = match error.kind() {
                    io::ErrorKind::PermissionDenied => SkipReason::Unreadable,
                    _ => SkipReason::Special,
                };
                return self.tree.record(&Record::Skipped { name, reason });
            }
        };
        let mode = stat.mode & 0o777;
        match opened {
            Opened::Directory(below, names) => {
                self.progress.add(1, 0);
                self.tree.record(&Record::Enter { name, mode })?;
                self.children(&below, &stat, names, depth + 1)?;
                self.tree.record(&Record::Leave)
            }
            Opened::File(file) => {
                let modified = (stat.modified.seconds, stat.modified.nanoseconds);
                self.tree.record(&Record::File { name, mode, modified })?;
                // Bytes that are appended meanwhile are left out.
                let length = self.tree.content(&mut file.take(stat.size))?;
                // A file that cannot be read to its end is marked as such.
                self.progress.add(1, length.unwrap_or_default());
                Ok(())
            }
            Opened::Link(target) => {
                self.progress.add(1, 0);
                self.tree.record(&Record::Link { name, target })
            }
            Opened::Secrets => {
                self.tree.record(&Record::Skipped { name, reason: SkipReason::SecretFile })
            }
            Opened::Special => {
                self.tree.record(&Record::Skipped { name, reason: SkipReason::Special })
            }
        }
    }

    fn open(&self, dir: &Dir, above: &Stat, name: &RelativePath) -> io::Result<(Opened, Stat)> {
        let (found, stat) = self.ids.looking_up(above.uid, || open_entry(dir, name))?;
        access::check(&self.rules, Level::Read, found.as_fd())?;
        // A kernel file system can only be at a mount point.
        if stat.mount != above.mount && special::kernel_file_system(found.as_fd())?.is_some() {
            return Ok((Opened::Special, stat));
        }
        let opened = match stat.kind {
            FileKind::Directory if is_secrets(name, &stat, &found)? => Opened::Secrets,
            FileKind::Directory => {
                let open = || Ok(Dir::from_fd(found).reopen()?);
                let below = self.ids.opening(&stat, 0o005, open)?;
                let names = self.ids.looking_up(stat.uid, || list(&below))?;
                let is_marked =
                    self.mark.is_some_and(|mark| names.iter().any(|name| name.as_bytes() == mark));
                if is_marked { Opened::Special } else { Opened::Directory(below, names) }
            }
            FileKind::File => {
                let open = || special::open_file(found.as_fd(), &stat);
                Opened::File(self.ids.opening(&stat, 0o004, open)?)
            }
            FileKind::Symlink => {
                Opened::Link(rustix::fs::readlinkat(&found, "", Vec::new())?.into_bytes())
            }
            FileKind::CharacterDevice | FileKind::Other => Opened::Special,
        };
        Ok((opened, stat))
    }
}

/// Whether an entry is the mounted directory of files with secrets.
pub(super) fn is_secrets(name: &RelativePath, stat: &Stat, found: &OwnedFd) -> io::Result<bool> {
    let own = SECRETS_DIRECTORY.rsplit('/').next().unwrap_or_default();
    // Its owner inside can change its mode.
    Ok(stat.mount_point
        && name.as_bytes() == own.as_bytes()
        && rustix::fs::fstatfs(found)?.f_type == TMPFS_MAGIC)
}

/// The names of a directory, sorted.
fn list(dir: &Dir) -> io::Result<Vec<RelativePath>> {
    let entries = dir.entries_up_to(MAX_LISTED)?;
    let entries = entries.ok_or_else(|| {
        io::Error::other(format!("a directory contains more than {MAX_LISTED} names"))
    })?;
    let names = entries.into_iter().map(|(name, _)| RelativePath::new(name));
    let mut names: Vec<_> = names.collect::<Result<_, _>>().map_err(io::Error::other)?;
    names.sort();
    Ok(names)
}

/// An `O_PATH` descriptor of the entry with this name.
fn open_entry(dir: &Dir, name: &RelativePath) -> io::Result<(OwnedFd, Stat)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(dir.as_fd(), name.as_os_str(), flags, Mode::empty())?;
    let stat = Stat::of(&found)?;
    Ok((found, stat))
}
