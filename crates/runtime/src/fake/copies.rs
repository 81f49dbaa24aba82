//! Copies between the files of a fake sandbox and those of the host.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stockade_bundle::beneath::{Dir, Timestamp};
use stockade_bundle::view;
use stockade_core::sandbox::SECRETS_DIRECTORY;

use super::tree::{Kind, Node, Tree, USER};
use crate::error::{Error, Result};
use crate::files::WriteOptions;

/// How often to check the clock for the end of a tick; the longest tick takes ten milliseconds.
const CLOCK_POLLS: u32 = 100;

/// A timestamp after all earlier changes on the host and before all later ones, by the timestamps
/// of its temporary files.
pub(super) fn timestamp() -> Result<Timestamp> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("stockade-fake-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    fs::create_dir(&path).map_err(host(&path))?;
    let timestamp = Dir::open(&path)
        .map_err(io::Error::from)
        .and_then(|dir| view::boundary_time(&dir, 0o700).map_err(io::Error::other));
    let removed = fs::remove_dir(&path);
    let timestamp = timestamp.and_then(|moment| removed.map(|()| moment)).map_err(host(&path))?;
    for _ in 0..CLOCK_POLLS {
        if view::is_tick_over(timestamp) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(timestamp)
}

/// Copies a directory of the host into a tree.
///
/// # Errors
/// [`Error::Host`] for anything that is not a file, directory or link, or cannot be read;
/// [`Error::File`] when the directory inside cannot be created. A part may have been copied then.
pub(super) fn ship(tree: &mut Tree, from: &Path, to: &Path) -> Result<()> {
    if !fs::metadata(from).map_err(host(from))?.is_dir() {
        return Err(host(from)(io::ErrorKind::NotADirectory.into()));
    }
    tree.make_directory(to, WriteOptions { mode: 0o755, ..WriteOptions::default() })
        .and_then(|()| tree.directory(to))
        .map_err(file("make", to))
        .and_then(|to| ship_content(tree, from, &to))
}

fn ship_content(tree: &mut Tree, from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).map_err(host(from))? {
        let entry = entry.map_err(host(from))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let metadata = fs::symlink_metadata(&from).map_err(host(&from))?;
        let kind = if metadata.is_symlink() {
            Kind::Link(fs::read_link(&from).map_err(host(&from))?)
        } else if metadata.is_dir() {
            Kind::Directory
        } else if metadata.is_file() {
            Kind::File(Arc::new(fs::read(&from).map_err(host(&from))?))
        } else {
            return Err(host(&from)(io::ErrorKind::Unsupported.into()));
        };
        tree.put(to.clone(), Node::new(kind, metadata.permissions().mode() & 0o7777, USER));
        if metadata.is_dir() {
            ship_content(tree, &from, &to)?;
        }
    }
    Ok(())
}

/// Copies a directory of a tree to a new directory of the host.
///
/// # Errors
/// [`Error::Invalid`] when that would be too large, [`Error::Host`] when it cannot be written;
/// nothing is left of it then.
pub(super) fn collect(tree: &Tree, from: &Path, to: &Path, limit_bytes: u64) -> Result<()> {
    let from = tree.directory(from).map_err(file("read", from))?;
    let size: u64 = tree
        .below(&from)
        .map(|(_, node)| match &node.kind {
            Kind::File(content) => content.len() as u64,
            _ => 0,
        })
        .sum();
    if size > limit_bytes {
        return Err(Error::Invalid(format!("{size} bytes are more than {limit_bytes}")));
    }
    fs::create_dir(to).map_err(host(to))?;
    let copied = collect_content(tree, &from, to);
    if copied.is_err() {
        // A failed removal must not hide the original error.
        let _ = fs::remove_dir_all(to);
    }
    copied
}

fn collect_content(tree: &Tree, from: &Path, to: &Path) -> Result<()> {
    let mut directories: Vec<(PathBuf, u32)> = Vec::new();
    for (path, node) in tree.below(from) {
        if path.starts_with(SECRETS_DIRECTORY) {
            continue;
        }
        let path = to.join(path.strip_prefix(from).unwrap_or(path));
        match &node.kind {
            Kind::Directory => {
                fs::create_dir(&path).map_err(host(&path))?;
                directories.push((path, node.mode));
            }
            Kind::Link(target) => symlink(target, &path).map_err(host(&path))?,
            Kind::File(content) => {
                fs::write(&path, content.as_slice()).map_err(host(&path))?;
                permit(&path, node.mode)?;
            }
        }
    }
    // The deepest first: below a directory that denies access, nothing can be changed.
    directories.iter().rev().try_for_each(|(path, mode)| permit(path, *mode))
}

pub(super) fn permit(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777)).map_err(host(path))
}

pub(super) fn host(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Host { path: path.display().to_string(), source }
}

/// The error of an operation on a file inside.
pub(super) fn file(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::File { operation, path: path.display().to_string(), source }
}
