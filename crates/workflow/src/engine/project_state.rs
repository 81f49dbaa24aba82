//! The state of the files of a project, as a part of the keys of cached outputs.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// How many files are read at most.
const MAX_FILES: usize = 500_000;
/// The directories that are not a part of the state: they change without the project.
const EXCLUDED: [&str; 3] = [".git", ".smithers", ".stockade"];

/// The hash of the names, sizes and times of all files below a directory. It changes whenever a file is
/// written; a directory without a file is not a part of it.
///
/// # Errors
/// If a directory cannot be read, or there are too many files.
pub(super) fn hash(root: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut left = MAX_FILES;
    add(&mut hasher, root, &mut left)?;
    if let Ok(head) = fs::read(root.join(".git/HEAD")) {
        hasher.update(&head);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn add(hasher: &mut blake3::Hasher, directory: &Path, left: &mut usize) -> io::Result<()> {
    let entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>();
    let mut entries = entries?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        if EXCLUDED.iter().any(|excluded| name == *excluded) {
            continue;
        }
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            hasher.update(b"in ").update(name.as_bytes()).update(b"\0");
            add(hasher, &entry.path(), left)?;
            hasher.update(b"out\0");
            continue;
        }
        *left = left.checked_sub(1).ok_or_else(|| {
            io::Error::other(format!("the project has more than {MAX_FILES} files"))
        })?;
        hasher.update(name.as_bytes()).update(b"\0").update(stamp(&metadata).as_bytes());
        if metadata.is_symlink() {
            hasher.update(fs::read_link(entry.path())?.as_os_str().as_bytes());
        }
    }
    Ok(())
}

fn stamp(metadata: &Metadata) -> String {
    let (size, mode) = (metadata.size(), metadata.mode());
    format!("{size} {mode} {}.{}\0", metadata.mtime(), metadata.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_written_file_changes_the_state() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::write(path("a/b/one"), "1").unwrap();
        let first = hash(place.path()).unwrap();
        assert_eq!(hash(place.path()).unwrap(), first);
        fs::write(path("a/two"), "2").unwrap();
        let second = hash(place.path()).unwrap();
        assert_ne!(second, first);
        fs::remove_file(path("a/two")).unwrap();
        assert_eq!(hash(place.path()).unwrap(), first);
        fs::create_dir_all(path(".smithers/sandboxes/r")).unwrap();
        fs::write(path(".smithers/sandboxes/r/x"), "").unwrap();
        assert_eq!(hash(place.path()).unwrap(), first);
        fs::write(path("a/b/one"), "12").unwrap();
        assert_ne!(hash(place.path()).unwrap(), first);
    }
}
