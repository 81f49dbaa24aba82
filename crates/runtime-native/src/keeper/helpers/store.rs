//! Storing new sandboxes on the disk, so that they outlast a power failure of the host.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fsync, openat};
use rustix::io::Errno;

use crate::keeper::record::FILES;

/// Syncs the records of sandboxes and their directories. A sandbox that was removed meanwhile is
/// skipped.
pub(super) fn store(sandboxes: &Path, names: &[&OsStr]) -> io::Result<()> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = rustix::fs::open(sandboxes, directory, Mode::empty())?;
    for name in names {
        let dir = match openat(&parent, *name, directory, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        for file_name in FILES {
            match openat(&dir, file_name, file, Mode::empty()) {
                Err(Errno::NOENT) => {}
                other => fsync(other?)?,
            }
        }
        fsync(&dir)?;
    }
    Ok(fsync(&parent)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_stored_and_what_is_gone_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("box")).unwrap();
        std::fs::write(dir.path().join("box").join(FILES[0]), "{}").unwrap();
        store(dir.path(), &["box".as_ref(), "gone".as_ref()]).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(store(dir.path(), &["file".as_ref()]).is_err());
    }
}
