//! The copy of a directory of the host in a sandbox elsewhere: what it was at the beginning is kept here as
//! hashes, and compared with what it is at the end. What comes back is not trusted: it only is compared.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind};
use stockade_runtime::{Error, Result};

use crate::records::host_error;

/// The rights of an owner.
const OWNER: u32 = 0o700;

/// What a file was at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Initial {
    Directory,
    File { mode: u32, hash: String },
    Link(Vec<u8>),
}

/// All files of a copy at its beginning, by their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base(BTreeMap<Vec<u8>, Initial>);

impl Base {
    /// What an archive that [`pack`](crate::pack) has made contains.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn of(archive: &File) -> io::Result<Self> {
        let mut archive = archive.try_clone()?;
        archive.rewind()?;
        let mut base = BTreeMap::new();
        let mut entries = tar::Archive::new(io::BufReader::new(&archive));
        for entry in entries.entries()? {
            let mut entry = entry?;
            let path = entry.path_bytes().into_owned();
            let path = path.strip_suffix(b"/").unwrap_or(&path).to_vec();
            let initial = match entry.header().entry_type() {
                tar::EntryType::Directory => Initial::Directory,
                tar::EntryType::Symlink => {
                    Initial::Link(entry.link_name_bytes().unwrap_or_default().into_owned())
                }
                _ => {
                    let mode = entry.header().mode()? & 0o777;
                    Initial::File { mode, hash: hash(&mut entry)? }
                }
            };
            base.insert(path, initial);
        }
        (&archive).rewind()?;
        Ok(Self(base))
    }

    /// Writes it to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, to: &Path) -> Result<()> {
        // Paths are bytes, which no key of an object of JSON can be.
        let text = serde_json::to_vec(&self.0.iter().collect::<Vec<_>>());
        let text = text.map_err(|error| host_error(to, error.into()))?;
        fs::write(to, text).map_err(|error| host_error(to, error))
    }

    /// Reads a file that [`Base::write`] has written.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub(crate) fn read(from: &Path) -> Result<Self> {
        let text = fs::read(from).map_err(|error| host_error(from, error))?;
        let pairs: Vec<_> =
            serde_json::from_slice(&text).map_err(|error| host_error(from, error.into()))?;
        let base: BTreeMap<Vec<u8>, Initial> = pairs.into_iter().collect();
        for path in base.keys() {
            RelativePath::new(path.clone()).map_err(|error| Error::Invalid(error.to_string()))?;
        }
        Ok(Self(base))
    }

    /// Removes from a copy what has not changed, and lists what is missing in it.
    ///
    /// # Errors
    /// A file of the copy cannot be read or removed.
    pub(crate) fn leave_changes(&self, copy: &Path) -> Result<Vec<RelativePath>> {
        let failed = |error| copy_error(copy, error);
        let opened = Dir::open(copy).map_err(failed)?;
        // The owner may have taken the rights to its own directories from itself.
        let mut closed: Vec<(RelativePath, u32)> = Vec::new();
        let removed = self.compare(&opened, &mut closed);
        for (directory, mode) in closed.iter().rev() {
            opened.chmod(directory, *mode).map_err(failed)?;
        }
        removed.map_err(failed)
    }

    /// Compares a copy; directories that were opened for that are added to `closed`, with their modes.
    fn compare(
        &self,
        copy: &Dir,
        closed: &mut Vec<(RelativePath, u32)>,
    ) -> std::result::Result<Vec<RelativePath>, beneath::Error> {
        let mut removed: Vec<RelativePath> = Vec::new();
        // A directory comes before what is in it.
        for (path, initial) in &self.0 {
            // `Base::read` has refused others.
            let Ok(relative) = RelativePath::new(path.clone()) else { continue };
            if removed.iter().any(|above| relative.is_within(above)) {
                continue;
            }
            // What is above is a directory, or the path was removed with it.
            let Some(found) = copy.stat(&relative)? else {
                removed.push(relative);
                continue;
            };
            let is_same = match (initial, found.kind) {
                (Initial::Directory, FileKind::Directory) => {
                    if found.mode & OWNER != OWNER {
                        copy.chmod(&relative, found.mode | OWNER)?;
                        closed.push((relative, found.mode));
                    }
                    continue;
                }
                (Initial::Link(target), FileKind::Symlink) => copy.read_link(&relative)? == *target,
                (Initial::File { mode, hash: before }, FileKind::File)
                    if found.mode & 0o777 == *mode =>
                {
                    copy.chmod(&relative, found.mode | 0o400)?;
                    let now = copy.open_file(&relative).map(|mut file| hash(&mut file))?;
                    copy.chmod(&relative, found.mode)?;
                    let now = now.map_err(|source| beneath::Error::Io {
                        operation: "read",
                        path: relative.quoted(),
                        source,
                    })?;
                    now == *before
                }
                _ => false,
            };
            if is_same {
                copy.remove_file(&relative)?;
            } else if *initial == Initial::Directory || found.kind == FileKind::Directory {
                removed.push(relative);
            }
        }
        Ok(removed)
    }
}

/// Removes what is at a path of a copy, unless the path is reached only through a link, which leads to
/// something else than the copy.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove_of_copy(copy: &Path, path: &Path) -> Result<()> {
    let failed = |error| copy_error(copy, error);
    let relative = RelativePath::new(path.as_os_str().as_bytes())
        .map_err(|error| Error::Invalid(error.to_string()))?;
    match Dir::open(copy).map_err(failed)?.remove_tree(&relative) {
        Err(beneath::Error::ThroughLink { .. }) => Ok(()),
        Err(error) if error.kind() == Some(io::ErrorKind::NotADirectory) => Ok(()),
        removed => removed.map_err(failed),
    }
}

/// The error of a file of a copy.
fn copy_error(copy: &Path, error: beneath::Error) -> Error {
    match error {
        beneath::Error::Io { source, path, .. } => host_error(&copy.join(path), source),
        other => Error::Invalid(other.to_string()),
    }
}

fn hash(content: &mut impl io::Read) -> io::Result<String> {
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match content.read(&mut buffer)? {
            0 => break,
            length => digest.update(&buffer[..length]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Removes what is at a path of the host, whatever it is now and whatever its modes are.
///
/// # Errors
/// It cannot be removed.
pub fn remove_all(path: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(host_error(path, io::ErrorKind::InvalidInput.into()));
    };
    let failed = |error| copy_error(parent, error);
    let directory = match Dir::open(parent) {
        Err(error) if error.kind() == Some(io::ErrorKind::NotFound) => return Ok(()),
        opened => opened.map_err(failed)?,
    };
    let name =
        RelativePath::new(name.as_bytes()).map_err(|error| Error::Invalid(error.to_string()))?;
    directory.remove_tree(&name).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;
    use crate::{pack, unpack};

    #[test]
    fn only_what_has_changed_is_left_of_a_copy() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        fs::create_dir_all(path("from/below/deep")).unwrap();
        for name in ["same", "changed", "mode", "gone", "below/deep/file", "kind"] {
            fs::write(path("from").join(name), name).unwrap();
        }
        symlink("same", path("from/link")).unwrap();
        let base = Base::of(&pack(&path("from"), |_| false).unwrap()).unwrap();
        base.write(&path("base")).unwrap();
        let archive = pack(&path("from"), |_| false).unwrap();
        unpack(archive, 0, &path("to"), 1 << 20).unwrap();
        fs::write(path("to/changed"), "other").unwrap();
        fs::write(path("to/new"), "new").unwrap();
        fs::set_permissions(path("to/mode"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_file(path("to/gone")).unwrap();
        fs::remove_dir_all(path("to/below")).unwrap();
        fs::remove_file(path("to/kind")).unwrap();
        fs::create_dir(path("to/kind")).unwrap();
        let base = Base::read(&path("base")).unwrap();
        let removed = base.leave_changes(&path("to")).unwrap();
        let removed: Vec<_> = removed.iter().map(RelativePath::as_bytes).collect();
        assert_eq!(removed, [&b"below"[..], b"gone", b"kind"]);
        let mut left: Vec<_> = fs::read_dir(path("to"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["changed", "kind", "mode", "new"]);
    }

    #[test]
    fn a_closed_directory_is_compared_and_keeps_its_mode() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        fs::create_dir_all(path("from/closed/below")).unwrap();
        fs::write(path("from/closed/below/same"), "").unwrap();
        fs::write(path("from/closed/below/gone"), "").unwrap();
        let base = Base::of(&pack(&path("from"), |_| false).unwrap()).unwrap();
        fs::remove_file(path("from/closed/below/gone")).unwrap();
        unpack(pack(&path("from"), |_| false).unwrap(), 0, &path("to"), 1 << 20).unwrap();
        for closed in ["to/closed/below", "to/closed"] {
            fs::set_permissions(path(closed), fs::Permissions::from_mode(0o000)).unwrap();
        }
        let removed = base.leave_changes(&path("to")).unwrap();
        assert_eq!(removed.len(), 1);
        assert_eq!(removed[0].as_bytes(), b"closed/below/gone");
        for closed in ["to/closed", "to/closed/below"] {
            assert_eq!(fs::metadata(path(closed)).unwrap().mode() & 0o777, 0, "{closed}");
            fs::set_permissions(path(closed), fs::Permissions::from_mode(0o700)).unwrap();
        }
        assert_eq!(fs::read_dir(path("to/closed/below")).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_removed_through_a_link_of_a_copy() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        fs::create_dir_all(path("own/cache")).unwrap();
        fs::write(path("own/cache/file"), "").unwrap();
        fs::create_dir_all(path("copy/real/cache")).unwrap();
        symlink(path("own"), path("copy/link")).unwrap();
        symlink(path("own/cache"), path("copy/cache")).unwrap();
        fs::write(path("copy/file"), "").unwrap();
        for gone in
            ["link/cache", "link/cache/file", "cache", "file/cache", "real/cache", "no/cache"]
        {
            remove_of_copy(&path("copy"), OsStr::new(gone).as_ref()).unwrap();
        }
        assert!(path("own/cache/file").exists());
        assert!(path("copy/link").is_symlink() && path("copy/file").exists());
        assert!(!path("copy/cache").is_symlink() && !path("copy/real/cache").exists());
    }
}
