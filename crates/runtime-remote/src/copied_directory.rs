//! The copy of a directory of the host in a sandbox elsewhere: what it was at the beginning is kept here as
//! hashes, and compared with what it is at the end. What comes back is not trusted: it only is compared.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stockade_bundle::RelativePath;
use stockade_runtime::{Error, Result};

use crate::records::host_error;

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
        Ok(Self(pairs.into_iter().collect()))
    }

    /// Removes from a copy what has not changed, and lists what is missing in it.
    ///
    /// # Errors
    /// A file of the copy cannot be read or removed.
    pub(crate) fn leave_changes(&self, copy: &Path) -> Result<Vec<RelativePath>> {
        let mut removed: Vec<RelativePath> = Vec::new();
        // A directory comes before what is in it.
        for (path, initial) in &self.0 {
            let relative = RelativePath::new(path.clone())
                .map_err(|error| Error::Invalid(error.to_string()))?;
            if removed.iter().any(|above| relative.is_within(above)) {
                continue;
            }
            let there = copy.join(OsStr::from_bytes(path));
            let failed = |error| host_error(&there, error);
            // What is above is a directory, or the path was removed with it.
            let found = match fs::symlink_metadata(&there) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    removed.push(relative);
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            let is_same = match initial {
                Initial::Directory => {
                    if !found.is_dir() {
                        removed.push(relative);
                    }
                    continue;
                }
                Initial::Link(target) => {
                    found.is_symlink()
                        && fs::read_link(&there).map_err(failed)?.as_os_str().as_bytes() == target
                }
                Initial::File { mode, hash: before } => {
                    found.is_file() && found.mode() & 0o777 == *mode && {
                        // The owner may have taken the right to read it from itself.
                        let readable = fs::Permissions::from_mode(found.mode() | 0o400);
                        fs::set_permissions(&there, readable).map_err(failed)?;
                        let mut file = File::open(&there).map_err(failed)?;
                        let now = hash(&mut file).map_err(failed)?;
                        fs::set_permissions(&there, found.permissions()).map_err(failed)?;
                        now == *before
                    }
                }
            };
            if is_same {
                fs::remove_file(&there).map_err(failed)?;
            } else if found.is_dir() {
                removed.push(relative);
            }
        }
        Ok(removed)
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

/// Removes what is at a path, whatever it is now.
///
/// # Errors
/// It cannot be removed.
pub fn remove_all(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(host_error(path, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
}
