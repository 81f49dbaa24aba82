//! `stockade df`: where the data directory is, and how much each part of it uses.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstatvfs, openat, statat};
use stockade_core::{Code, Problem};

use crate::args::Df;
use crate::commands::print::{escaped, notify, print_text};
use crate::data_dir::{data_path, find_data_dir};
use crate::problem::{Failure, caused};
use crate::table::size;

/// The parts of a data directory.
const PARTS: [(&str, &str); 16] = [
    ("bundles", "changes that wait for a decision"),
    ("views", "changes of runs that have not ended"),
    ("runtime", "files of persistent sandboxes"),
    ("runtime-bwrap", "files of persistent sandboxes of the runtime `bwrap`"),
    ("runtime-docker", "files of persistent sandboxes of the runtime `docker`"),
    ("images", "unpacked images"),
    ("volumes", "named volumes and caches"),
    ("downloads", "images that are being downloaded"),
    ("bases", "copies of the system directories"),
    ("histories", "what sandboxes have offered in bundles"),
    ("journals", "apply operations"),
    ("undo", "what apply operations have replaced"),
    ("decisions", "history of decisions"),
    ("run-files", "files of projects at steps of workflow runs, for forks"),
    ("server", "socket and log of the local server"),
    ("trust", "trusted project files"),
];
/// The other entries, such as the database.
const OTHERS: &str = "database and others";
/// The deepest directory that is measured.
const MAX_DEPTH: usize = 256;

/// Disk usage.
#[derive(Debug, Default, Clone, Copy)]
struct Usage {
    bytes: u64,
    files: u64,
    /// Directories that could not be read.
    unreadable: u64,
}

/// Prints the usage.
pub(crate) fn run(_: &Df) -> Result<u8, Failure> {
    let path = data_path()?;
    let Some(data) = find_data_dir(&path)? else {
        print_text(&format!("{}\nnot created yet\n", escaped(&path.to_string_lossy())))?;
        return Ok(0);
    };
    let entries = names(data.as_fd()).map_err(|error| caused(Code::Io, &error))?;
    let mut rows: Vec<_> =
        PARTS.iter().map(|(name, about)| (*name, *about, Usage::default())).collect();
    let mut others = Usage::default();
    for name in &entries {
        let part = rows.iter_mut().find(|(part, ..)| part.as_bytes() == name.to_bytes());
        let usage = part.map_or(&mut others, |(.., usage)| usage);
        measure(data.as_fd(), name, usage, 0);
    }
    rows.push(("", OTHERS, others));
    let total = rows.iter().map(|(.., usage)| usage.bytes).sum();
    let space = fstatvfs(data.as_fd())
        .map_err(|errno| -> Problem { caused(Code::Io, &std::io::Error::from(errno)) })?;
    let mut text = format!("{}\n", escaped(&path.to_string_lossy()));
    for (name, about, usage) in rows.iter().filter(|(.., usage)| usage.files > 0) {
        text += &format!("{:>10}  {name:<10}  {about}\n", size(usage.bytes));
    }
    text += &format!("{:>10}  total\n", size(total));
    text += &format!("{:>10}  free on its disk\n", size(space.f_bavail * space.f_frsize));
    print_text(&text)?;
    let unreadable: u64 = rows.iter().map(|(.., usage)| usage.unreadable).sum();
    if unreadable > 0 {
        notify(&format!("{unreadable} directories could not be read and are not included"));
    }
    Ok(0)
}

/// What a directory uses on the disk, with everything below it.
pub(crate) fn used(path: &std::path::Path) -> u64 {
    let mut usage = Usage::default();
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return 0 };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = std::ffi::CString::new(std::os::unix::ffi::OsStrExt::as_bytes(name));
    if let (Ok(parent), Ok(name)) = (rustix::fs::open(parent, flags, Mode::empty()), name) {
        measure(parent.as_fd(), &name, &mut usage, 0);
    }
    usage.bytes
}

/// Adds what an entry uses on the disk, and everything below it. No link is followed: the files of a
/// sandbox are not trusted.
fn measure(directory: BorrowedFd<'_>, name: &std::ffi::CStr, usage: &mut Usage, depth: usize) {
    let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
    usage.files += 1;
    usage.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(directory, name, flags, Mode::empty());
    let listed = opened.and_then(|opened| Ok((names(opened.as_fd())?, opened)));
    match listed {
        Ok((entries, opened)) if depth < MAX_DEPTH => {
            entries.iter().for_each(|name| measure(opened.as_fd(), name, usage, depth + 1));
        }
        _ => usage.unreadable += 1,
    }
}

/// The names in a directory.
fn names(directory: BorrowedFd<'_>) -> rustix::io::Result<Vec<std::ffi::CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_measured_without_its_links() {
        let directory = tempfile::tempdir().unwrap();
        let big = directory.path().join("big");
        std::fs::write(&big, vec![1; 1 << 20]).unwrap();
        let below = directory.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("file"), vec![1; 8 << 10]).unwrap();
        std::os::unix::fs::symlink(&big, below.join("link")).unwrap();
        std::os::unix::fs::symlink(directory.path(), below.join("loop")).unwrap();
        let opened = std::fs::File::open(directory.path()).unwrap();
        let mut usage = Usage::default();
        measure(opened.as_fd(), c"below", &mut usage, 0);
        assert_eq!((usage.files, usage.unreadable), (4, 0));
        assert!(usage.bytes >= 8 << 10 && usage.bytes < 1 << 20, "{usage:?}");
    }
}
