//! Directories as archives, which the program `tar` on another machine reads or makes. An archive from
//! there is hostile: it is extracted below one new directory.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use stockade_runtime::{Error, Result};

use crate::copied_directory::remove_all;
use crate::records::host_error;

/// How much longer an archive may be than its files.
pub const HEADER_BYTES: u64 = 256 << 20;
/// The most files that are copied out.
const MAX_FILES: u64 = 1_000_000;

/// A file without a name beside a path.
///
/// # Errors
/// It cannot be created.
pub fn unnamed_file(beside: &Path) -> io::Result<File> {
    let directory = beside.parent().unwrap_or_else(|| Path::new("/"));
    let flags =
        rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    Ok(File::from(rustix::fs::open(directory, flags, mode)?))
}

/// An archive of one file, which has this name in it.
///
/// # Errors
/// [`Error::Host`] for what cannot be read.
pub(crate) fn pack_file(from: &Path, name: &OsStr) -> Result<File> {
    let failed = |error| host_error(from, error);
    let mut archive = new_archive().map_err(failed)?;
    archive.append_path_with_name(from, name).map_err(failed)?;
    finish(archive).map_err(failed)
}

/// A new archive in a file without a name.
fn new_archive() -> io::Result<tar::Builder<File>> {
    let file = unnamed_file(&std::env::temp_dir().join("x"))?;
    Ok(tar::Builder::new(file))
}

/// The file of a complete archive, at its start.
fn finish(archive: tar::Builder<File>) -> io::Result<File> {
    let mut file = archive.into_inner()?;
    file.rewind()?;
    Ok(file)
}

/// An archive of what is in a directory, which may contain only files, directories and links.
/// What is at a path that is skipped is left out, with everything below it.
///
/// # Errors
/// [`Error::Host`] for what cannot be read or is something else.
pub fn pack(from: &Path, skips: impl Fn(&Path) -> bool) -> Result<File> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| host_error(&path, error)
    };
    let mut archive = new_archive().map_err(failed(from))?;
    archive.follow_symlinks(false);
    let mut waiting = vec![PathBuf::new()];
    while let Some(directory) = waiting.pop() {
        let real = from.join(&directory);
        let mut entries: Vec<_> = std::fs::read_dir(&real)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(failed(&real))?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, real) = (directory.join(entry.file_name()), entry.path());
            if skips(&path) {
                continue;
            }
            let kind = entry.file_type().map_err(failed(&real))?;
            if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
                let source = io::Error::other("it is neither a file, a directory nor a link");
                return Err(host_error(&real, source));
            }
            archive.append_path_with_name(&real, &path).map_err(failed(&real))?;
            if kind.is_dir() {
                waiting.push(path);
            }
        }
    }
    finish(archive).map_err(failed(from))
}

/// Extracts an archive, which starts at this offset of a file, to a new directory; after an error there is none. Pipes, sockets and devices are
/// left out.
///
/// # Errors
/// [`Error::Invalid`] for an archive that is too large or leads out of its directory.
pub fn unpack(mut file: File, start: u64, to: &Path, limit_bytes: u64) -> Result<()> {
    file.seek(io::SeekFrom::Start(start)).map_err(|error| host_error(to, error))?;
    DirBuilder::new().mode(0o700).create(to).map_err(|error| host_error(to, error))?;
    let done = unpack_to(file, to, limit_bytes);
    if done.is_err() {
        // The error is the one to report.
        let _ = remove_all(to);
    }
    done
}

fn unpack_to(file: File, to: &Path, limit_bytes: u64) -> Result<()> {
    let hostile = |what: &str| Error::Invalid(format!("the archive of the sandbox {what}"));
    let odd = |error: io::Error| Error::Invalid(format!("the archive of the sandbox: {error}"));
    let mut archive = tar::Archive::new(io::BufReader::new(file));
    let (mut bytes, mut files) = (0_u64, 0_u64);
    let mut directories = Vec::new();
    for entry in archive.entries().map_err(odd)? {
        let mut entry = entry.map_err(odd)?;
        let name = entry.path().map_err(odd)?.into_owned();
        let path: PathBuf = name.components().filter(|part| *part != Component::CurDir).collect();
        if path.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(hostile("leads out of its directory"));
        }
        if path.as_os_str().is_empty() {
            continue;
        }
        files += 1;
        bytes = bytes.saturating_add(entry.size());
        if bytes > limit_bytes {
            return Err(Error::Invalid(format!("it is larger than {limit_bytes} bytes")));
        }
        if files > MAX_FILES {
            return Err(Error::Invalid(format!("it has more than {MAX_FILES} files")));
        }
        let target = to.join(&path);
        // Only directories of this archive are above it: nothing follows a link.
        let parent = target.parent().unwrap_or(to);
        let is_directory = std::fs::symlink_metadata(parent).is_ok_and(|found| found.is_dir());
        if !is_directory || above_is_link(to, &path) {
            return Err(hostile("has a file below something that is no directory"));
        }
        let mode = entry.header().mode().map_err(odd)? & 0o777;
        let made = match entry.header().entry_type() {
            tar::EntryType::Directory => {
                directories.push((target.clone(), mode));
                DirBuilder::new().mode(0o700).create(&target)
            }
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                write_file(&mut entry, &target, mode)
            }
            tar::EntryType::Symlink => {
                let link = entry.link_name_bytes().unwrap_or_default().into_owned();
                let link = std::ffi::OsStr::from_bytes(&link).to_owned();
                // A link is copied as it is, wherever it leads.
                symlink(link, &target)
            }
            tar::EntryType::Link => {
                let link = entry.link_name().map_err(odd)?.unwrap_or_default().into_owned();
                let first: PathBuf =
                    link.components().filter(|part| *part != Component::CurDir).collect();
                let is_inside = first.components().all(|part| matches!(part, Component::Normal(_)));
                if !is_inside || above_is_link(to, &first) {
                    return Err(hostile("has a link that leads out of it"));
                }
                std::fs::hard_link(to.join(first), &target)
            }
            // Pipes, sockets and devices are left out.
            _ => Ok(()),
        };
        made.map_err(|error| host_error(&target, error))?;
    }
    for (directory, mode) in directories.into_iter().rev() {
        let permissions = std::fs::Permissions::from_mode(mode);
        let set = std::fs::set_permissions(&directory, permissions);
        set.map_err(|error| host_error(&directory, error))?;
    }
    Ok(())
}

/// Whether a directory above a path is a link.
fn above_is_link(root: &Path, path: &Path) -> bool {
    let mut above = path.ancestors().skip(1);
    above.any(|above| std::fs::symlink_metadata(root.join(above)).is_ok_and(|m| m.is_symlink()))
}

fn write_file(entry: &mut impl Read, target: &Path, mode: u32) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(target)?;
    io::copy(entry, &mut file)?;
    file.flush()?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(make: impl FnOnce(&mut tar::Builder<File>)) -> File {
        let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
        make(&mut builder);
        builder.into_inner().unwrap()
    }

    fn entry(name: &str, kind: tar::EntryType, link: &str, content: &[u8]) -> tar::Header {
        let mut header = tar::Header::new_old();
        // The library refuses such names itself.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        header
    }

    #[test]
    fn a_directory_comes_back() {
        let top = tempfile::tempdir().unwrap();
        let from = top.path().join("from");
        std::fs::create_dir_all(from.join("below")).unwrap();
        std::fs::write(from.join("below/file"), "content").unwrap();
        symlink("/nowhere", from.join("link")).unwrap();
        std::fs::write(from.join("skipped"), "").unwrap();
        let to = top.path().join("to");
        unpack(pack(&from, |path| path == Path::new("skipped")).unwrap(), 0, &to, 1000).unwrap();
        assert_eq!(std::fs::read(to.join("below/file")).unwrap(), b"content");
        assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("/nowhere"));
        assert!(!to.join("skipped").exists());
    }

    #[test]
    fn a_hostile_archive_leaves_nothing() {
        use tar::EntryType::{Link, Regular, Symlink};
        for entries in [
            vec![("../out", Regular, "")],
            vec![("/etc/out", Regular, "")],
            vec![("link", Symlink, "/tmp"), ("link/out", Regular, "")],
            vec![("hard", Link, "../../etc/passwd")],
            vec![("link", Symlink, "/etc"), ("hard", Link, "link/passwd")],
        ] {
            let top = tempfile::tempdir().unwrap();
            let file = archive(|builder| {
                for (name, kind, link) in &entries {
                    builder.append(&entry(name, *kind, link, b""), io::empty()).unwrap();
                }
            });
            let refused = unpack(file, 0, &top.path().join("to"), 1000);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{entries:?}: {refused:?}");
            assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 0, "{entries:?}");
        }
        let top = tempfile::tempdir().unwrap();
        let large = archive(|builder| {
            builder.append(&entry("large", Regular, "", &[0; 2000]), &[0; 2000][..]).unwrap();
        });
        assert!(matches!(unpack(large, 0, &top.path().join("to"), 1000), Err(Error::Invalid(_))));
    }
}
