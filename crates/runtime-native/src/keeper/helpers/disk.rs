//! Measuring what a sandbox's layers take on disk.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The maximal depth of directories. Deeper ones count as exceeding the limit.
const DEPTH: usize = 1000;
/// The unit of `st_blocks` (`stat(3type)`).
const BLOCK_BYTES: u64 = 512;

/// Whether the upper layers in a sandbox's directory take more than this many bytes; prints how
/// many they take. A directory that cannot be read may hold anything: it counts as exceeding the
/// limit, and no number is printed.
pub(super) fn takes_more_than(
    dir: &Path,
    limit_bytes: u64,
    mut to: impl io::Write,
) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let taken = match rustix::fs::open(dir, flags, Mode::empty()) {
        Ok(place) => used_bytes(place)?,
        Err(Errno::NOENT) => Some(0),
        Err(errno) => return Err(errno.into()),
    };
    if let Some(taken) = taken {
        to.write_all(taken.to_string().as_bytes())?;
    }
    Ok(taken.is_none_or(|taken| taken > limit_bytes))
}

/// How many bytes the upper layers in a sandbox's directory take; `None` when a directory cannot be
/// read.
pub(crate) fn used_bytes(dir: impl AsFd) -> io::Result<Option<u64>> {
    Ok(left_of(u64::MAX, dir)?.map(|left| u64::MAX - left))
}

/// This many bytes minus those of the upper layers; `None` when they take more.
fn left_of(bytes: u64, dir: impl AsFd) -> io::Result<Option<u64>> {
    let mut left = bytes;
    for layer in ["layers/upper", "workspace/upper"] {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&dir, layer, flags, Mode::empty()) {
            Ok(directory) => {
                if !add(&directory, &mut left, 0)? {
                    return Ok(None);
                }
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Some(left))
}

/// Subtracts the contents of a directory from `left`; false when they exceed it.
fn add(directory: &OwnedFd, left: &mut u64, depth: usize) -> io::Result<bool> {
    if depth == DEPTH {
        return Ok(false);
    }
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            // It was removed meanwhile.
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // Each hard link of a file counts for its share.
        let names = if is_directory { 1 } else { stat.st_nlink.max(1) };
        let taken = stat.st_blocks.cast_unsigned() * BLOCK_BYTES / names;
        match left.checked_sub(taken) {
            Some(rest) => *left = rest,
            None => return Ok(false),
        }
        if is_directory && !add_below(directory, name, left, depth)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn add_below(directory: impl AsFd, name: &CStr, left: &mut u64, depth: usize) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(below) => add(&below, left, depth + 1),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(true),
        Err(Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_on_disk_counts_and_what_hides_counts_as_too_much() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!takes_more_than(dir.path(), 0, io::sink()).unwrap());
        let upper = dir.path().join("layers/upper/deep");
        std::fs::create_dir_all(&upper).unwrap();
        std::fs::write(upper.join("file"), vec![1; 1 << 20]).unwrap();
        std::fs::File::create(upper.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert!(!takes_more_than(dir.path(), 2 << 20, io::sink()).unwrap());
        assert!(takes_more_than(dir.path(), 1 << 19, io::sink()).unwrap());
        let opened = std::fs::File::open(dir.path()).unwrap();
        assert!((1 << 20..2 << 20).contains(&used_bytes(&opened).unwrap().unwrap()));
        std::fs::hard_link(upper.join("file"), upper.join("again")).unwrap();
        assert!(!takes_more_than(dir.path(), 2 << 20, io::sink()).unwrap());
        if !rustix::process::geteuid().is_root() {
            std::fs::set_permissions(&upper, std::fs::Permissions::from_mode(0o000)).unwrap();
            assert!(takes_more_than(dir.path(), 2 << 20, io::sink()).unwrap());
            std::fs::set_permissions(&upper, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
}
