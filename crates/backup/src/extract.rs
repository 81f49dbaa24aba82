//! Creates the entries of an archive below an empty directory.

use std::fs::Permissions;
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{AtFlags, FileType, Mode, XattrFlags};
use rustix::process::{getegid, geteuid};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;

use crate::entry::{Entry, Kind};
use crate::error::{Error, io_error};
use crate::manifest::Header;

/// The directory that entries are created in.
pub(crate) struct Target<'d> {
    root: &'d Dir,
    /// Directories, whose metadata is set when everything below them exists.
    directories: Vec<(Entry, Owner)>,
}

/// An owner and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl<'d> Target<'d> {
    pub(crate) fn new(root: &'d Dir) -> Self {
        Self { root, directories: Vec::new() }
    }

    /// Creates an entry with its content and, unless it is a directory, all of its metadata.
    pub(crate) fn create(
        &mut self,
        entry: &Entry,
        content: &mut impl Read,
        header: &Header,
    ) -> Result<(), Error> {
        let path = &entry.path;
        let owner = owner(entry, header);
        let failed = |error| Error::create(path, io_error(error));
        match entry.kind {
            Kind::File => return self.file(entry, content, owner),
            Kind::Directory => {
                self.root.mkdir(path, 0o700).map_err(failed)?;
                self.directories.push((entry.clone(), owner));
                return Ok(());
            }
            Kind::HardLink => return self.hard_link(entry),
            Kind::Symlink => self.root.symlink(&entry.target(), path).map_err(failed)?,
            Kind::Pipe => self.node(entry, FileType::Fifo)?,
            Kind::Deletion => self.node(entry, FileType::CharacterDevice)?,
        }
        self.set_owner(path, owner)?;
        if entry.kind != Kind::Symlink {
            self.set_mode(entry)?;
        }
        self.root.set_times(path, None, entry.modified).map_err(failed)
    }

    /// Sets the metadata of directories, the deepest first, and waits until everything is on disk.
    pub(crate) fn finish(self) -> Result<(), Error> {
        for (entry, owner) in self.directories.iter().rev() {
            let path = &entry.path;
            let failed = |error| Error::create(path, io_error(error));
            let directory = self.root.open_dir(path).map_err(failed)?;
            self.set_owner(path, *owner)?;
            set_attributes(directory.as_fd(), entry)?;
            self.root.chmod(path, entry.mode).map_err(failed)?;
            self.root.set_times(path, None, entry.modified).map_err(failed)?;
        }
        self.root.sync_file_system().map_err(Error::Directory)
    }

    fn file(&self, entry: &Entry, content: &mut impl Read, owner: Owner) -> Result<(), Error> {
        let path = &entry.path;
        let failed = |error| Error::create(path, io_error(error));
        let mut file = self.root.create_file(path, 0o600).map_err(failed)?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            // An error of the archive is another one than that of the file.
            let length = content.read(&mut buffer).map_err(Error::Read)?;
            if length == 0 {
                break;
            }
            let written = io::Write::write_all(&mut file, &buffer[..length]);
            written.map_err(|error| Error::create(path, error))?;
        }
        self.set_owner(path, owner)?;
        set_attributes(file.as_fd(), entry)?;
        // Last, because a change of the owner takes set-id bits away.
        let mode = file.set_permissions(Permissions::from_mode(entry.mode));
        mode.map_err(|error| Error::create(path, error))?;
        self.root.set_times(path, None, entry.modified).map_err(failed)
    }

    fn hard_link(&self, entry: &Entry) -> Result<(), Error> {
        let path = &entry.path;
        let first = RelativePath::new(entry.target())
            .map_err(|error| Error::invalid(format!("a link has an invalid target: {error}")))?;
        let (old, new) = (self.parent(&first)?, self.parent(path)?);
        let name = |path: &RelativePath| path.file_name().to_vec();
        let old = old.as_ref().unwrap_or(self.root);
        let new = new.as_ref().unwrap_or(self.root);
        rustix::fs::linkat(old, name(&first), new, name(path), AtFlags::empty())
            .map_err(|errno| Error::create(path, errno))
    }

    fn node(&self, entry: &Entry, kind: FileType) -> Result<(), Error> {
        let parent = self.parent(&entry.path)?;
        let parent = parent.as_ref().unwrap_or(self.root);
        let mode = Mode::from_bits_truncate(0o600);
        rustix::fs::mknodat(parent, entry.path.file_name().to_vec(), kind, mode, 0)
            .map_err(|errno| Error::create(&entry.path, errno))
    }

    /// The mode of what cannot be opened: the parent was opened without following a link.
    fn set_mode(&self, entry: &Entry) -> Result<(), Error> {
        let parent = self.parent(&entry.path)?;
        let parent = parent.as_ref().unwrap_or(self.root);
        let mode = Mode::from_bits_truncate(entry.mode);
        let name = entry.path.file_name().to_vec();
        rustix::fs::chmodat(parent, name, mode, AtFlags::empty())
            .map_err(|errno| Error::create(&entry.path, errno))
    }

    /// The directory of a path; `None` at the top.
    fn parent(&self, path: &RelativePath) -> Result<Option<Dir>, Error> {
        let open = |parent| {
            let failed = |error| Error::create(path, io_error(error));
            self.root.locate_dir(&parent).map_err(failed)
        };
        path.parent().map(open).transpose()
    }

    fn set_owner(&self, path: &RelativePath, owner: Owner) -> Result<(), Error> {
        let own = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        if owner == own {
            return Ok(());
        }
        let changed = self.root.chown(path, owner.uid, owner.gid);
        changed.map_err(|error| Error::create(path, io_error(error)))
    }
}

/// The owner here: files of the user who made the archive belong to the one who extracts it.
fn owner(entry: &Entry, header: &Header) -> Owner {
    let own = (geteuid().as_raw(), getegid().as_raw());
    Owner {
        uid: if entry.uid == header.uid { own.0 } else { entry.uid },
        gid: if entry.gid == header.gid { own.1 } else { entry.gid },
    }
}

fn set_attributes(file: std::os::fd::BorrowedFd<'_>, entry: &Entry) -> Result<(), Error> {
    for (name, value) in entry.attributes() {
        rustix::fs::fsetxattr(file, name, &value, XattrFlags::empty())
            .map_err(|errno| Error::create(&entry.path, errno))?;
    }
    Ok(())
}
