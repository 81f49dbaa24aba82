//! Writes one file: a temporary file in the same directory receives the content and is renamed to
//! the target when it is complete.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Gid, Mode, OFlags, Uid};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Rename, Stat};
use stockade_core::sandbox::User;

use super::access;
use super::directories;
use super::entry::{DirEntryRef, Scope};
use super::rights::Ids;
use super::special::expect_file;
use super::special::own_path;
use stockade_runtime::WriteOptions;

/// Writes a file and returns its length in bytes.
pub(super) fn write(
    scope: Scope<'_>,
    ids: Ids,
    user: User,
    path: &Path,
    content: &mut dyn io::Read,
    options: WriteOptions,
) -> io::Result<u64> {
    let mut writing = ids.as_user(user, || Writing::start(scope, ids, path, options))?;
    let length = io::copy(content, &mut writing.file)?;
    writing.set_attributes(options)?;
    ids.as_user(user, || writing.finish())?;
    Ok(length)
}

/// A file that is being written. Dropping this value before it is finished removes the file.
struct Writing {
    ids: Ids,
    entry: DirEntryRef,
    temporary: Option<RelativePath>,
    file: File,
    /// The file that is replaced.
    old: Option<Stat>,
}

impl Writing {
    /// All checks happen here, before any content is read.
    fn start(scope: Scope<'_>, ids: Ids, path: &Path, options: WriteOptions) -> io::Result<Self> {
        if let Some(parent) = path.parent().filter(|_| options.make_parents) {
            directories::make_directories(scope, parent, 0o755)?;
        }
        let entry = DirEntryRef::behind_links(scope.root, path)?;
        access::may_change(scope.rules, &entry)?;
        let old = match entry.stat()? {
            None => None,
            Some(_) => Some(writable(&entry)?),
        };
        let chance = RandomState::new().build_hasher().finish();
        let temporary =
            RelativePath::new(format!(".stockade-{chance:016x}")).map_err(io::Error::other)?;
        let file = entry.parent.create_file(&temporary, 0o600)?;
        Ok(Self { ids, entry, temporary: Some(temporary), file, old })
    }

    /// Sets the file's mode, and the owner of the replaced file, with the caller's rights. The
    /// constructor has checked that this owner lets the user write.
    fn set_attributes(&self, options: WriteOptions) -> io::Result<()> {
        let mode = match self.old {
            None => options.mode & 0o7777,
            Some(old) => {
                let new = Stat::of(&self.file)?;
                if (new.uid, new.gid) != (old.uid, old.gid) {
                    let (uid, gid) = (Uid::from_raw(old.uid), Gid::from_raw(old.gid));
                    rustix::fs::fchown(&self.file, Some(uid), Some(gid))?;
                }
                old.mode & 0o1777
            }
        };
        Ok(rustix::fs::fchmod(&self.file, Mode::from_bits_truncate(mode))?)
    }

    fn finish(&mut self) -> io::Result<()> {
        let DirEntryRef { parent, name } = &self.entry;
        if let Some(temporary) = &self.temporary {
            parent.rename(temporary, parent, name, Rename::Replace)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The error cannot be reported here; a remaining file belongs to the user.
            let _ = self.ids.as_owner(|| Ok(self.entry.parent.remove_file(temporary)?));
        }
    }
}

/// The metadata of the entry if it is a regular file that this thread's user may write to. The file
/// is not opened: an overlay would copy all of it.
pub(super) fn writable(entry: &DirEntryRef) -> io::Result<Stat> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = entry.name.as_os_str();
    let found = rustix::fs::openat(entry.parent.as_fd(), name, flags, Mode::empty())?;
    let stat = Stat::of(&found)?;
    expect_file(stat.kind)?;
    rustix::fs::accessat(CWD, own_path(found.as_fd()), Access::WRITE_OK, AtFlags::EACCESS)?;
    Ok(stat)
}
